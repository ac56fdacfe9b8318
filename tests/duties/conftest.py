"""Shared by the tests of duties."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from yurt.fsm import apply
from yurt.fsm.eval_triggers import Mint
from yurt.sdk.value import UnixNano, seconds
from yurt.state import Snapshot
from yurt.structs.commands import AnyCommand, Applied
from yurt.testing import factories

StateOf = Callable[..., Snapshot]
MintAt = Callable[..., Mint]


@pytest.fixture
def state_of() -> StateOf:
    """Make the state that commands lead to; each must be accepted."""

    def build(*commands: AnyCommand, on: Snapshot | None = None) -> Snapshot:
        state = on or Snapshot.empty()
        for command in commands:
            step = apply(state, command, index=state.index + 1)
            assert isinstance(step.result, Applied), step.result
            state = step.state
        return state

    return build


@pytest.fixture
def mint_at() -> MintAt:
    """Make ids e1, e2 ... at some seconds after the factories' time."""
    numbers = itertools.count(1)

    def build(after_s: float = 0) -> Mint:
        return Mint(UnixNano(factories.NOW + seconds(after_s)), lambda: f"e{next(numbers)}")

    return build
