"""One replica of the state without a log: applies commands and keeps the state."""

from __future__ import annotations

from yurt.fsm import ApplyResult, apply
from yurt.sdk.value import replace
from yurt.state import Change, Snapshot
from yurt.structs.commands import AnyCommand, Rejected, Result
from yurt.structs.rules import RULES_VERSION


class Replica:
    """Applies commands at consecutive indexes and keeps the result of the last one."""

    def __init__(self, state: Snapshot | None = None, *, rules_version: int = RULES_VERSION) -> None:
        """`rules_version`: version of the rules that commands follow; 0 is from before rules had versions."""
        self._rules_version = rules_version
        self.state = Snapshot.empty() if state is None else state
        self.changes: tuple[Change, ...] = ()

    def step(self, command: AnyCommand) -> ApplyResult:
        """Apply a command, accepted or rejected."""
        step = apply(self.state, replace(command, rules_version=self._rules_version), index=self.state.index + 1)
        self.state, self.changes = step.state, step.changes
        return step

    def apply(self, *commands: AnyCommand) -> Snapshot:
        """Apply commands that must be accepted; returns the state after them."""
        for command in commands:
            result = self.step(command).result
            assert not isinstance(result, Rejected), (command, result)
        return self.state

    def reject(self, command: AnyCommand) -> Rejected:
        """Apply a command that must be rejected; returns the rejection."""
        before = self.state
        result: Result = self.step(command).result
        assert isinstance(result, Rejected), (command, result)
        assert self.state.index == before.index + 1
        assert all(self.state.table(table.name) is table for table in before.tables()), (
            "a rejected command changed rows"
        )
        return result
