"""Three servers on one log: leaders come and go, appends tell nothing, servers die, lag and are cut off.

After every step, for all servers: what was acknowledged is in the log (A1), states at the same index are the same (A2),
at most one server that knows the newest term leads (A3), no index goes down (A5), every job was stored with its
evaluation (B1), and each evaluation that is not over is in exactly one place at the leader, of each job at most one at
a worker and at most one blocked (B2, B3). In the end the faults stop and the cluster settles (A4, B5, D1, D8).
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest
from yurt.broker import EvalBroker
from yurt.fsm.snapshot import digest
from yurt.server.server import Server
from yurt.structs import status
from yurt.structs.commands import RegisterJob
from yurt.testing.fakes import FakeEnv, eventually, settle
from yurt.testing.nightly import is_nightly
from yurt.testing.simulation.faults import ServerFaults, calm, leader_of
from yurt.testing.simulation.models import SimulatedCluster, check_calm
from yurt.testing.simulation.servers import NAMES, ServerGroup

STEPS, SEEDS = 30, 200 if is_nightly() else 2
CALM_S = 400.0


class Watch:
    """What must hold of all servers at any time."""

    def __init__(self, group: ServerGroup, cluster: SimulatedCluster) -> None:
        self.group = group
        self.cluster = cluster
        self.indexes: dict[int, int] = {}
        self.commands: dict[int, object] = {}

    def check(self) -> None:
        """Everything, of every server."""
        self.check_log()
        by_index: dict[int, set[str]] = {}
        for server in self.group.servers.values():
            assert server.state.index >= self.indexes.get(id(server), 0), "an index went down"
            self.indexes[id(server)] = server.state.index
            by_index.setdefault(server.state.index, set()).add(digest(server.state))
        assert all(len(found) == 1 for found in by_index.values()), "states differ at one index"
        leading = [server for name, server in self.group.servers.items() if server.is_leader and self.hears(name)]
        assert len(leading) <= 1
        for server in leading:
            assert self.group.log.leader == server.config.name
            check_places(server)

    def hears(self, name: str) -> bool:
        """The server knows who leads."""
        return name not in self.group.cut_off and self.group.view(name).news.is_set()

    def check_log(self) -> None:
        """Nothing in the log changes any more, what was acknowledged is there, and jobs come with evaluations."""
        log = self.group.log
        for entry in log.entries:
            for index, command in enumerate(entry.commands, entry.first_index):
                assert self.commands.setdefault(index, command) is command
                assert not isinstance(command, RegisterJob) or command.evaluation is not None or command.job.stop
        for index, job in self.cluster.registered.items():
            stored = self.commands.get(index)
            assert isinstance(stored, RegisterJob) and stored.job.id == job.id, "an acknowledged job is not in the log"


def check_places(server: Server) -> None:
    """Where the leader has the evaluations that are not over."""
    assert server.term is not None
    broker: EvalBroker = server.term.queue.broker
    pending = server.state.evals.where("status", status.EVAL_PENDING)
    assert all(broker.place(each.id) for each in pending), "a pending evaluation is nowhere"
    held = Counter((each.evaluation.namespace, each.evaluation.job_id) for each in broker._outstanding.values())
    assert all(count == 1 for count in held.values()), "two workers have evaluations of one job"
    blocked = server.state.evals.where("status", status.EVAL_BLOCKED)
    jobs = Counter((each.namespace, each.job_id) for each in blocked)
    waiting = len(server.term.queue.blocked)
    assert waiting <= len(jobs), "a job waits twice"


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real clock matters here only to those who wait for a leader."""
    for place in (
        "clients.leader_calls.LEADER_WAIT_S", "clients.leader_calls.LOOK_S", "clients.node_service.KNOWN_LIMIT_S",
    ):  # fmt: skip
        monkeypatch.setattr(f"yurt.server.{place}", 0.01)
    monkeypatch.setattr("yurt.server.scheduling.worker.INDEX_WAIT_S", 0.01)
    monkeypatch.setattr("yurt.server.scheduling.work_sources.BATCH", 2)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(SEEDS))
async def test_servers_that_fail_in_turn_lose_nothing_and_agree(seed: int) -> None:
    env = FakeEnv(seed)
    group = ServerGroup(env, trailing_entries=5)
    async with group.running():
        await eventually(lambda: group[NAMES[0]].is_leader)
        chance = random.Random(f"reach {seed}")
        cluster = SimulatedCluster(
            lambda: leader_of(group),
            lambda: group[chance.choice(sorted(set(group.servers) - group.cut_off))],
            env,
            seed,
        )
        faults, watch = ServerFaults(group, seed), Watch(group, cluster)
        for _ in range(STEPS):
            await faults.strike()
            await cluster.step(faults=True)
            watch.check()

        await calm(group)
        calm_until = env.monotonic() + CALM_S
        while env.monotonic() < calm_until:
            await cluster.step(faults=False)
        await settle()

        watch.check()
        check_calm(cluster.state, env.now())
        assert len({server.state.index for server in group.servers.values()}) == 1
        names = [task.get_name() for task in asyncio.all_tasks()]
        assert [names.count(name) for name in ("leader", "follower", "plan applier")] == [1, 2, 1]
        assert len(faults.seen) >= 4 and cluster.registered, f"the simulation did too little: {faults.seen}"
