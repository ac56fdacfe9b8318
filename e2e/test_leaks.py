"""Allocations that have lived and ended leave nothing behind on their node (invariant E9); `python -m bench leaks` is
the long version.
"""

from __future__ import annotations

from pathlib import Path

from yurt.testing.agent import running_agent, wait_for
from yurt.testing.leaks import Lives, usable_drivers

DRIVERS = ("raw_exec", "exec", "mock_driver")
MEMORY_MB = 8.0


def test_lives_of_allocations_leave_nothing_behind(tmp_path: Path) -> None:
    with running_agent(tmp_path) as agent:
        lives = Lives(agent, usable_drivers(agent, DRIVERS))
        for _ in range(4):
            lives.round(5)
        before = lives.holdings()
        total = sum(lives.round(5) for _ in range(4))

        after = wait_for("as before", lambda: None if (now := lives.holdings()).more_than(before) else now)

    assert total >= 20
    assert after.memory_mb - before.memory_mb < MEMORY_MB
