"""The parts of an attempt by themselves: drafts, gangs and limits."""

from __future__ import annotations

from functools import partial

import pytest
from yurt.fsm import apply
from yurt.scheduler.capacity.limits import LimitCheck
from yurt.scheduler.ids import SeededIds
from yurt.scheduler.job_types.context import AttemptContext
from yurt.scheduler.job_types.gangs import Gangs
from yurt.scheduler.job_types.plan_draft import PlanDraft
from yurt.scheduler.job_types.system_rollout import canaries_of
from yurt.scheduler.reconcile.results import Results
from yurt.state import Snapshot
from yurt.state.namespace_usage import NamespaceUsage, counted
from yurt.state.usage import usage_of
from yurt.structs import commands as c
from yurt.structs.alloc import AllocatedResources
from yurt.structs.evaluation import Evaluation
from yurt.structs.explain.metrics import AllocationMetric
from yurt.structs.job import Job
from yurt.structs.plan import AllocStop, Placement
from yurt.structs.policies import Gang
from yurt.structs.resources import Resources
from yurt.testing import factories
from yurt.testing.quotas import QUOTAS, bound, quota


def _context(job: Job) -> AttemptContext:
    evaluation = Evaluation(id="eval", job_id=job.id, type=job.type, triggered_by="job-register")
    return AttemptContext(Snapshot.empty(), evaluation, job, (), factories.NOW, SeededIds(1), 1, tuple)


def _placement(number: int) -> Placement:
    return Placement(
        id=f"alloc-{number}",
        name=f"web.web[{number}]",
        task_group="web",
        node_id="node",
        job_version=0,
        resources=AllocatedResources(),
    )


def _gang(minimum: int) -> Job:
    return factories.job("web", task_groups=(factories.group("web", count=4, gang=Gang(min=minimum)),))


def test_a_draft_that_is_withdrawn_keeps_what_the_reconciler_stops_and_says_how_many_it_had() -> None:
    draft = PlanDraft(_context(_gang(2)), Results())
    draft.placements.extend(map(_placement, range(3)))
    draft.stops.append(AllocStop(id="replaced", node_id="node"))
    draft.withdraw()
    assert not draft.placements and not draft.stops
    assert draft.withdrawn == {"web": 3}


def test_a_draft_without_a_group_keeps_why_it_failed_and_what_it_misses() -> None:
    draft = PlanDraft(_context(_gang(2)), Results())
    draft.missing.add("volume")
    fresh = draft.without_groups({"web": AllocationMetric(coalesced_failures=3)})
    assert fresh.failed["web"].coalesced_failures == -1
    assert fresh.missing == {"volume"} and not fresh.placements


@pytest.mark.parametrize(("placed", "breaks"), [(1, True), (2, False)])
def test_a_gang_breaks_when_fewer_than_its_minimum_are_placed(placed: int, breaks: bool) -> None:
    job = _gang(2)
    draft, gangs = PlanDraft(_context(job), Results()), Gangs(_context(job))
    draft.placements.extend(map(_placement, range(placed)))
    draft.failed["web"] = AllocationMetric()
    assert gangs.find_broken(job, draft) is breaks
    assert ("web" in gangs.broken) is breaks
    assert not gangs.find_broken(job, draft), "it breaks once"


def test_a_limit_is_asked_as_if_what_is_replaced_were_given_back() -> None:
    job = factories.job(task_groups=(factories.group(tasks=(factories.task(resources=Resources(memory_mb=80)),)),))
    state = Snapshot.empty()
    for command in (*bound(spec=quota(memory_mb=100)), c.RegisterJob(job=job)):
        state = apply(state, command, index=state.index + 1).state
    replaced = factories.alloc(job, on=factories.node())
    check = LimitCheck(partial(QUOTAS, state, job), job)
    check.take(counted(usage_of(replaced)))
    asked = NamespaceUsage(memory=50)
    assert check.refuses(asked) == ("memory exhausted (50 MB needed, 20 of 100 MB left)",) and check.reached == "small"
    assert not check.refuses(asked, replaced)
    assert check.fitting(NamespaceUsage(memory=7), 9) == 2
    check.restart()
    assert not check.refuses(NamespaceUsage(memory=100))


def test_the_share_of_canary_nodes_is_rounded_up() -> None:
    assert [canaries_of(10, 1), canaries_of(34, 3), canaries_of(100, 5), canaries_of(0, 5)] == [1, 2, 5, 0]
