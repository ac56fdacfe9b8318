"""What a kind of object must provide so that random requests can be sent to objects of this kind."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from yurt.testing.histories.history import Model, Operation, Reply, Request


class PreparedRequest(NamedTuple):
    """A request ready to be sent."""

    method: str
    path: str
    body: bytes | None = None
    token: str = ""
    """The secret to show instead of the clients' own."""


class Kind(Protocol):
    """A kind of object: its requests over HTTP, the choice of the next one, and its sequential behaviour."""

    @property
    def name(self) -> str:
        """What reports call it."""
        ...

    @property
    def model(self) -> Model[Any]:
        """Its sequential behaviour."""
        ...

    def key(self, number: int) -> str:
        """The name of an object that nobody has used."""
        ...

    def prepare(self, key: str, request: Any) -> PreparedRequest:
        """The request over HTTP."""
        ...

    def body_of(self, request: Any, document: Any) -> Any:
        """What the model needs of the body of an answer below 400."""
        ...

    def choose(self, rng: random.Random, past: Sequence[Operation], mark: str) -> Request:
        """The next request on an object with these operations so far; `mark` is nobody else's."""
        ...

    def last_reads(self) -> Sequence[Request]:
        """Reads that together show the whole object."""
        ...

    def records(self, key: str) -> Sequence[str]:
        """Paths of what servers record about the object besides; they are read after a violation."""
        ...


def put(path: str, document: Any = None) -> PreparedRequest:
    """A write with a JSON body."""
    return PreparedRequest("PUT", path, None if document is None else json.dumps(document).encode())


def job_records(key: str) -> Sequence[str]:
    """What servers record about a job."""
    at = f"/v1/job/{key}"
    return at, f"{at}/versions", f"{at}/deployments?all=true", f"{at}/evaluations", f"{at}/allocations?all=true"


def answered(status: int, index: str, text: str, kind: Kind, request: Any) -> Reply:
    """An answer as the models read it; bodies of refusals are kept as text, JSON objects (409) as such."""
    at = int(index) if index.isdecimal() else 0
    if status >= 400 and not text.startswith("{"):
        return Reply(status, at, text.strip())
    return Reply(status, at, kind.body_of(request, json.loads(text) if text else None))


def latest_index(past: Sequence[Operation], rng: random.Random) -> int:
    """An index that a client may believe to be the object's: mostly the latest one answered, at times an older one."""
    told = [each.answer.index for each in past[-12:] if each.answer is not None and not each.answer.is_refusal]
    if not told:
        return 1
    return max(told) if rng.random() < 0.8 else rng.choice(told)
