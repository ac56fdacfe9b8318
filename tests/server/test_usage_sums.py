"""Running sums of GPU usage: after any changes, and whenever somebody asks first, they are the sums of all rows."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, cast

import pytest
from yurt.runtime.env import RealEnv
from yurt.server.log.replica import Replica
from yurt.server.usage_sums import UsageSums, first_sums
from yurt.state import Changes, Snapshot, Tables
from yurt.structs.accounting.usage_day import UsageDay
from yurt.testing.nightly import cases


class Rows:
    """A state of usage rows, and what changed."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.state = Snapshot.empty()
        self.env = RealEnv()

    def change(self) -> Changes:
        """Add to a row, or drop one."""
        random = self.random
        edit = self.state.edit(self.state.index + 1)
        key = (random.choice("abc"), random.randrange(4))
        known = edit.get(Tables.usage_days, key)
        if known is not None and random.random() < 0.3:
            edit.delete(Tables.usage_days, key)
        else:
            lost = {random.choice(("failed", "preempted")): random.randrange(1, 50)} if random.random() < 0.5 else {}
            numbers: dict[str, Any] = {
                name: random.randrange(100) for name in ("card_ms", "busy_ms", "idle_ms", "preempted", "wait_ms")
            }
            edit.put(Tables.usage_days, key, UsageDay(namespace=key[0], day=key[1], lost_ms=lost, **numbers))
        changes = edit.changes
        self.state = edit.commit()
        return changes


@pytest.mark.parametrize("seed", range(cases(20)))
async def test_they_are_the_sums_of_all_rows(seed: int) -> None:
    random = Random(seed)
    rows = Rows(random)
    sums = UsageSums(cast(Replica, rows))
    for _ in range(60):
        sums.observe(rows.change())
        if random.random() < 0.05:
            rows.state = Snapshot.empty()
            sums.reset()
        if random.random() < 0.3:
            asked = [asyncio.ensure_future(sums.totals()) for _ in range(random.choice((1, 2)))]
            await asyncio.sleep(0)
            sums.observe(rows.change())
            await asyncio.gather(*asked)
            assert await sums.totals() == first_sums(rows.state)


async def test_nothing_is_kept_before_somebody_asks() -> None:
    rows = Rows(Random(1))
    sums = UsageSums(cast(Replica, rows))
    sums.observe(rows.change())
    assert await sums.totals() == first_sums(rows.state) != {}


async def test_a_first_sum_that_is_cancelled_collects_no_changes() -> None:
    rows = Rows(Random(1))
    sums = UsageSums(cast(Replica, rows))
    asked = asyncio.ensure_future(sums.totals())
    await asyncio.sleep(0)
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    assert asked.cancelled() and not sums.is_following
    sums.observe(rows.change())
    assert await sums.totals() == first_sums(rows.state) != {}
    assert sums.is_following
