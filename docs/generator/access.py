"""docs/reference/access.md: who may use each route and make each call between agents, from what was measured.

`python -m docs.access_matrix` measures access.json and access_calls.json; `tests/access` measures both again.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from yurt.access import Capability
from yurt.testing.access.call_matrix import calls, read_calls
from yurt.testing.access.matrix import outdated_rows, read_matrix

from docs.generator.markdown import code, table

MATRIX: Final = Path(__file__).resolve().parent.parent / "reference" / "access.json"
CALLS: Final = MATRIX.with_name("access_calls.json")
MANAGEMENT: Final = "management"
MANY: Final = 20
"""Callers in a cell that are named one by one; of more, those that are left out are named."""

INTRO: Final = """\
# Who may use what

This page is generated from [access.json](access.json): a real server with access control was asked for
every method of every route, every event topic and every context of a search, as every caller. It holds
{rows} rows of {callers} callers each, so {decisions} decisions through the handlers, and {calls} calls
between agents of {kinds} kinds of peers each, so {call_decisions} over real connections. `tests/access` asks
again and fails when an answer differs, or when a route or call has no row; `make access` writes the files
again.

*Allowed* names who gets an answer: in addition to the kinds of callers below, each right is a token with this
right alone, in the namespace of the object. A management token is allowed everywhere and not named.
Websockets (`exec`, `action`) are asked for with an upgrade: *allowed* means that the socket opened and the
command in the task answered over it; everybody else got a plain refusal instead of the upgrade.
*Hidden from* names who may ask and is answered as if the object did not exist: 404, or a list without it.
Everybody else gets 403. Two rights joined by `+` are one token.

| Caller | What it is |
|---|---|
| no token | a request without a token, while no policy `anonymous` exists |
| expired token | a management token whose time is over |
| unknown token | a secret that was never given out, or revoked |
| wrong namespace | a token with every capability in another namespace |
| workload, workload elsewhere | the identity of a running task in the namespace of the object, and in another one |
| node | the identity of a client node |
| client certificate | no token, over a connection with the TLS certificate of a client |
| namespace:read, :write, :scale | a token with this short-hand in the namespace |
"""
CALLS_INTRO: Final = """\

## Calls between agents

Each peer has dialled the `rpc` and the `serf` port of a server with TLS and made every call. These calls
carry no tokens but those of the requests that `ApiPort.ask` passes on, which are decided about as above. A
node speaks for itself and its own allocations alone; so does a server that connects as a node. No call was
carried out for any of these peers:

{nobody}

`NodePort` is what servers ask of a node: over the connection that the node has dialled, at whose other end
its TLS has found a server of its region, or through the server that has this connection, as measured here.
"""


def load() -> Mapping[str, Any]:
    """The measured matrix; raises ValueError for one that does not fit the routes and what they need."""
    matrix = read_matrix(MATRIX.read_text())
    if wrong := outdated_rows(matrix):
        raise ValueError(f"access.json does not fit the routes {wrong}: run `python -m docs.access_matrix --changed`")
    return matrix


def page_text() -> str:
    """The page."""
    matrix = load()
    callers, rows = matrix["callers"], matrix["rows"]
    made = load_calls()
    peers, carried_out = made["peers"], made["calls"]
    intro = INTRO.format(
        rows=len(rows), callers=len(callers), decisions=f"{len(rows) * len(callers):,}", calls=len(carried_out),
        kinds=len(peers), call_decisions=f"{len(peers) * len(carried_out):,}",
    )  # fmt: skip
    lines = [
        (code(name), row["needs"], _named(row["allowed"], callers), _named(row["hidden"], callers))
        for name, row in rows.items()
    ]
    by_path = sorted(lines, key=lambda line: line[0].partition(" ")[2])
    shown = table(("Request", "Declared need", "Allowed", "Hidden from"), by_path)
    asked = table(("Call", "Carried out for"), [(code(name), "; ".join(found)) for name, found in carried_out.items()])
    some = {peer for found in carried_out.values() for peer in found}
    calls_intro = CALLS_INTRO.format(nobody="\n".join(f"- {peer}" for peer in peers if peer not in some))
    return f"{intro}\n## HTTP API\n\n{shown}\n{calls_intro}\n{asked}\n"


def load_calls() -> Mapping[str, Any]:
    """The measured calls; raises ValueError for those of other calls or peers than there are."""
    made = read_calls(CALLS.read_text())
    if sorted(made["calls"]) != sorted(call.name for _, _, call in calls()):
        raise ValueError("access_calls.json does not fit the calls between agents: run `python -m docs.access_matrix`")
    return made


def _named(found: list[str], callers: list[str]) -> str:
    """Callers in words; many of them by those who are missing."""
    if len(found) == len(callers):
        return "everybody"
    others = [name for name in found if name != MANAGEMENT and not _follows(name, found)]
    if len(others) <= MANY:
        return ", ".join(others)
    if set(Capability) <= set(found) and not {"node:read", "agent:read"} & set(found):
        return ", ".join(["any capability in the namespace", *(name for name in others if _is_other(name))])
    missing = [name for name in callers if name not in found]
    return f"everybody but {', '.join(missing)}"


def _follows(name: str, found: list[str]) -> bool:
    """Whether a combination of rights says nothing new, because one of them is enough."""
    return any(part != name and part in found for part in name.split(" + "))


def _is_other(name: str) -> bool:
    """Whether a caller's name is not a capability, and not a combination with one."""
    return name not in list(Capability) and "+" not in name and not name.startswith("namespace:")
