"""What operators are shown of state and log, without what only its owner may know."""

from __future__ import annotations

from typing import Any

from yurt.sdk.value import Value

HIDDEN = "<hidden>"
SECRET_TEXTS = frozenset({"SecretID", "LockID"})


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
