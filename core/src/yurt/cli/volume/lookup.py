"""Host volumes and claims by a prefix of their id, or by name."""

from __future__ import annotations

from typing import Any

from yurt.cli.command import Invocation
from yurt.cli.errors import CliError

Json = dict[str, Any]


def find_volume(call: Invocation, prefix: str) -> Json:
    """The stub of the only volume whose id or name begins so, an exact one first."""
    found: list[Json] = call.api.get("/v1/volumes", {"type": "host", "prefix": prefix}) or []
    exact = [volume for volume in found if prefix in (volume["ID"], volume["Name"])]
    return _only(exact or found, f'No host volume(s) with prefix or ID "{prefix}" found')


def find_claim(call: Invocation, prefix: str) -> Json:
    """The only claim whose id begins so."""
    found: list[Json] = call.api.get("/v1/volumes/claims", {"prefix": prefix}) or []
    return _only(found, f'No host volume claim(s) with prefix or ID "{prefix}" found')


def _only(found: list[Json], none: str) -> Json:
    if not found:
        raise CliError(none)
    if len(found) > 1:
        raise CliError("Prefix matched several: " + ", ".join(each["ID"] for each in found))
    return found[0]
