"""What is caught where work may fail alone."""

from __future__ import annotations

import asyncio

import pytest
from yurt.runtime.supervise import outcome_of


async def made() -> int:
    return 7


async def fails() -> int:
    raise ValueError("no")


async def test_the_outcome_of_work_is_its_result_or_what_it_failed_with() -> None:
    assert await outcome_of(made()) == 7
    assert repr(await outcome_of(fails())) == "ValueError('no')"


async def test_work_that_is_cancelled_has_no_outcome() -> None:
    waiting = asyncio.ensure_future(outcome_of(asyncio.Event().wait()))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
