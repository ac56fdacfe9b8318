"""What the servers say of a driver that no node has."""

from __future__ import annotations

from yurt.fsm import apply
from yurt.server.resources.admission import driver_problems
from yurt.state import Snapshot
from yurt.structs.commands import StoreSchema
from yurt.testing import factories


def test_a_misspelt_driver_is_warned_of_with_the_nearest_name() -> None:
    command = StoreSchema(driver="raw_exec", digest="d", schema={})
    state = apply(Snapshot.empty(), command, index=1).state
    errors, (warning,) = driver_problems(state, factories.task(driver="raw_exce"))
    assert not errors
    assert warning.endswith('(did you mean "raw_exec"?)')
    _, (strange,) = driver_problems(state, factories.task(driver="qemu"))
    assert "did you mean" not in strange
