"""A queue with guarantees: borrowers fill the pool, the entitled come first and get it back, over real server parts."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from yurt.sdk.value import replace, seconds
from yurt.server.queueing import guarantee_ledger
from yurt.server.queueing.pool_view import PoolView
from yurt.server.queueing.report import places
from yurt.state.quota_tree import weights_of_namespaces
from yurt.storage.memory import MemoryLog
from yurt.structs.cluster import Namespace, NodePool
from yurt.structs.commands import UpsertNamespaces, UpsertNodePools, UpsertQuotas
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.queueing.batch_queue import BatchQueue, FairShareQueue, FifoQueue
from yurt.structs.quota import QuotaSpec
from yurt.structs.resources import Resources
from yurt.testing import factories
from yurt.testing.fakes import FakeEnv
from yurt.testing.quotas import guaranteed, quota
from yurt.testing.replica import Replica


@pytest.fixture(autouse=True, params=[0, guarantee_ledger.FEW_OPEN], ids=["in order", "few open"])
def few_open(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to find the first jobs give the same decisions."""
    monkeypatch.setattr(guarantee_ledger, "FEW_OPEN", request.param)


POOL = "batch"
SLOT = 1000
"""MHz of one slot; the node has four."""
PROTECTION_S = 20


def share(name: str, slots: int) -> QuotaSpec:
    spec = replace(quota(name, cpu=4 * SLOT), protection=seconds(PROTECTION_S))
    return guaranteed(spec, cpu=slots * SLOT) if slots else spec


def batch_job(id: str, team: str, count: int = 1, **changes: Any) -> Job:
    made = factories.job(id, type="batch", namespace=team, node_pool=POOL, **changes)
    task = replace(made.task_groups[0].tasks[0], resources=Resources(cpu=SLOT, memory_mb=64))
    return replace(made, task_groups=(replace(made.task_groups[0], tasks=(task,), count=count),))


async def prepare(bench: Any, queue: BatchQueue | None) -> None:
    """Two teams with quotas, and a pool with a node of four slots."""
    propose = bench.server.replica.propose
    await propose(UpsertQuotas(quotas=(share("a", 1), share("b", 2))))
    await propose(UpsertNamespaces(namespaces=(Namespace(name="a", quota="a"), Namespace(name="b", quota="b"))))
    await propose(UpsertNodePools(pools=(NodePool(name=POOL, batch_queue=queue),), now=bench.env.now()))
    await bench.add_node(node_pool=POOL)


async def register(bench: Any, *jobs: Job) -> None:
    for job in jobs:
        await bench.pass_time(0.5, *bench.server.state.nodes.values())
        await bench.server.resources.jobs.register(replace(job, submit_time=bench.env.now()))


def staying(bench: Any) -> list[str]:
    """The jobs of allocations that nobody has asked to end, sorted."""
    return sorted(alloc.job_id for alloc in bench.server.state.allocs.values() if alloc.desired_status == "run")


@pytest.mark.parametrize(
    "queue", [BatchQueue(fair_share=FairShareQueue(half_life=seconds(3600))), BatchQueue(fifo=FifoQueue()), None]
)
async def test_what_is_lent_is_given_back_when_its_protection_ends(bench: Any, queue: BatchQueue | None) -> None:
    await prepare(bench, queue)
    await register(bench, batch_job("borrower", "a", 4))
    await bench.until(lambda: staying(bench) == ["borrower"] * 4)
    await register(bench, batch_job("more", "a", priority=90), batch_job("owner", "b", 2))
    await bench.pass_time(2, *bench.server.state.nodes.values())
    assert staying(bench) == ["borrower"] * 4, "the borrower is protected"
    if queue is not None:
        shown = places(bench.server.state, POOL, bench.env.now(), region="global")
        assert [place.entry.job.id for place in shown] == ["owner", "more"], "a guarantee comes before a priority"
        assert 'within the guarantee of quota "b"' in shown[0].reason
    await bench.pass_time(PROTECTION_S, *bench.server.state.nodes.values())
    await bench.until(lambda: staying(bench) == ["borrower", "borrower", "owner", "owner"])
    ended = [alloc for alloc in bench.server.state.allocs.values() if alloc.desired_status != "run"]
    assert all(alloc.desired_description.startswith('Reclaimed for the guarantee of quota "b"') for alloc in ended)


QUEUES = (BatchQueue(fair_share=FairShareQueue(half_life=seconds(3600))), BatchQueue(fifo=FifoQueue()), None)


@pytest.mark.parametrize("queue", QUEUES)
@pytest.mark.parametrize("change", ["guarantee", "protection", "namespace"])
async def test_a_job_that_waits_reclaims_once_its_guarantee_comes(
    bench: Any, queue: BatchQueue | None, change: str
) -> None:
    """It was blocked for want of capacity, by no quota; only the change can wake it."""
    await prepare(bench, queue)
    propose = bench.server.replica.propose
    long = replace(share("a", 1), protection=seconds(7200))
    await propose(UpsertQuotas(quotas=(long if change == "protection" else share("a", 1), share("none", 0))))
    if change == "guarantee":
        await propose(UpsertQuotas(quotas=(share("b", 0),)))
    if change == "namespace":
        await propose(UpsertNamespaces(namespaces=(Namespace(name="b", quota="none"),)))
    await register(bench, batch_job("borrower", "a", 4))
    await bench.until(lambda: staying(bench) == ["borrower"] * 4)
    await register(bench, batch_job("owner", "b", 2))
    await bench.pass_time(PROTECTION_S, *bench.server.state.nodes.values())
    assert staying(bench) == ["borrower"] * 4
    if change == "namespace":
        await propose(UpsertNamespaces(namespaces=(Namespace(name="b", quota="b"),)))
    else:
        await propose(UpsertQuotas(quotas=(share("a", 1), share("b", 2))))
    await bench.until(lambda: staying(bench) == ["borrower", "borrower", "owner", "owner"])


@pytest.mark.parametrize("queue", QUEUES)
@pytest.mark.parametrize("is_decided", [False, True], ids=["before the decision", "before the victims end"])
async def test_a_new_leader_goes_on_with_a_reclaim(
    run_server: Any, queue: BatchQueue | None, *, is_decided: bool
) -> None:
    """Two borrowers end for the owner, whichever leader decides it and however often the leader changes."""
    log, env = MemoryLog(), FakeEnv()
    async with run_server(log, env) as bench:
        await prepare(bench, queue)
        await register(bench, batch_job("borrower", "a", 4))
        await bench.until(lambda: staying(bench) == ["borrower"] * 4)
        await register(bench, batch_job("owner", "b", 2))
        if is_decided:
            await bench.pass_time(PROTECTION_S, *bench.server.state.nodes.values())
            await bench.until(lambda: staying(bench) == ["borrower", "borrower", "owner", "owner"])
        before = ended(bench)
        assert len(before) == (2 if is_decided else 0)
    for _ in range(2):
        async with run_server(log, env) as bench:
            for node in bench.server.state.nodes.values():
                await bench.server.clients.calls.heartbeat(node.id, "ready")
            await bench.pass_time(2 * PROTECTION_S, *bench.server.state.nodes.values())
            await bench.until(lambda bench=bench: staying(bench) == ["borrower", "borrower", "owner", "owner"])
            assert len(ended(bench)) == 2 and ended(bench) >= before
            before = ended(bench)


def ended(bench: Any) -> set[str]:
    """The ids of allocations that were asked to end."""
    return {alloc.id for alloc in bench.server.state.allocs.values() if alloc.desired_status != "run"}


class ThreadEnv(FakeEnv):
    """Notes the evaluations whose attempts are made in a thread."""

    def __init__(self) -> None:
        super().__init__()
        self.attempted: list[Evaluation] = []

    async def in_thread(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        if isinstance(function, partial):
            self.attempted += [each for each in function.args if isinstance(each, Evaluation)]
        return await super().in_thread(function, *args, **kwargs)


async def test_attempts_that_may_reclaim_are_made_beside_the_event_loop(run_server: Any) -> None:
    env = ThreadEnv()
    async with run_server(env=env) as bench:
        await prepare(bench, None)
        await register(bench, batch_job("plain", "default"), batch_job("owner", "b"))
        await bench.until(lambda: staying(bench) == ["owner", "plain"])
    assert {evaluation.job_id for evaluation in env.attempted} == {"owner"}


def test_the_weights_of_namespaces_follow_from_the_tree() -> None:
    """Of the top quota's 3, `low` gets two thirds, which two namespaces share; `plain` says nothing of weights."""
    replica = Replica()
    specs = (
        replace(quota("top"), weight=3.0), replace(quota("low", parent="top"), weight=2.0), quota("next", parent="top"),
        quota("plain"),
    )  # fmt: skip
    names = {"a": "low", "b": "low", "c": "next", "d": "plain", "e": ""}
    namespaces = tuple(Namespace(name=name, quota=spec) for name, spec in names.items())
    replica.apply(UpsertQuotas(quotas=specs), UpsertNamespaces(namespaces=namespaces))
    assert weights_of_namespaces(replica.state) == {"a": 1000, "b": 1000, "c": 1000}
    fair = BatchQueue(fair_share=FairShareQueue(weights={"a": 5.0}))
    view = PoolView(replica.state, POOL, fair)
    assert view.weights == {("a",): 5000, ("b",): 1000, ("c",): 1000} and view.weights is view.weights
