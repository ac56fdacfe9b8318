"""The life of nodes under random orders of calls, faults and times, with the invariants checked at every index.

Clients call as they please: late, twice, out of order, or not at all; commands wait in the log while others are
computed; plans are made on states that have moved on. Then all faults stop, clients keep to the protocol, time passes,
and every job must have what it asks for, once (invariants A2, A5, A6, B2, B3, B5, D1 to D4, D7, E1, E2, E7).
"""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from yurt import scheduler
from yurt.sdk.value import Duration, UnixNano, replace, seconds
from yurt.state import Changes, Snapshot
from yurt.structs import commands as c
from yurt.structs import status
from yurt.structs.alloc import Allocation
from yurt.structs.job import Job
from yurt.structs.node import DrainSpec, Node
from yurt.structs.policies import DisconnectStrategy, MigrateStrategy, ReschedulePolicy
from yurt.structs.predicates import is_client_terminal, is_ready, is_terminal
from yurt.structs.rpc import AllocPull
from yurt.testing import factories
from yurt.testing.cluster_models.node_life import NotKnown, ReportRefused, World, with_count
from yurt.testing.cluster_models.node_life_clients import SimulatedClient
from yurt.testing.cluster_models.watchers import Watchers, row_watcher, table_watcher
from yurt.testing.nightly import is_nightly
from yurt.testing.replica import Replica

NODES = 4
STEP_COUNT, EXAMPLES = 60, 150
CALM_STEP_S, CALM_ROUNDS = 12.0, 28
NAMES = ("web", "api", "work", "each", "once")
KINDS = {"web": "service", "api": "service", "work": "batch", "each": "system", "once": "sysbatch"}
SPEC_OF_DRAIN = {
    "force": DrainSpec(deadline=Duration(-1)),
    "soon": DrainSpec(deadline=seconds(60)),
    "never": DrainSpec(),
    "ignore": DrainSpec(deadline=seconds(60), ignore_system_jobs=True),
}


def is_return_due(alloc: Allocation) -> bool:
    """Nobody has decided yet between it and what replaced it."""
    return bool(alloc.alloc_states) and alloc.alloc_states[-1].value == status.CLIENT_UNKNOWN


def counted(state: Snapshot, job_id: str) -> list[Allocation]:
    """The allocations that hold a place of the job at present."""
    live = (alloc for alloc in state.allocs_of_job("default", job_id) if not is_terminal(alloc))
    return [alloc for alloc in live if alloc.client_status != status.CLIENT_UNKNOWN and not is_return_due(alloc)]


class Rules:
    """What holds at every index."""

    def __init__(self) -> None:
        self.done: set[tuple[Any, ...]] = set()
        self.stopped: set[str] = set()
        self.deleted: set[str] = set()
        self.watchers = Watchers()
        for table in ("nodes", "jobs", "allocs", "evals"):
            for pace in (1, 7):
                self.watchers.add(table_watcher(table, pace=pace))
        for number in range(NODES):
            self.watchers.add(row_watcher("nodes", factories.number_id(number, 0xA), pace=2))
        for name in NAMES:
            self.watchers.add(row_watcher("jobs", ("default", name), pace=2))

    def may_stop(self, alloc_id: str) -> None:
        """E2: a client ends a task only when the servers have wanted that."""
        assert alloc_id in self.stopped, "a client stops what the servers never wanted stopped"

    def may_forget(self, alloc_id: str) -> None:
        """E2: what is not listed any more is gone from the servers' state."""
        assert alloc_id in self.deleted, "a client forgets what the servers never deleted"

    def observe(self, before: Snapshot, command: c.AnyCommand, changes: Changes, after: Snapshot) -> None:
        assert after.index == before.index + 1
        self.watchers.observe(changes, after)
        for change in changes:
            if change.table == "allocs" and change.after is None:
                self.deleted.add(change.key)
            elif change.table == "allocs" and change.after.desired_status != status.DESIRED_RUN:
                self.stopped.add(change.key)
        for change in changes:
            if change.table == "nodes":
                self.node_moved(before, command, change.before, change.after)
            elif change.table == "allocs" and change.after is not None:
                self.alloc_moved(before, command, change.before, change.after)
        if isinstance(command, c.ApplyPlan):
            self.plan_applied(after, command)

    def node_moved(self, state: Snapshot, command: c.AnyCommand, before: Node | None, after: Node | None) -> None:
        """E1, and the status machine of nodes."""
        if after is None:
            return
        was = before.status if before is not None else status.NODE_INIT
        if isinstance(command, c.RegisterNode):
            assert after.status == was, "a registration set a status"
        if after.status == status.NODE_READY and was != status.NODE_READY:
            assert was != status.NODE_DISCONNECTED, "from disconnected to ready at once"
            has_reported = after.last_alloc_update_index > (before.last_missed_heartbeat_index if before else 0)
            left = [alloc for alloc in state.allocs_of_node(after.id) if not is_terminal(alloc)]
            assert has_reported or not left, "ready before its allocations were reported"
        if before is not None and before.drain_strategy is not None and after.drain_strategy is None:
            self.drain_ended(state, before, command)

    def drain_ended(self, state: Snapshot, node: Node, command: c.AnyCommand) -> None:
        """D7."""
        assert isinstance(command, c.SetNodeDrain)
        if command.mark_eligible or node.drain_strategy is None:
            return
        kinds = {"system"} if node.drain_strategy.drain_spec.ignore_system_jobs else set()
        left = [a for a in state.allocs_of_node(node.id) if a.job is not None and a.job.type not in kinds]
        assert not [a for a in left if a.client_status in (status.CLIENT_RUNNING, status.CLIENT_PENDING)]

    def alloc_moved(self, state: Snapshot, command: c.AnyCommand, before: Allocation | None, after: Allocation) -> None:
        """E7, D4, and that nodes out of reach say nothing."""
        if before is None:
            key = slot(after)
            assert after.job is None or after.job.type != "batch" or key not in self.done, "work done is done again"
            return
        if before.client_status == after.client_status:
            return
        assert not is_client_terminal(before), f"{before.client_status} became {after.client_status}"
        is_told = isinstance(command, c.UpdateAllocsFromClient)
        assert is_told != (after.client_status in (status.CLIENT_UNKNOWN, status.CLIENT_LOST))
        if is_told:
            node = state.nodes.get(after.node_id)
            assert node is None or node.status not in status.NODE_UNRESPONSIVE, "a node out of reach was believed"
        if after.client_status == status.CLIENT_COMPLETE and after.desired_status == status.DESIRED_RUN:
            self.done.add(slot(after))

    def plan_applied(self, state: Snapshot, command: c.ApplyPlan) -> None:
        """D2, and no more placements than there are places."""
        plan = command.plan
        job = state.jobs.get((plan.namespace, plan.job_id))
        if job is None or not plan.placements:
            return
        live = counted(state, job.id)
        if job.type in (status.JOB_SYSTEM, status.JOB_SYSBATCH):
            places = Counter(alloc.node_id for alloc in live)
            assert max(places.values(), default=0) <= 1, "two allocations of a system job on one node"
            return
        names = Counter(alloc.name for alloc in live)
        assert max(names.values(), default=0) <= 1, f"a name is held twice: {names}"
        versions = {placement.job_version for placement in plan.placements} | {job.version}
        known = [state.version(job.namespace, job.id, version) for version in versions]
        most = max(each.task_groups[0].count for each in known if each is not None)
        assert len(live) <= most, f"{len(live)} allocations of {job.id}, {most} are wanted"


def slot(alloc: Allocation) -> tuple[Any, ...]:
    """The work that an allocation is for."""
    assert alloc.job is not None
    return (alloc.job_id, alloc.job.create_index, alloc.job.version, alloc.name)


def check_queues(world: World) -> None:
    """Each evaluation that is not over is in exactly one place (B2), and a job has at most one blocked one (B3)."""
    queue = world.queue
    superseded = {each.evaluation.id for each in queue.blocked._superseded}
    moving = world.evals_on_their_way
    for evaluation in world.state.evals.values():
        if evaluation.id in moving or evaluation.status not in (status.EVAL_PENDING, status.EVAL_BLOCKED):
            continue
        places = [queue.broker.place(evaluation.id) or None, evaluation.id in superseded or None]
        places.append(queue.blocked.holds(evaluation.id) or None)
        found = [place for place in places if place]
        assert found, f"evaluation {evaluation.id} ({evaluation.status}) is nowhere"
        assert len(found) == 1 or found[0] == "outstanding", f"evaluation {evaluation.id} is in {found}"
    tried = [a.delivery for a in world.attempts if queue.broker.token_of(a.delivery.evaluation.id) == a.delivery.token]
    held = Counter(delivery.evaluation.job_id for delivery in tried)
    assert max(held.values(), default=0) <= 1, "two workers look at one job"


STRATEGIES = st.one_of(
    st.just(None),
    st.builds(
        DisconnectStrategy,
        lost_after=st.sampled_from([Duration(0), seconds(25), seconds(90)]),
        replace=st.booleans(),
        reconcile=st.sampled_from(["", "best_score", "keep_original", "keep_replacement", "longest_running"]),
    ),
    st.just(DisconnectStrategy(stop_on_client_after=seconds(15), replace=True)),
)


class NodeLife(RuleBasedStateMachine):
    """A cluster whose clients call in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.rules = Rules()
        self.world = World(1, self.rules.observe)
        self.late: list[tuple[str, tuple[c.AllocUpdate, ...]]] = []
        self.lists: list[tuple[SimulatedClient, AllocPull, Snapshot]] = []
        self.older: list[Snapshot] = [self.world.state]
        skews = (0.0, 3600.0, -3600.0, 0.0)
        made = [factories.node(factories.number_id(n, 0xA), status=status.NODE_INIT) for n in range(NODES)]
        self.clients = [
            SimulatedClient(self.world, self.rules, node, skew) for node, skew in zip(made, skews, strict=True)
        ]
        for client in self.clients[:2]:
            client.register()
            self.world.apply_all()
            client.keep_to_the_protocol()

    # What users do.

    @rule(
        name=st.sampled_from(NAMES),
        count=st.integers(1, 3),
        disconnect=STRATEGIES,
        argument=st.sampled_from(["1", "2"]),
    )
    def register_job(self, name: str, count: int, disconnect: DisconnectStrategy | None, argument: str) -> None:
        kind = KINDS[name]
        if disconnect is not None and kind in ("system", "sysbatch"):
            disconnect = replace(disconnect, stop_on_client_after=Duration(0))
        delays = ReschedulePolicy(delay=seconds(5), delay_function="constant", unlimited=True)
        group = replace(
            factories.group(),
            count=1 if kind in ("system", "sysbatch") else count,
            update=None,
            disconnect=disconnect,
            tasks=(factories.task(config={"run_for": argument}),),
            migrate=MigrateStrategy(max_parallel=1) if kind == "service" else None,
            reschedule_policy=delays if kind in ("service", "batch") else None,
        )
        self.world.run_job(factories.job(name, type=kind, task_groups=(group,)))

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 4))
    def scale(self, name: str, count: int) -> None:
        job = self.world.state.jobs.get(("default", name))
        if job is not None and not job.stop and KINDS[name] in ("service", "batch"):
            self.world.run_job(with_count(job, count))

    @rule(name=st.sampled_from(NAMES), purge=st.booleans())
    def stop_job(self, name: str, purge: bool) -> None:
        job = self.world.state.jobs.get(("default", name))
        if job is not None:
            self.world.stop_job(job, purge=purge)

    @rule(number=st.integers(0, NODES - 1), how=st.sampled_from(["force", "soon", "never", "ignore", "end"]))
    def drain(self, number: int, how: str) -> None:
        node_id = self.clients[number].node.id
        if node_id in self.world.state.nodes:
            self.world.drain(node_id, SPEC_OF_DRAIN.get(how))

    @rule(number=st.integers(0, NODES - 1))
    def purge(self, number: int) -> None:
        if self.clients[number].node.id in self.world.state.nodes:
            self.world.purge(self.clients[number].node.id)

    # What clients do, in any order.

    @rule(number=st.integers(0, NODES - 1))
    def register_node(self, number: int) -> None:
        self.clients[number].register()

    @rule(number=st.integers(0, NODES - 1), asked=st.sampled_from(["ready", "ready", "initializing"]))
    def beat(self, number: int, asked: str) -> None:
        try:
            self.clients[number].beat(asked)
        except NotKnown:
            self.clients[number].register()

    @rule(number=st.integers(0, NODES - 1), is_late=st.booleans())
    def pull(self, number: int, is_late: bool) -> None:
        client = self.clients[number]
        if is_late:
            self.lists.append((client, client.listed(), self.world.state))
            self.older.append(self.world.state)
        else:
            client.take(client.listed(), self.world.state)

    @precondition(lambda self: self.lists)
    @rule(number=st.integers(0, 5), teller=st.sampled_from(["the same", "newest", "older"]), older=st.integers(0, 9))
    def deliver_list(self, number: int, teller: str, older: int) -> None:
        """A list arrives late; its allocations may be fetched from a server that knows more, or less."""
        client, pull, then = self.lists.pop(number % len(self.lists))
        tellers = {"the same": then, "newest": self.world.state, "older": self.older[older % len(self.older)]}
        client.take(pull, tellers[teller])

    @rule(number=st.integers(0, NODES - 1), older=st.integers(0, 9), is_empty=st.booleans())
    def pull_from_a_server_that_is_behind(self, number: int, older: int, is_empty: bool) -> None:
        client, state = self.clients[number], self.older[older % len(self.older)]
        index = min(state.index, client.list.seen_index - 1) if is_empty else state.index
        allocs = () if is_empty else state.allocs_of_node(client.node.id)
        listed = {alloc.id: alloc.alloc_modify_index for alloc in allocs}
        client.take(AllocPull(index=index, allocs=listed), state)

    @rule(number=st.integers(0, NODES - 1))
    def restart_client(self, number: int) -> None:
        self.clients[number].restart()

    @rule(number=st.integers(0, NODES - 1), how=st.sampled_from(["now", "now", "late", "twice"]))
    def report(self, number: int, how: str) -> None:
        client = self.clients[number]
        client.live_on()
        if how != "late":
            self._send(client.node.id, client.updates())
        if how != "now":
            self.late.append((client.node.id, client.updates()))

    @precondition(lambda self: self.late)
    @rule(number=st.integers(0, 5))
    def deliver_report(self, number: int) -> None:
        self._send(*self.late.pop(number % len(self.late)))

    def _send(self, node_id: str, updates: tuple[c.AllocUpdate, ...]) -> None:
        with contextlib.suppress(ReportRefused):
            self.world.report(node_id, updates)

    @rule(number=st.integers(0, NODES - 1), which=st.integers(0, 9), how=st.sampled_from(["ends", "fails", "restarts"]))
    def task_moves(self, number: int, which: int, how: str) -> None:
        client = self.clients[number]
        running = [task for task in client.tasks.values() if task.status == status.CLIENT_RUNNING]
        if not running:
            return
        task = running[which % len(running)]
        is_service = task.alloc.job is None or task.alloc.job.type in ("service", "system")
        if how == "restarts":
            task.restarts, task.started_at = task.restarts + 1, client.now
        elif how == "fails" or is_service:
            task.end(status.CLIENT_FAILED, client.now)
        else:
            task.end(status.CLIENT_COMPLETE, client.now)

    @rule(number=st.integers(0, NODES - 1))
    def protocol(self, number: int) -> None:
        self.clients[number].keep_to_the_protocol()

    @rule(number=st.integers(0, NODES - 1), rounds=st.sampled_from([0, 4, 7, 12]))
    def outage(self, number: int, rounds: int) -> None:
        """One client is not heard of for a while, and everything else goes on as it should."""
        for _ in range(rounds + 1):
            self.world.settle()
            for client in self.clients:
                if client is not self.clients[number] or not rounds:
                    client.keep_to_the_protocol()
            self.pass_time(9.0)

    # What servers do, each at its own pace.

    @rule(count=st.integers(1, 4))
    def apply(self, count: int) -> None:
        for _ in range(count):
            self.world.apply_one()
        check_queues(self.world)

    @rule()
    def schedule(self) -> None:
        self.world.schedule()

    @precondition(lambda self: self.world.attempts)
    @rule(number=st.integers(0, 5))
    def submit(self, number: int) -> None:
        self.world.submit(number)

    @precondition(lambda self: self.world.attempts)
    @rule(number=st.integers(0, 5))
    def worker_fails(self, number: int) -> None:
        self.world.fail_attempt(number)

    @rule()
    def work_off(self) -> None:
        self.world.settle()
        check_queues(self.world)

    @rule()
    def keep_house(self) -> None:
        self.world.keep_house()

    @rule(passed_s=st.sampled_from([1.0, 6.0, 20.0, 31.0, 95.0]))
    def pass_time(self, passed_s: float) -> None:
        self.world.pass_time(passed_s)
        for client in self.clients:
            client.live_on()

    # And then nothing disturbs any more.

    def teardown(self) -> None:
        world = self.world
        for _ in range(CALM_ROUNDS):
            world.settle()
            for client in self.clients:
                client.keep_to_the_protocol()
            world.settle()
            world.pass_time(CALM_STEP_S)
        world.settle()
        check_queues(world)
        check_calm(world.state, world.clock.now())
        for client in self.clients:
            check_client(world.state, client)
        check_replica(world)


def check_calm(state: Snapshot, now: UnixNano) -> None:
    """Every job has what it asks for, once; what waits has a reason."""
    pending = state.evals.where("status", status.EVAL_PENDING)
    assert not pending, [(e.id, e.job_id, e.triggered_by, e.wait_until - now, e.create_time - now) for e in pending]
    blocked = {(e.job_id, e.node_id): e for e in state.evals.where("status", status.EVAL_BLOCKED)}
    assert not [a for a in state.allocs.values() if a.client_status == status.CLIENT_UNKNOWN], "left unknown"
    for job in state.jobs.values():
        if job.stop:
            assert not [a for a in state.allocs_of_job(*job.key) if not is_terminal(a)], f"{job.id} is stopped and runs"
        elif job.type in (status.JOB_SYSTEM, status.JOB_SYSBATCH):
            check_on_every_node(state, job)
        else:
            check_count(state, job, is_blocked=(job.id, "") in blocked)
    for evaluation in blocked.values():
        again = scheduler.attempt(state, replace(evaluation, status=status.EVAL_PENDING), now=now, seed=1)
        assert again.outcome.evaluation.failed_tg_allocs, f"{evaluation.job_id} waits for nothing"


def check_count(state: Snapshot, job: Job, *, is_blocked: bool) -> None:
    group = job.task_groups[0]
    own = [a for a in state.allocs_of_job(*job.key) if a.job is not None and a.job.create_index == job.create_index]
    live = [a for a in own if not is_terminal(a)]
    assert all(a.client_status == status.CLIENT_RUNNING for a in live)
    names = Counter(a.name for a in live)
    assert max(names.values(), default=0) <= 1, f"{job.id}: {names}"
    served = set(names)
    if job.type == status.JOB_BATCH:
        served |= {a.name for a in own if a.client_status == status.CLIENT_COMPLETE}
    served |= {a.name for a in own if is_left_alone(a)}
    assert len(live) <= group.count
    assert is_blocked or len(served) >= group.count, f"{job.id}: {sorted(served)} of {group.count}, {told(own)}"


def told(allocs: list[Allocation]) -> list[tuple[Any, ...]]:
    """Allocations for a message."""
    return [
        (a.id[:4], a.name, a.node_id[-1], a.desired_status, a.client_status, a.desired_description, a.alloc_states)
        for a in sorted(allocs, key=lambda a: a.create_index)
    ]


def is_left_alone(alloc: Allocation) -> bool:
    """A drained batch allocation is not placed anew."""
    return alloc.desired_transition.migrate_disable_placement


def check_on_every_node(state: Snapshot, job: Job) -> None:
    for node in state.nodes.values():
        own = [a for a in state.allocs_of_node(node.id) if a.job_id == job.id and not is_terminal(a)]
        assert len(own) <= 1, f"{job.id} runs {len(own)} times on {node.name}"
        if not is_ready(node):
            continue
        ended = {a.client_status for a in state.allocs_of_node(node.id) if a.job_id == job.id and is_terminal(a)}
        final = {status.CLIENT_FAILED, status.CLIENT_COMPLETE} if job.type == status.JOB_SYSBATCH else {"failed"}
        is_over = bool(ended & final)
        assert own or is_over, f"{job.id} is missing on {node.name}"


def check_client(state: Snapshot, client: SimulatedClient) -> None:
    """What runs on a client is what the servers want there (D1, D3)."""
    running = {task.alloc.id for task in client.tasks.values() if not task.is_over}
    expected = {a.id for a in state.allocs_of_node(client.node.id) if not is_terminal(a)}
    assert running == expected, f"{client.node.name}: runs {running}, wanted {expected}"
    assert state.nodes[client.node.id].status == status.NODE_READY


def check_replica(world: World) -> None:
    """The same commands give the same state (A2)."""
    replica = Replica(rules_version=0)
    for command in world.history:
        replica.step(command)
    for table in world.state.tables():
        assert dict(replica.state.table(table.name).items()) == dict(table.items()), table.name


def test_nodes_live_through_any_order_of_calls() -> None:
    run_state_machine_as_test(
        NodeLife,
        settings=settings(
            max_examples=2_000 if is_nightly() else EXAMPLES,
            stateful_step_count=200 if is_nightly() else STEP_COUNT,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
