"""Members of a gang wait for each other at the leader, and learn when a generation is over."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from yurt.sdk.errors import Invalid, NotFound, PermissionDenied, Unavailable
from yurt.sdk.value import replace
from yurt.structs.alloc import AllocatedResources, AllocatedSharedResources, Allocation
from yurt.structs.commands import AllocUpdate, ApplyPlan, DeregisterJob, RegisterJob, UpdateAllocsFromClient
from yurt.structs.network import PortMapping
from yurt.structs.plan import Placement, Plan
from yurt.structs.policies import Gang, Rendezvous
from yurt.structs.queueing.gang import LATEST, GangAnswer, GangQuery
from yurt.testing import factories

KEY = ("default", "train", "web")


def resources(number: int) -> AllocatedResources:
    ports = (PortMapping(label="meet", value=20_000 + number, host_ip=f"10.0.0.{number + 1}"),)
    return AllocatedResources(shared=AllocatedSharedResources(ports=ports))


class Members:
    """A gang of allocations on one node, and their calls."""

    def __init__(self, bench: Any, node: Any, count: int, **gang: Any) -> None:
        self.bench, self.node, self.generation = bench, node, 0
        block = Gang(**gang, rendezvous=Rendezvous(framework="torch", port="meet"))
        group = factories.group(count=count, gang=block, update=None)
        self.job = factories.job("train", type="batch", task_groups=(group,))

    async def place(self, *indexes: int) -> list[str]:
        """Place allocations with these indexes in their names."""
        replica = self.bench.server.replica
        if self.job.key not in replica.state.jobs:
            await replica.propose(RegisterJob(job=self.job))
        job = replica.state.jobs[self.job.key]
        placed = [
            Placement(
                id=factories.new_id(), name=f"train.web[{index}]", task_group="web", node_id=self.node.id,
                node_name=self.node.name, job_version=job.version, resources=resources(index),
            )
            for index in indexes
        ]  # fmt: skip
        plan = Plan(namespace="default", job_id="train", eval_id=factories.new_id(), placements=tuple(placed))
        await replica.propose(ApplyPlan(plan=plan))
        return [each.id for each in placed]

    def follow(self, alloc_id: str, generation: int = 0, **changes: Any) -> asyncio.Task[GangAnswer]:
        """A member's call, in the background."""
        query = GangQuery(node_id=self.node.id, alloc_id=alloc_id, generation=generation, **changes)
        return asyncio.get_running_loop().create_task(self.bench.server.clients.calls.follow_gang(query))

    async def meet(self, alloc_ids: list[str], generation: int = 0) -> list[GangAnswer]:
        """All of them wait, and a generation forms."""
        async with asyncio.timeout(30):
            answers = await asyncio.gather(*(self.follow(each, generation) for each in alloc_ids))
        assert {answer.status for answer in answers} == {"formed"}
        assert len({answer.roster for answer in answers}) == 1 and answers[0].roster is not None
        self.generation = answers[0].roster.generation
        return list(answers)

    async def end(self, alloc_id: str, status: str) -> None:
        """An allocation ends, as its client reports."""
        update = AllocUpdate(id=alloc_id, node_id=self.node.id, client_status=status)
        await self.bench.server.replica.propose(UpdateAllocsFromClient(updates=(update,)))

    def alloc(self, alloc_id: str) -> Allocation:
        return self.bench.server.state.allocs[alloc_id]


@pytest.fixture
async def gang(bench: Any) -> Members:
    return Members(bench, await bench.add_node(), 3)


async def test_nobody_starts_before_all_are_there_and_all_get_the_same_ranks(gang: Members) -> None:
    last, first, middle = await gang.place(2, 0, 1)
    early = gang.follow(last)
    await asyncio.sleep(0.05)
    assert not early.done()
    other = gang.follow(middle)
    await asyncio.sleep(0.05)
    assert not early.done() and not other.done()
    (answer,) = await gang.meet([first])
    roster = answer.roster
    assert roster is not None and (await early).roster == (await other).roster == roster
    assert [member.name for member in roster.members] == [f"train.web[{index}]" for index in range(3)]
    assert (roster.members[0].address, roster.members[0].port) == ("10.0.0.1", 20_000)
    assert roster.generation == roster.modify_index and gang.bench.server.state.gang_rosters.get(KEY) == roster


async def test_who_waits_is_told_what_is_missing(gang: Members) -> None:
    first, _ = await gang.place(0, 1)
    answer = await gang.follow(first, timeout_s=0.0)
    assert (answer.status, answer.missing, answer.unplaced) == ("waiting", ("train.web[1]",), 1)


async def test_a_lost_member_ends_the_generation_and_its_replacement_gets_its_rank(gang: Members) -> None:
    allocs = await gang.place(0, 1, 2)
    await gang.meet(allocs)
    watches = [gang.follow(each, gang.generation, is_running=True) for each in allocs]
    await asyncio.sleep(0.05)
    assert not any(watch.done() for watch in watches)
    await gang.end(allocs[1], "failed")
    found = [await watches[0], await watches[2]]
    assert {(each.status, each.reason) for each in found} == {("over", "train.web[1] is failed")}
    waiting = [gang.follow(allocs[0], gang.generation), gang.follow(allocs[2], gang.generation)]
    await asyncio.sleep(0.05)
    assert not any(each.done() for each in waiting), "as many as before are needed"
    (replacement,) = await gang.place(1)
    (answer,) = await gang.meet([replacement])
    assert answer.roster is not None
    assert [member.alloc_id for member in answer.roster.members] == [allocs[0], replacement, allocs[2]]
    assert {(await each).status for each in waiting} == {"formed"}
    watches[1].cancel()


async def test_a_member_that_starts_again_ends_the_generation_for_all(gang: Members) -> None:
    allocs = await gang.place(0, 1, 2)
    await gang.meet(allocs)
    watch = gang.follow(allocs[0], gang.generation, is_running=True)
    again = gang.follow(allocs[2], gang.generation)
    assert (await watch).reason == "train.web[2] starts again"
    first = gang.generation
    await gang.meet(allocs[:2], first)
    assert gang.generation > first
    assert (await again).status == "formed"


async def test_a_client_that_forgot_its_generation_does_not_join_the_one_that_runs(gang: Members) -> None:
    allocs = await gang.place(0, 1, 2)
    await gang.meet(allocs)
    answer = await gang.follow(allocs[1], LATEST, timeout_s=0.0)
    assert (answer.status, answer.generation) == ("waiting", gang.generation)
    running = await gang.follow(allocs[1], LATEST, is_running=True, timeout_s=0.0)
    assert (running.status, running.generation) == ("waiting", gang.generation)


async def test_members_that_completed_are_not_missed(gang: Members) -> None:
    allocs = await gang.place(0, 1, 2)
    await gang.meet(allocs)
    watch = gang.follow(allocs[1], gang.generation, is_running=True)
    await gang.end(allocs[0], "complete")
    await asyncio.sleep(0.05)
    assert not watch.done()
    watch.cancel()


async def test_an_elastic_gang_goes_on_with_less_and_takes_new_members_in(bench: Any) -> None:
    gang = Members(bench, await bench.add_node(), 3, min=2, elastic=True)
    allocs = await gang.place(0, 1, 2)
    await gang.meet(allocs)
    await gang.end(allocs[0], "failed")
    answers = await gang.meet(allocs[1:], gang.generation)
    assert answers[0].roster is not None and len(answers[0].roster.members) == 2
    watch = gang.follow(allocs[1], gang.generation, is_running=True)
    (new,) = await gang.place(0)
    joining = gang.follow(new)
    assert (await watch).reason == "train.web[0] joins"
    answers = await gang.meet(allocs[1:], gang.generation)
    assert answers[0].roster is not None and answers[0].roster.members[0].alloc_id == new
    assert (await joining).status == "formed"


async def test_a_new_member_of_another_gang_waits_for_the_end_of_the_generation(bench: Any) -> None:
    gang = Members(bench, await bench.add_node(), 3, min=2)
    await gang.meet(await gang.place(0, 1))
    (late,) = await gang.place(2)
    answer = await gang.follow(late, timeout_s=0.0)
    assert (answer.status, answer.is_busy) == ("waiting", True)


async def test_a_server_that_leads_no_more_sends_its_callers_away(gang: Members) -> None:
    (first,) = await gang.place(0)
    rendezvous = gang.bench.server.resources.gangs.get()
    waiting = asyncio.ensure_future(rendezvous.follow(GangQuery(node_id=gang.node.id, alloc_id=first)))
    await asyncio.sleep(0.05)
    rendezvous.end_term()
    with pytest.raises(Unavailable):
        await waiting


async def test_a_node_asks_for_its_own_members_only(gang: Members) -> None:
    (first,) = await gang.place(0)
    calls = gang.bench.server.clients.calls
    with pytest.raises(NotFound):
        await calls.follow_gang(GangQuery(node_id=gang.node.id, alloc_id=factories.new_id()))
    with pytest.raises(PermissionDenied):
        await calls.follow_gang(GangQuery(node_id=factories.new_id(), alloc_id=first))
    plain = replace(gang.job, id="plain", name="plain", task_groups=(factories.group(update=None),))
    other = Members(gang.bench, gang.node, 1)
    other.job = replace(plain, id="train")
    await gang.bench.server.replica.propose(RegisterJob(job=other.job))
    (alone,) = await other.place(5)
    with pytest.raises(Invalid, match="no rendezvous"):
        await calls.follow_gang(GangQuery(node_id=gang.node.id, alloc_id=alone))


async def test_a_new_version_of_a_job_begins_with_the_minimum_again(gang: Members) -> None:
    allocs = await gang.place(0, 1, 2)
    await gang.meet(allocs)
    for alloc_id in allocs:
        await gang.end(alloc_id, "complete")
    group = replace(gang.job.task_groups[0], count=2)
    gang.job = replace(gang.job, task_groups=(group,), priority=60)
    await gang.bench.server.replica.propose(RegisterJob(job=gang.job))
    first, second = await gang.place(0, 1)
    told = await gang.follow(first, timeout_s=0.0)
    assert (told.is_busy, told.missing) == (False, ("train.web[1]",)), "its barrier holds"
    early = gang.follow(first)
    await asyncio.sleep(0.05)
    assert not early.done()
    (answer,) = await gang.meet([second])
    assert answer.roster is not None and len(answer.roster.members) == 2 and (await early).roster == answer.roster


async def test_many_members_that_wait_cost_one_command(bench: Any) -> None:
    gang = Members(bench, await bench.add_node(), 40)
    allocs = await gang.place(*range(40))
    index = bench.server.state.index
    await gang.meet(allocs)
    assert bench.server.state.index == index + 1


async def test_members_that_are_added_to_a_gang_that_runs_do_not_wait_for_ever(gang: Members) -> None:
    allocs = await gang.place(0, 1, 2)
    await gang.meet(allocs)
    group = replace(gang.job.task_groups[0], count=5)
    gang.job = replace(gang.job, task_groups=(group,))
    await gang.bench.server.replica.propose(RegisterJob(job=gang.job))
    late = await gang.place(3, 4)
    assert (await gang.follow(late[0], timeout_s=0.0)).is_busy
    for alloc_id in allocs:
        await gang.end(alloc_id, "complete")
    answer = await gang.follow(late[0], timeout_s=0.0)
    assert (answer.is_busy, answer.unplaced) == (False, 3), "alone they are too few, and their barrier says so"


async def test_who_ran_in_a_generation_that_is_forgotten_begins_anew(gang: Members) -> None:
    allocs = await gang.place(0, 1, 2)
    await gang.meet(allocs)
    watch = gang.follow(allocs[0], gang.generation, is_running=True)
    await gang.bench.server.replica.propose(DeregisterJob(namespace="default", job_id="train", purge=True))
    assert (await watch).status == "over"
