"""Questions and answers of a rendering, exchanged between the agent and the rendering process."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

from yurt.sdk.value import Value, no_entries

VARIABLE, VARIABLES, SERVICE, SERVICES, FILE = "variable", "variables", "service", "services", "file"
PROVIDED = "provided"


LENGTH: Final = struct.Struct(">I")
"""The length prefix of each message between the agent and the rendering process."""


class Question(Value):
    """One input of a template; `name` is a path, a prefix or a service's name.

    Of a call that a template provider answers, `name` is the function and `arguments` are its own.
    """

    kind: str
    name: str = ""
    namespace: str = ""
    arguments: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """The question in the form for task events."""
        where = f"{self.name}@{self.namespace}" if self.namespace else self.name
        match self.kind:
            case "variable":
                return f"nomad.var.block({where})"
            case "variables":
                return f"nomad.var.list({where})"
            case "service":
                return f"nomad.service({where})"
            case "services":
                return f"nomad.services({where})" if where else "nomad.services"
            case "provided":
                return f"{self.name}({', '.join(self.arguments)})"
        return f"file({self.name})"


class QuestionAnswer(Value):
    """An answer: data in the form of the API, or a file's bytes; `error` when it is unavailable."""

    exists: bool = True
    data: Any = None
    error: str = ""


class RenderRequest(Value):
    """A template's text with its inputs; `now` in Unix nanoseconds, addresses of the node by interface.

    `provided` are the functions that template providers answer.
    """

    name: str
    text: bytes
    left: str = "{{"
    right: str = "}}"
    env: Mapping[str, str] = no_entries()
    namespace: str = "default"
    is_missing_key_error: bool = False
    denied: tuple[str, ...] = ()
    provided: tuple[str, ...] = ()
    answers: tuple[tuple[Question, QuestionAnswer], ...] = ()
    now: int = 0
    addresses: Mapping[str, tuple[str, ...]] = no_entries()


class Rendered(Value):
    """The text, unless answers are missing; `asked` are its questions; a non-empty `error` is final."""

    output: bytes = b""
    error: str = ""
    asked: tuple[Question, ...] = ()
    missing: tuple[Question, ...] = ()
