"""Distinguishes an empty list from a namespace that does not exist: servers answer both alike."""

from __future__ import annotations

import sys

from yurt.cli.declaration import Invocation
from yurt.cli.errors import ApiError, CliError
from yurt.sdk.errors import YurtError

NOT_FOUND = 404


def check_namespace(call: Invocation) -> None:
    """Raise CliError if the namespace of the command does not exist; asked only after an object was not found.

    A caller who may not read the namespace does not learn whether it exists.
    """
    if problem := _problem(call):
        raise CliError(problem)


def warn_of_namespace(call: Invocation) -> None:
    """Say on standard error if the namespace of an empty list does not exist; the list itself is not a failure."""
    from yurt.cli.advice import advice

    if problem := _problem(call):
        print(f"{problem}\n{advice(problem)}", file=sys.stderr)


def _problem(call: Invocation) -> str:
    name = call.api.namespace
    if name in ("default", "*") or not is_missing(call, name):
        return ""
    return f'There is no namespace "{name}"'


def is_missing(call: Invocation, name: str) -> bool:
    """Whether the servers say that the namespace does not exist."""
    from urllib.parse import quote

    try:
        call.api.get(f"/v1/namespace/{quote(name, safe='')}")
    except ApiError as error:
        return error.status == NOT_FOUND
    except YurtError:
        return False
    return False
