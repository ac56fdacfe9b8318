"""What runs, what is placed and what finds no room adds up to what a group wants; where it does not, notes say why."""

from __future__ import annotations

import re
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from yurt.fsm import apply
from yurt.scheduler.explain import why_not
from yurt.scheduler.explain.count_differences import count_differences
from yurt.scheduler.explain.dry_runs import DryRun, DryRuns
from yurt.scheduler.job_types.generic import GenericAttempt
from yurt.sdk.value import UnixNano, replace, seconds
from yurt.state import Snapshot
from yurt.structs import commands as c
from yurt.structs import status
from yurt.structs.alloc import Allocation, DesiredTransition
from yurt.structs.explain.explanation import GroupExplanation
from yurt.structs.job import Job, TaskGroup
from yurt.structs.plan import DeploymentUpdate
from yurt.structs.policies import DisconnectStrategy, Gang, ReschedulePolicy
from yurt.structs.resources import Resources
from yurt.testing import factories
from yurt.testing.cluster_models.cluster import PlannedCluster
from yurt.testing.nightly import cases
from yurt.testing.rows.random_commands import random_history

CASES = cases(300)
NEVER = ReschedulePolicy(attempts=0, unlimited=False)
ONCE = ReschedulePolicy(attempts=1, interval=seconds(3600), delay=seconds(5), delay_function="constant")
AFTER_A_MINUTE = ReschedulePolicy(delay=seconds(60), delay_function="constant", unlimited=True)


def _job(count: int, cpu: int = 100, *, job_type: str = status.JOB_SERVICE, **group: Any) -> Job:
    task = factories.task(resources=Resources(cpu=cpu, memory_mb=10))
    if job_type != status.JOB_SERVICE:
        group = {"update": None, "migrate": None, **group}
    return factories.job(type=job_type, task_groups=(factories.group(count=count, tasks=(task,), **group),))


def _cluster(job: Job, nodes: int = 3) -> PlannedCluster:
    cluster = PlannedCluster(nodes=nodes)
    cluster.register(job)
    cluster.settle(job)
    return cluster


def _told(cluster: PlannedCluster, job: Job | None = None) -> GroupExplanation:
    known = job or cluster.state.jobs["default", "web"]
    return why_not(cluster.state, known, now=cluster.now, seed=1).groups[0]


def _numbers(found: GroupExplanation) -> tuple[int, int, int, int]:
    return found.desired, found.running, found.placed, found.unplaced


def _deployment_of(cluster: PlannedCluster) -> str:
    found = cluster.state.latest_deployment("default", "web")
    assert found is not None
    return found.id


# -- one case after another --------------------------------------------------------------------------------------------


def test_work_of_a_batch_job_that_is_done_is_said_not_to_run_again() -> None:
    cluster = _cluster(job := _job(3, job_type=status.JOB_BATCH, reschedule_policy=NEVER))
    first, second, third = cluster.live(job)
    cluster.end(first, status.CLIENT_COMPLETE)
    found = _told(cluster)
    assert (_numbers(found), found.notes) == ((3, 2, 0, 0), ("1 has done its work and is not run again",))
    cluster.end(second, status.CLIENT_COMPLETE)
    cluster.end(third, status.CLIENT_FAILED)
    found = _told(cluster)
    assert (_numbers(found), found.blockers) == ((3, 0, 0, 0), ())
    assert found.notes == (
        "2 have done their work and are not run again",
        "1 failed and is not replaced, for the group is not rescheduled",
    )


def test_what_failed_tells_when_it_is_replaced_and_by_which_evaluation_once_there_is_one() -> None:
    cluster = _cluster(job := _job(2, reschedule_policy=AFTER_A_MINUTE))
    cluster.end(cluster.live(job)[0], status.CLIENT_FAILED)
    found = _told(cluster)
    assert _numbers(found) == (2, 1, 0, 0)
    (note,) = found.notes
    assert re.fullmatch(r"1 failed and waits for a delayed evaluation until 2023-11-14T22:1\d:\d\dZ", note)
    cluster.evaluate(job)
    (later,) = cluster.followups
    assert "delayed evaluation until" in _told(cluster).notes[0]
    cluster.do(c.UpsertEvaluations(evaluations=(later,)))
    assert f"1 failed and waits for delayed evaluation {later.id[:8]} until 2023-" in _told(cluster).notes[0]


def test_what_failed_for_good_is_said_to_have_used_up_its_attempts() -> None:
    cluster = _cluster(job := _job(1, job_type=status.JOB_BATCH, reschedule_policy=ONCE))
    for _ in range(2):
        cluster.end(cluster.live(job)[0], status.CLIENT_FAILED)
        cluster.now = UnixNano(cluster.now + seconds(60))
        cluster.settle(job)
    assert _told(cluster).notes == ("1 failed and is not replaced, for its reschedule attempts are used up",)


def test_what_failed_in_a_deployment_waits_for_what_becomes_of_that() -> None:
    cluster = PlannedCluster(nodes=3)
    cluster.register(job := _job(2, update=factories.update_strategy(max_parallel=2)))
    cluster.evaluate(job)
    cluster.clients_act(job, healthy=False)
    cluster.end(cluster.live(job)[0], status.CLIENT_FAILED)
    name = f"deployment {_deployment_of(cluster)[:8]}"
    assert _told(cluster).notes == (f"1 failed and waits for what becomes of {name}",)


def test_canaries_are_told_beside_those_that_are_wanted_and_others_wait_for_their_promotion() -> None:
    update = factories.update_strategy(canary=1)
    cluster = _cluster(_job(3, update=update))
    new = _job(3, 150, update=update)
    found = _told(cluster, new)
    assert _numbers(found) == (3, 3, 1, 0)
    assert found.notes == ("1 is a canary beyond the desired count, until the deployment is promoted",)
    cluster.register(new)
    cluster.settle(new)
    name = f"deployment {_deployment_of(cluster)[:8]}"
    beside = f"1 is a canary beyond the desired count, until {name} is promoted"
    assert (_numbers(_told(cluster)), _told(cluster).notes) == ((3, 4, 0, 0), (beside,))
    more = _told(cluster, replace(new, task_groups=(replace(new.task_groups[0], count=5),)))
    assert _numbers(more) == (5, 3, 1, 0)
    assert more.notes == (
        "1 is a canary beyond the desired count, until the deployment is promoted",
        "2 wait until the deployment is promoted",
    )


def test_what_is_replaced_as_soon_as_there_is_room_is_told_to_run_on() -> None:
    cluster = _cluster(_job(2, 1000, update=None), nodes=1)
    found = _told(cluster, _job(2, 3500, update=None))
    assert _numbers(found) == (2, 2, 0, 2)
    assert found.notes == ("2 of those there already run on until their replacements find room",)
    system = _cluster(_job(1, 1000, job_type=status.JOB_SYSTEM), nodes=1)
    found = _told(system, _job(1, 4500, job_type=status.JOB_SYSTEM))
    assert _numbers(found) == (1, 1, 0, 1)
    assert found.notes == ("1 of those there already runs on until its replacement finds room",)


def test_what_is_out_of_reach_is_told_when_another_stands_in_for_it() -> None:
    strategy = DisconnectStrategy(lost_after=seconds(3600), replace=True)
    cluster = _cluster(job := _job(1, disconnect=strategy))
    (alloc,) = cluster.live(job)
    cluster.do(c.SetNodeStatus(node_id=alloc.node_id, status="disconnected", updated_at=1))
    note = "1 of those there already is on a node that is out of reach, and another stands in for it"
    assert (_numbers(_told(cluster)), _told(cluster).notes) == ((1, 1, 1, 0), (note,))
    cluster.settle(job)
    assert (_numbers(_told(cluster)), _told(cluster).notes) == ((1, 2, 0, 0), (note,))


def test_what_waits_for_lost_clients_tells_until_when() -> None:
    strategy = DisconnectStrategy(stop_on_client_after=seconds(60), replace=True)
    cluster = _cluster(job := _job(1, disconnect=strategy))
    (alloc,) = cluster.live(job)
    cluster.do(c.SetNodeStatus(node_id=alloc.node_id, status="down", updated_at=1))
    for _ in range(2):
        found = _told(cluster)
        assert _numbers(found) == (1, 0, 0, 0)
        (note,) = found.notes
        ending = "by then the clients of those that are lost have stopped them"
        assert re.fullmatch(rf"1 waits for a delayed evaluation until 2023-11-14T22:1\d:\d\dZ: {ending}", note)
        cluster.evaluate(job)


def test_a_batch_gang_that_a_drain_has_left_too_few_members_says_how_many_are_missing() -> None:
    cluster = _cluster(job := _job(5, 2500, job_type=status.JOB_BATCH, reschedule_policy=NEVER, gang=Gang(min=3)))
    drained = DesiredTransition(migrate=True, migrate_disable_placement=True)
    cluster.do(c.SetDesiredTransitions(transitions={each.id: drained for each in cluster.live(job)}))
    cluster.settle(job)
    for number in (8, 9):
        cluster.do(c.RegisterNode(node=factories.node(factories.number_id(number, kind=1))))
    found = _told(cluster)
    assert _numbers(found) == (5, 0, 0, 0)
    assert found.notes == (
        "3 were stopped and are not run again",
        "2 wait for other members of the gang: 1 of the 3 that must run together is missing",
    )


def test_a_sysbatch_job_that_has_ended_on_some_nodes_wants_no_more_there() -> None:
    cluster = _cluster(job := _job(1, job_type=status.JOB_SYSBATCH), nodes=3)
    first, second, third = cluster.live(job)
    cluster.end(first, status.CLIENT_COMPLETE)
    found = _told(cluster)
    assert (_numbers(found), found.notes) == ((3, 2, 0, 0), ("1 has ended and is not run again",))
    for alloc in (second, third):
        cluster.end(alloc, status.CLIENT_FAILED)
    found = _told(cluster)
    assert (_numbers(found), found.blockers) == ((3, 0, 0, 0), ())
    assert found.notes == ("3 have ended and are not run again",)


# -- whatever has happened ---------------------------------------------------------------------------------------------


def _assert_adds_up(state: Snapshot, job: Job, now: UnixNano) -> set[str]:
    """The notes of all groups, without their numbers; each is true as far as the state shows."""
    trial = DryRuns(state, job, now=now, seed=1).unchanged
    texts = set()
    for group in job.task_groups if not job.stop else ():
        if group.count <= 0:
            continue
        found = count_differences(trial.attempt, group)
        told = trial.running(group.name) + len(trial.placed(group.name)) + trial.unplaced(group.name)
        if isinstance(trial.attempt, GenericAttempt):
            assert told + sum(gap.number for gap in found) == group.count
        for gap in found:
            _assert_true(trial, group, gap.number, gap.text)
            texts.add(re.sub(r"\d+", "n", gap.text))
    return texts


def _assert_true(trial: DryRun, group: TaskGroup, number: int, text: str) -> None:
    is_beside = "canar" in text or "there already" in text
    assert (number < 0) == is_beside and number, text
    assert text.startswith(f"{abs(number)} "), text
    machine = trial.attempt
    if not isinstance(machine, GenericAttempt):
        return
    deployment = machine.version_deployment
    state = deployment.task_groups.get(group.name) if deployment is not None else None
    if text.endswith(("which is failed", "which is paused")):
        assert deployment is not None and text.endswith(f"which is {deployment.status}")
    elif text.endswith("is promoted"):
        assert state is not None and not state.promoted
        is_asked = group.update is not None and group.update.canary > 0
        assert state.desired_canaries or state.placed_canaries or is_asked
    allocs = [alloc for alloc in machine.context.allocs if alloc.task_group == group.name]
    if "must run together" in text:
        # Members of a version before canaries are placed by the minimum of that version.
        groups = [group, *(alloc.job.group(group.name) for alloc in allocs if alloc.job is not None)]
        leasts = {min(each.least, group.count) for each in groups if each is not None and each.gang is not None}
        assert any(f"of the {least} that must" in text for least in leasts)
        is_leaving = (alloc.desired_transition.migrate for alloc in allocs)
        assert any(is_leaving) or any(alloc.client_status in ("failed", "lost", "complete") for alloc in allocs)
    if "out of reach" in text:
        ready = {node.id for node in machine.context.snapshot.nodes.values() if node.status == "ready"}
        away = (alloc.node_id not in ready or alloc.client_status == "unknown" for alloc in allocs)
        assert sum(away) >= -number
    if "done" in text:
        assert sum(alloc.client_status == "complete" for alloc in allocs) >= number
    if "failed and" in text:
        assert sum(alloc.client_status == "failed" for alloc in allocs) >= number


@settings(max_examples=CASES, deadline=None)
@given(st.integers(0, 2**32))
def test_whatever_the_log_leads_to_the_numbers_add_up(seed: int) -> None:
    state = Snapshot.empty()
    for step in random_history(Random(seed), 80):
        state = step.state
    for job in state.jobs.values():
        _assert_adds_up(state, job, UnixNano(factories.NOW + seconds(3600)))


def _assert_explained(found: GroupExplanation) -> None:
    """What finds no room has reasons, and a change is told with all that it needs."""
    assert bool(found.unplaced or found.runs_nowhere) <= bool(found.blockers or found.notes)
    assert all(blocker.nodes >= blocker.alone >= 0 for blocker in found.blockers)
    change = found.smallest_change
    assert change is None or (change.edits and change.places >= 0)


class _Life:
    """A job to which all sorts of things happen."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.cluster = PlannedCluster(nodes=4)
        self.kind = random.choice((status.JOB_SERVICE, status.JOB_SERVICE, status.JOB_BATCH, status.JOB_SYSBATCH))
        self.register()

    def register(self) -> None:
        random, is_service = self.random, self.kind == status.JOB_SERVICE
        update = factories.update_strategy(max_parallel=random.randrange(0, 3), canary=random.choice((0, 0, 1, 2)))
        strategy = DisconnectStrategy(
            lost_after=seconds(random.choice((0, 600))),
            stop_on_client_after=seconds(random.choice((0, 0, 90))),
            replace=random.random() < 0.7,
        )
        count = random.randrange(1, 6)
        job = _job(
            count,
            random.choice((100, 100, 1500, 2500)),
            job_type=self.kind,
            update=update if is_service else None,
            disconnect=strategy if is_service and random.random() < 0.6 else None,
            reschedule_policy=random.choice((AFTER_A_MINUTE, ONCE, NEVER)),
            gang=Gang(min=random.randrange(1, count + 1)) if random.random() < 0.2 else None,
        )
        job = replace(job, all_at_once=random.random() < 0.1)
        self.cluster.register(job)

    @property
    def job(self) -> Job:
        return self.cluster.state.jobs["default", "web"]

    def happen(self) -> None:
        """One more thing."""
        random, cluster = self.random, self.cluster
        live = cluster.live(self.job)
        node = random.choice(sorted(cluster.state.nodes.keys()))
        match random.randrange(12):
            case 0 | 1 if live:
                cluster.end(random.choice(live), random.choice((status.CLIENT_COMPLETE, status.CLIENT_FAILED)))
            case 2 | 3:
                kind = random.choice(("down", "disconnected", "ready", "ready"))
                cluster.do(c.SetNodeStatus(node_id=node, status=kind, updated_at=1))
            case 4 if live:
                alloc = random.choice(live)
                cluster.do(c.SetDesiredTransitions(transitions={alloc.id: self.transition(alloc)}, now=cluster.now))
            case 5:
                cluster.now = UnixNano(cluster.now + seconds(random.choice((10, 70, 700))))
            case 6:
                self.register()
            case 7 | 8:
                self.roll_out()
            case 9:
                cluster.clients_act(self.job, healthy=random.random() < 0.8)
            case _:
                cluster.evaluate(self.job)
                if cluster.followups:
                    cluster.do(c.UpsertEvaluations(evaluations=tuple(cluster.followups)))

    def transition(self, alloc: Allocation) -> DesiredTransition:
        is_batch = self.kind != status.JOB_SERVICE
        return DesiredTransition(migrate=True, migrate_disable_placement=is_batch and self.random.random() < 0.5)

    def roll_out(self) -> None:
        """Something becomes of the deployment."""
        latest = self.cluster.state.latest_deployment("default", "web")
        if latest is None or latest.status not in status.DEPLOYMENT_ACTIVE:
            return
        if self.random.random() < 0.4:
            promoting = c.PromoteDeployment(deployment_id=latest.id, now=self.cluster.now)
            self.cluster.state = apply(self.cluster.state, promoting, index=self.cluster.state.index + 1).state
            return
        told = self.random.choice(("failed", "paused", "running", "successful"))
        self.cluster.do(c.SetDeploymentStatus(update=DeploymentUpdate(deployment_id=latest.id, status=told)))


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_to_a_job_the_numbers_add_up(seed: int) -> None:
    random, texts = Random(seed), set()
    for _ in range(max(1, CASES // 8)):
        life = _Life(random)
        for _ in range(30):
            life.happen()
            texts |= _assert_adds_up(life.cluster.state, life.job, life.cluster.now)
            if random.random() < 0.1:
                _assert_explained(_told(life.cluster))
    assert len(texts) > 12, texts
