"""A replica to send commands to."""

from __future__ import annotations

import pytest
from yurt.testing.replica import Replica


@pytest.fixture(autouse=True)
def _every_sum_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one command of 64 only: each one's changes are added up."""
    monkeypatch.setattr("yurt.state.store.CHECKED_EACH", 1)


@pytest.fixture
def replica() -> Replica:
    """The state before any command."""
    return Replica()
