"""What the servers say of a driver that no node has."""

from __future__ import annotations

from yurt.fsm import apply
from yurt.server.resources.admission import driver_problems
from yurt.state import Snapshot
from yurt.structs.commands import StoreSchema
from yurt.testing import factories


def test_a_misspelt_driver_is_refused_with_the_nearest_name_and_another_one_warned_of() -> None:
    command = StoreSchema(driver="raw_exec", digest="d", schema={})
    state = apply(Snapshot.empty(), command, index=1).state
    errors, warnings = driver_problems(state, factories.task(driver="raw_exce"))
    assert (errors, warnings) == (('unknown driver "raw_exce": no node has it (did you mean "raw_exec"?)',), ())
    for other in ("qemu", "raw_exec2"):
        assert driver_problems(state, factories.task(driver=other)) == (
            (), (f'no node has shown which options driver "{other}" takes, so they are not checked',),
        )  # fmt: skip
