"""What is caught where work may fail alone."""

from __future__ import annotations

import asyncio

import pytest
from yurt.runtime.supervise import outcome_of, supervised


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


async def test_a_failing_handler_of_a_failure_ends_no_sibling(caplog: pytest.LogCaptureFixture) -> None:
    def handler(error: Exception) -> None:
        raise RuntimeError("the handler fails as well")

    async def work() -> None:
        await fails()

    async with asyncio.TaskGroup() as group:
        supervised(group, "work", work(), on_error=handler)
        sibling = group.create_task(made())

    assert sibling.result() == 7
    assert "handling of failed background work failed: name=work" in caplog.text
