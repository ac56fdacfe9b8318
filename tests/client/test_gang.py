"""The rendezvous on a client: the task waits, gets its variables, and starts again with the others."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from yurt.client.hooks.gang_variables import HOSTFILE, hostfile_text, variables
from yurt.sdk.driver import ExitResult
from yurt.sdk.value import Duration, replace, seconds
from yurt.structs.alloc import Allocation
from yurt.structs.policies import Gang, Rendezvous
from yurt.structs.queueing.gang import GangAnswer, GangMember, GangQuery, GangRoster
from yurt.testing import factories
from yurt.testing.client_objects import messages, placed
from yurt.testing.fakes import FakeDriver, FakeServerPort, eventually

MEET = Rendezvous(framework="torch", port="meet", barrier=seconds(600))


def roster(
    alloc_id: str, generation: int = 1, *, nodes: tuple[str, ...] = ("n0", "n1"), devices: int = 2
) -> GangRoster:
    """A gang in which the allocation has the highest rank."""
    members = [
        GangMember(
            alloc_id=alloc_id if rank == len(nodes) - 1 else f"other-{rank}",
            name=f"job.web[{rank}]",
            node_id=node,
            address=f"10.0.0.{rank + 1}",
            port=20_000 + rank,
            devices=2,
        )
        for rank, node in enumerate(nodes)
    ]
    return GangRoster(namespace="default", job_id="job", group="web", generation=generation, members=tuple(members))


def member(node_id: str, barrier: Duration = MEET.barrier) -> Allocation:
    """An allocation of a gang."""
    group = factories.group(update=None, gang=Gang(rendezvous=replace(MEET, barrier=barrier)))
    return placed(node_id, job=factories.job(type="batch", task_groups=(group,)))


class FakeGang:
    """The servers' side: generations form, and end, when a test says so."""

    def __init__(self) -> None:
        self.queries: list[GangQuery] = []
        self.formed: asyncio.Queue[int] = asyncio.Queue()
        self.over: asyncio.Queue[str] = asyncio.Queue()

    async def answer(self, query: GangQuery) -> GangAnswer:
        self.queries.append(query)
        if query.is_running:
            return GangAnswer(status="over", reason=await self.over.get())
        return GangAnswer(status="formed", roster=roster(query.alloc_id, await self.formed.get()))


async def test_a_task_starts_when_its_gang_has_formed_and_again_when_a_member_is_lost(
    run_client, server: FakeServerPort, driver: FakeDriver, tmp_path: Path
) -> None:
    gang = FakeGang()
    server.gangs = gang.answer
    async with run_client() as client:
        alloc = member(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: gang.queries)
        assert not driver.host.tasks and gang.queries[0].generation == 0
        gang.formed.put_nowait(1)
        first, second = f"{alloc.id}/web/0", f"{alloc.id}/web/1"
        await eventually(lambda: first in driver.host.tasks)
        env = driver.host.tasks[first].request.env
        assert (env["RANK"], env["WORLD_SIZE"], env["MASTER_ADDR"], env["MASTER_PORT"]) == (
            "1",
            "2",
            "10.0.0.1",
            "20000",
        )
        hosts = tmp_path / "alloc" / alloc.id / "web" / "local" / HOSTFILE
        assert hosts.read_text() == "10.0.0.1 slots=2\n10.0.0.2 slots=2\n"
        assert env["YURT_GANG_HOSTFILE"].endswith(HOSTFILE)
        gang.over.put_nowait("job.web[0] is failed")
        gang.formed.put_nowait(2)
        await eventually(lambda: second in driver.host.tasks)
        assert driver.host.tasks[second].request.env["YURT_GANG_GENERATION"] == "2"
        waited = [query.generation for query in gang.queries if not query.is_running]
        assert waited == [0, 1]
        driver.finish(second, ExitResult(exit_code=0))
        await eventually(lambda: server.status_of(alloc.id) == "complete")
        told = messages(server, alloc)
        assert "Gang generation 1 formed: rank 1 of 2" in told
        assert "Gang generation is over: job.web[0] is failed" in told


async def test_a_gang_that_does_not_meet_fails_its_tasks_and_names_the_missing(
    run_client, server: FakeServerPort, driver: FakeDriver
) -> None:
    async def waits(query: GangQuery) -> GangAnswer:
        await asyncio.sleep(0.01)
        return GangAnswer(status="waiting", missing=("job.web[3]",), unplaced=1)

    server.gangs = waits
    async with run_client() as client:
        alloc = member(client.node_id, barrier=Duration(1))
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == "failed")
        text = "waits for job.web[3] to be set up; 1 more member is not placed"
        assert any("did not meet within its barrier" in each and text in each for each in messages(server, alloc))
        assert not driver.host.tasks


@pytest.mark.parametrize(
    ("framework", "expected"),
    [
        ("none", {}),
        ("jax", {"JAX_COORDINATOR_ADDRESS": "10.0.0.1:20000"}),
        ("ray", {"RAY_ADDRESS": "10.0.0.1:20000"}),
        ("mpi", {"PRTE_MCA_prte_default_hostfile": "/local/gang-hosts"}),
        ("torch", {"PET_NNODES": "3", "PET_NODE_RANK": "2", "PET_NPROC_PER_NODE": "2", "PET_MASTER_PORT": "20000"}),
    ],
)
def test_each_framework_has_its_variables(framework: str, expected: dict[str, str]) -> None:
    found = variables(
        roster("me", 4, nodes=("n0", "n1", "n1")), 2, replace(MEET, framework=framework), "/local/gang-hosts"
    )
    assert expected.items() <= found.items()
    own = {name: value for name, value in found.items() if not name.startswith("YURT_GANG_")}
    assert bool(own) == bool(expected)
    assert (found["YURT_GANG_LOCAL_RANK"], found["YURT_GANG_LOCAL_SIZE"]) == ("1", "2")
    assert (found["YURT_GANG_GPUS"], found["YURT_GANG_GPUS_PER_NODE"]) == ("6", "2")
    assert found["YURT_GANG_ADDRS"] == "10.0.0.1,10.0.0.2,10.0.0.3"


def test_the_head_of_a_ray_cluster_has_no_address_to_join() -> None:
    made = roster("me", nodes=("n0",))
    assert "RAY_ADDRESS" not in variables(made, 0, replace(MEET, framework="ray"), "")
    assert hostfile_text(replace(made, members=(replace(made.members[0], devices=0),))) == "10.0.0.1 slots=1\n"


def test_the_interface_is_that_of_collective_communication() -> None:
    found = variables(roster("me"), 1, replace(MEET, interface="ib0"), "")
    assert (found["NCCL_SOCKET_IFNAME"], found["GLOO_SOCKET_IFNAME"]) == ("ib0", "ib0")
