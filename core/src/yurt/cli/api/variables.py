"""Requests about variables."""

from __future__ import annotations

import json

from yurt.cli.declaration import Invocation
from yurt.cli.errors import ApiError, CliError, UsageError
from yurt.cli.json_object import Json


class WriteConflict(Exception):
    """The API refused because of another version or a lock; `current` is the present variable."""

    def __init__(self, current: Json) -> None:
        super().__init__("conflict")
        self.current = current


def var_path(path: str) -> str:
    """The route of a variable."""
    from urllib.parse import quote

    return f"/v1/var/{quote(path, safe='/~')}"


def read_variable(call: Invocation, path: str) -> Json:
    """A variable; raises CliError when it does not exist."""
    try:
        found: Json = call.api.get(var_path(path))
    except ApiError as error:
        if error.status == 404:
            raise CliError("Variable not found") from None
        raise
    return found


def write(call: Invocation, method: str, path: str, body: Json | None = None, **query: str) -> Json:
    """Write a variable; raises WriteConflict."""
    from urllib.parse import urlencode

    from yurt.cli.api.client import error_of

    sent = b"" if body is None else json.dumps(body).encode()
    parameters = urlencode(query)
    answer = call.api.raw(method, f"{var_path(path)}?{parameters}" if parameters else var_path(path), sent)
    if answer.status == 409:
        raise WriteConflict(json.loads(answer.body or b"{}"))
    if answer.status >= 400:
        raise error_of(answer)
    found: Json = json.loads(answer.body) if answer.body else {}
    return found


def check_index(call: Invocation) -> int | None:
    """The value of `-check-index`."""
    text = call.flags.text("check-index")
    if not text:
        return None
    if not text.isdigit():
        raise UsageError(f'Invalid -check-index value "{text}": it is not a whole number')
    return int(text)
