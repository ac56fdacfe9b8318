"""Decisions of concurrent callers: each is made on a state that still holds when it is applied, and none is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any

import pytest
from yurt.sdk.errors import Conflict, Invalid, NotFound, Unavailable, YurtError
from yurt.sdk.value import replace
from yurt.server.requests import DispatchRequest, RetainedFields
from yurt.state import Snapshot
from yurt.structs.commands import AnyCommand, Expectation, RegisterJob
from yurt.structs.job import ParameterizedJobConfig, ScalingEvent
from yurt.testing import factories

TOGETHER = 8


async def outcomes(calls: Iterable[Awaitable[Any]]) -> tuple[list[Any], list[BaseException]]:
    """What calls that are made together answer, and what they raise."""
    done = await asyncio.gather(*calls, return_exceptions=True)
    failed = [one for one in done if isinstance(one, BaseException)]
    assert all(isinstance(one, YurtError) for one in failed), failed
    return [one for one in done if not isinstance(one, BaseException)], failed


async def test_one_of_several_registrations_creates_the_job(bench: Any) -> None:
    jobs = [factories.job(priority=40 + number) for number in range(TOGETHER)]
    done, failed = await outcomes(bench.server.resources.jobs.register(job, enforce_index=0) for job in jobs)
    assert len(done) == 1 and all(isinstance(error, Conflict) for error in failed)
    assert bench.server.state.jobs["default", "web"].job_modify_index == done[0].job_modify_index


async def test_each_registration_answers_with_its_own_index(bench: Any) -> None:
    jobs = [factories.job(priority=40 + number) for number in range(TOGETHER)]
    done, failed = await outcomes(map(bench.server.resources.jobs.register, jobs))
    assert not failed
    versions = bench.server.state.job_versions
    priorities = {job.job_modify_index: job.priority for job in versions.values()}
    kept = [(one.job_modify_index, job.priority) for one, job in zip(done, jobs, strict=True)]
    assert all(priorities.get(index, priority) == priority for index, priority in kept)
    assert len({one.job_modify_index for one in done}) == TOGETHER


async def test_one_of_several_reverts_over_a_version_wins(bench: Any) -> None:
    for priority in (50, 60):
        await bench.server.resources.jobs.register(factories.job(priority=priority))
    calls = (
        bench.server.resources.jobs.revert(("default", "web"), 0, enforce_prior_version=1) for _ in range(TOGETHER)
    )
    done, failed = await outcomes(calls)
    assert len(done) == 1 and all(isinstance(error, Conflict | Invalid) for error in failed)
    assert bench.server.state.jobs["default", "web"].version == 2


async def test_a_registration_keeps_the_count_that_a_scale_was_promised(bench: Any) -> None:
    await bench.server.resources.jobs.register(factories.job())
    calls: list[Awaitable[Any]] = []
    for number in range(TOGETHER):
        newer = factories.job(priority=60 + number)
        calls.append(bench.server.resources.jobs.register(newer, keep=RetainedFields(counts=True)))
        calls.append(bench.server.resources.jobs.scale("default", "web", ScalingEvent(count=number + 2), group="web"))
    done, failed = await outcomes(calls)
    assert not failed and len(done) == 2 * TOGETHER
    assert bench.server.state.jobs["default", "web"].task_groups[0].count == TOGETHER + 1


async def test_one_token_dispatches_one_child_and_all_hear_of_it(bench: Any) -> None:
    await bench.server.resources.jobs.register(
        factories.job("batch", type="batch", parameterized_job=ParameterizedJobConfig())
    )
    request = DispatchRequest(idempotency_token="once")
    done, failed = await outcomes(
        bench.server.resources.jobs.dispatch("default", "batch", request) for _ in range(TOGETHER)
    )
    assert not failed
    assert len({one.dispatched_job_id for one in done}) == 1
    assert len(bench.server.state.jobs.where("parent", ("default", "batch"))) == 1
    assert len([one for one in done if one.eval_id]) == 1


async def test_a_decision_is_made_again_until_its_basis_holds(bench: Any) -> None:
    seen: list[int] = []

    async def decision(state: Snapshot) -> AnyCommand:
        known = state.jobs.get(("default", "web"))
        seen.append(0 if known is None else known.job_modify_index)
        if len(seen) < 3:
            await bench.server.replica.propose(RegisterJob(job=factories.job(priority=50 + len(seen))))
        basis = Expectation(table="jobs", key=("default", "web"), index=seen[-1])
        return RegisterJob(job=factories.job(priority=70), based_on=(basis,))

    committed = await bench.server.replica.decide(decision)
    assert len(seen) == 3 and sorted(set(seen)) == seen
    assert committed.state.jobs["default", "web"].priority == 70
    assert committed.index == committed.state.index


async def test_a_basis_that_never_holds_ends_the_attempts(bench: Any) -> None:
    basis = Expectation(table="jobs", key=("default", "web"), index=77)

    async def decision(_: Snapshot) -> AnyCommand:
        return RegisterJob(job=factories.job(), based_on=(basis,))

    with pytest.raises(Unavailable, match="keeps changing"):
        await bench.server.replica.decide(decision)


async def test_a_stopped_job_stays_stopped_whatever_scales_it(bench: Any) -> None:
    await bench.server.resources.jobs.register(factories.job())
    calls: list[Awaitable[Any]] = [bench.server.resources.jobs.deregister("default", "web")]
    calls += [
        bench.server.resources.jobs.scale("default", "web", ScalingEvent(count=number + 2), group="web")
        for number in range(TOGETHER)
    ]
    await outcomes(calls)
    assert bench.server.state.jobs["default", "web"].stop


async def test_a_purged_job_stays_purged(bench: Any) -> None:
    await bench.server.resources.jobs.register(factories.job())
    calls: list[Awaitable[Any]] = [bench.server.resources.jobs.deregister("default", "web", purge=True)]
    calls += [
        bench.server.resources.jobs.scale("default", "web", replace(ScalingEvent(), count=number + 2), group="web")
        for number in range(TOGETHER)
    ]
    _, failed = await outcomes(calls)
    assert ("default", "web") not in bench.server.state.jobs
    assert len(failed) == TOGETHER and all(isinstance(error, NotFound) for error in failed)


async def test_many_at_once_take_turns_instead_of_writing_what_is_refused(bench: Any) -> None:
    count = 100
    jobs = [factories.job(meta={"number": str(number)}) for number in range(count)]
    before = bench.server.state.index
    done, failed = await outcomes(map(bench.server.resources.jobs.register, jobs))
    assert not failed and len(done) == count
    assert bench.server.state.index - before < 3 * count
