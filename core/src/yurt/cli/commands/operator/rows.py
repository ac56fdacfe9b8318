"""Rows of state and log as JSON for operators, without secrets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from yurt.sdk.errors import Invalid

if TYPE_CHECKING:
    from yurt.sdk.value import Value
    from yurt.state import Snapshot

HIDDEN = "<hidden>"
SECRET_TEXTS = frozenset({"SecretID", "LockID"})


Keep = Callable[[Mapping[str, Any]], bool]


def shown(value: Value) -> dict[str, Any]:
    """A row or a command as the API spells it; secrets of nodes, of volumes and of locks are hidden, pieces of a
    snapshot are not shown.
    """
    from yurt.api.encode import to_wire
    from yurt.structs.commands import StageRestore

    wire = _hidden(to_wire(value))
    if isinstance(value, StageRestore):
        wire["Data"] = f"<{len(value.data)} bytes>"
    assert isinstance(wire, dict)
    return wire


def _hidden(wire: Any) -> Any:
    if isinstance(wire, list):
        return [_hidden(each) for each in wire]
    if not isinstance(wire, dict):
        return wire
    return {name: _hidden_field(name, value) for name, value in wire.items()}


def _hidden_field(name: str, value: Any) -> Any:
    if name in SECRET_TEXTS:
        return HIDDEN if value else value
    if name == "Secrets" and isinstance(value, dict):
        return dict.fromkeys(value, HIDDEN)
    if name == "Lock" and isinstance(value, dict):
        return {**value, "ID": HIDDEN}
    return _hidden(value)


def lines(state: Snapshot, filters: Sequence[Keep]) -> Iterator[str]:
    """The state as JSON, one row a line; of the tables that have the fields of the filters, the rows that fit.

    Raises Invalid when no table has them.
    """
    from yurt.api.encode import encode_builtins
    from yurt.sdk.value import wire_name

    unfit: Invalid | None = None
    fits = not filters
    yield f'{{\n  "Index": {state.index}'
    for table in state.tables():
        try:
            rows = [row for row in map(shown, table.values()) if all(keep(row) for keep in filters)]
        except Invalid as error:
            unfit = error
            continue
        fits = fits or bool(len(table))
        if rows:
            texts = ",\n    ".join(encode_builtins(row).decode() for row in rows)
            yield f'  ,"{wire_name(table.name)}": [\n    {texts}\n  ]'
    if not fits and unfit is not None:
        raise unfit
    yield "}"
