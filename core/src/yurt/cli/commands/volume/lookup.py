"""Volumes and claims by a prefix of their id, or by name."""

from __future__ import annotations

from yurt.cli.commands.volume.specification import CSI, HOST
from yurt.cli.declaration import Invocation
from yurt.cli.errors import CliError
from yurt.cli.json_object import Json

KINDS = (CSI, HOST)


def find_any(call: Invocation, prefix: str, kind: str) -> tuple[str, Json]:
    """The type and the stub of the only volume, of that type or of any, with this prefix of its id or name."""
    found = [(each, stub) for each in ([kind] if kind else KINDS) for stub in _stubs(call, each, prefix)]
    exact = [(each, stub) for each, stub in found if prefix in (stub["ID"], stub["Name"])]
    chosen = exact or found
    stub = _only([stub for _, stub in chosen], f'No volume(s) with prefix or ID "{prefix}" found')
    return next(each for each, candidate in chosen if candidate is stub), stub


def _stubs(call: Invocation, kind: str, prefix: str) -> list[Json]:
    found: list[Json] = call.api.get("/v1/volumes", {"type": kind, "prefix": prefix}) or []
    return found


def find_csi(call: Invocation, volume_id: str) -> Json:
    """The stub of the CSI volume with that id or the only one that begins so."""
    return find_any(call, volume_id, CSI)[1]


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
