"""Models of clients and users for simulations, and the invariants of a state at every step and at the end.

The nodes fetch what they should run, start it, sometimes fail it, sometimes go silent and come back. Users register,
change, scale and stop jobs. Whatever is called may be refused while no server leads; it is tried again later.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable

from yurt.scheduler.devices.overbooking import overbooked
from yurt.sdk.errors import Unavailable
from yurt.sdk.value import replace, seconds
from yurt.server.server import Server
from yurt.state import Snapshot
from yurt.state.usage import usage_of
from yurt.structs import status
from yurt.structs.alloc import Allocation, AllocDeploymentStatus, TaskState
from yurt.structs.commands import AllocUpdate
from yurt.structs.job import Job
from yurt.structs.network import NetworkResource, Port
from yurt.structs.node import Attribute, Node, NodeDevice, NodeDeviceResource
from yurt.structs.policies import Gang, ReschedulePolicy
from yurt.structs.predicates import is_client_terminal, is_terminal
from yurt.structs.resources import RequestedDevice, Resources
from yurt.structs.rpc import RegisterNodeRequest, UpdateAllocsRequest
from yurt.structs.status import ClientStatus
from yurt.testing import factories
from yurt.testing.fakes import FakeEnv

NODES = 5
CARD_MB = 10_000
STEP_S, CALM_STEP_S = 4.0, 8.0


Reach = Callable[[], Server]
"""A server that can be called now."""


class SimulatedNode:
    """One client: it keeps its own records, and repeats a report until a server has accepted it."""

    def __init__(self, reach: Reach, node: Node, chance: random.Random) -> None:
        self.server = reach()
        self.node = node
        self.chance = chance
        self.silent_until = 0.0
        self._reach = reach
        self._done: dict[str, AllocUpdate] = {}
        self._unreported: dict[str, AllocUpdate] = {}

    async def join(self) -> None:
        """Register, report running allocations, become ready."""
        await self.server.clients.calls.register_node(RegisterNodeRequest(node=self.node))
        await self.report(failures=False)
        await self.server.clients.calls.heartbeat(self.node.id, status.NODE_READY)

    async def turn(self, now_s: float, *, failures: bool) -> None:
        """Act for one step."""
        if now_s < self.silent_until:
            return
        self.server = self._reach()
        stored = self.server.state.nodes.get(self.node.id)
        if stored is None or stored.status == status.NODE_DOWN:
            await self.join()
            return
        await self.server.clients.calls.heartbeat(self.node.id, status.NODE_READY)
        await self.report(failures=failures)

    async def report(self, *, failures: bool) -> None:
        """Report the states of the allocations after this step."""
        stored = self.server.state.nodes.get(self.node.id)
        if stored is None or stored.status in (status.NODE_DOWN, status.NODE_DISCONNECTED):
            return
        for alloc in self.server.state.allocs_of_node(self.node.id):
            made = self.fate(alloc, failures=failures)
            if made is not None:
                self._done[alloc.id] = self._unreported[alloc.id] = made
        updates = tuple(self._unreported.values())
        if updates:
            await self.server.clients.calls.update_allocs(UpdateAllocsRequest(node_id=self.node.id, updates=updates))
            self._unreported.clear()

    def fate(self, alloc: Allocation, *, failures: bool) -> AllocUpdate | None:
        """The change of an allocation in this step; None for no change."""
        done = self._done.get(alloc.id)
        here = done.client_status if done is not None else status.CLIENT_PENDING
        if is_client_terminal(alloc) or here in status.CLIENT_TERMINAL:
            return None
        if alloc.desired_status != status.DESIRED_RUN:
            return self.update(alloc, status.CLIENT_COMPLETE)
        if alloc.job is not None and alloc.job.meta.get("breaks"):
            return self.update(alloc, status.CLIENT_FAILED, is_healthy=False)
        if failures and self.chance.random() < 0.06:
            return self.update(alloc, status.CLIENT_FAILED)
        is_batch = alloc.job is not None and alloc.job.type == status.JOB_BATCH
        if is_batch and here == status.CLIENT_RUNNING and self.chance.random() < 0.3:
            return self.update(alloc, status.CLIENT_COMPLETE)
        if here == status.CLIENT_PENDING or alloc.client_status == status.CLIENT_UNKNOWN:
            return self.update(alloc, status.CLIENT_RUNNING)
        if alloc.deployment_id and (alloc.deployment_status is None or alloc.deployment_status.healthy is None):
            return self.update(alloc, status.CLIENT_RUNNING, is_healthy=True)
        return None

    def update(self, alloc: Allocation, client_status: ClientStatus, *, is_healthy: bool | None = None) -> AllocUpdate:
        """An update with that client status."""
        now = self.server.replica.env.now()
        is_dead = client_status in status.CLIENT_TERMINAL
        state = TaskState(
            state="dead" if is_dead else "running",
            failed=client_status == status.CLIENT_FAILED,
            started_at=now,
            finished_at=now if is_dead else 0,
        )
        health = None if is_healthy is None else AllocDeploymentStatus(healthy=is_healthy, timestamp=now)
        return AllocUpdate(
            id=alloc.id,
            node_id=alloc.node_id,
            client_status=client_status,
            task_states={"web": state},
            deployment_status=health,
        )


def make_node(number: int) -> Node:
    """A node with one address for ports."""
    node = factories.node(id=factories.number_id(number, 0xA), status="initializing")
    address = NetworkResource(mode="host", device="eth0", ip=f"10.0.0.{number + 1}")
    cards = tuple(NodeDevice(id=f"GPU-{number}-{card}", healthy=True) for card in range(2))
    facts = {"memory": Attribute(int_val=CARD_MB, unit="MiB"), "sharing": Attribute(string_val="mps,slice")}
    gpus = NodeDeviceResource(vendor="nvidia", type="gpu", name="H100", instances=cards, attributes=facts)
    return replace(node, node_resources=replace(node.node_resources, networks=(address,), devices=(gpus,)))


class SimulatedCluster:
    """Nodes and the users' jobs. `lead` is the server that takes writes, `reach` one that nodes reach."""

    def __init__(self, lead: Reach, reach: Reach, env: FakeEnv, seed: int) -> None:
        self.lead = lead
        self.env = env
        self.chance = random.Random(seed)
        self.nodes = [SimulatedNode(reach, make_node(number), self.chance) for number in range(NODES)]
        self.index = 0
        self.refused = 0
        self.registered: dict[int, Job] = {}
        """The acknowledged commands of users, by index."""
        self.completed: set[str] = set()

    @property
    def state(self) -> Snapshot:
        """The latest state."""
        return self.lead().state

    async def user_acts(self) -> None:
        """At random, let a user register, change, scale or stop a job."""
        if self.chance.random() > 0.35:
            return
        name = self.chance.choice(("one", "two", "three", "bulk", "gpu", "cards"))
        server = self.lead()
        if self.chance.random() < 0.2 and server.state.jobs.get(("default", name)) is not None:
            await server.resources.jobs.deregister("default", name)
            return
        job = self.some_job(name)
        registered = await server.resources.jobs.register(job)
        self.registered[registered.job_modify_index] = job

    def some_job(self, name: str) -> Job:
        """A version of a job with another count, argument or size."""
        kind = status.JOB_BATCH if name == "bulk" else status.JOB_SERVICE
        job = factories.job(name, type=kind)
        group = job.task_groups[0]
        task = replace(
            group.tasks[0],
            config={"run_for": f"{self.chance.randint(1, 2)}h"},
            resources=Resources(cpu=self.chance.choice((200, 900)), memory_mb=128, devices=self.some_devices(name)),
        )
        networks = (NetworkResource(mode="host", dynamic_ports=(Port(label="http"),)),)
        group = replace(
            group,
            count=self.chance.randint(1, 5),
            tasks=(task,),
            networks=networks,
            reschedule_policy=ReschedulePolicy(delay=seconds(5), delay_function="constant", unlimited=True),
            gang=Gang(min=1) if name == "cards" else None,
        )
        return replace(job, task_groups=(group,))

    def some_devices(self, name: str) -> tuple[RequestedDevice, ...]:
        """GPUs, whole or shared, for jobs with devices."""
        if name == "cards":
            return (RequestedDevice(name="gpu", count=self.chance.randint(1, 2)),)
        if name != "gpu":
            return ()
        memory = self.chance.choice((2_000, 3_500, 6_000))
        mode, compute = self.chance.choice(("mps", "slice")), self.chance.choice((0, 40))
        return (RequestedDevice(name="gpu", share=mode, memory_mb=memory, compute=compute),)

    async def step(self, *, faults: bool) -> None:
        """Advance the time, let nodes act, and check the state."""
        if faults:
            await self.attempt(self.user_acts())
            if self.chance.random() < 0.12:
                self.chance.choice(self.nodes).silent_until = self.env.monotonic() + self.chance.choice((15.0, 90.0))
        for node in self.nodes:
            await self.attempt(node.turn(self.env.monotonic(), failures=faults))
        await self.env.advance(STEP_S if faults else CALM_STEP_S)
        self.check(self.state)

    async def attempt(self, call: Awaitable[None]) -> None:
        """Make a call, and count it as refused when there is no leader."""
        try:
            await call
        except Unavailable:
            self.refused += 1

    def check(self, state: Snapshot) -> None:
        """Check the invariants that hold at every index."""
        assert state.index >= self.index, "the index went down"
        self.index = state.index
        for node in state.nodes.values():
            check_capacity(node, [a for a in state.allocs_of_node(node.id) if not is_terminal(a)])
        names = Counter(
            (a.namespace, a.job_id, a.name, a.job.version if a.job else 0)
            for a in state.allocs.values()
            if not is_terminal(a) and a.client_status != status.CLIENT_UNKNOWN and not has_successor(state, a)
        )
        assert not [name for name, count in names.items() if count > 1], "a name is held twice"
        self.check_completed(state)

    def check_completed(self, state: Snapshot) -> None:
        """D4: a completed batch allocation is never run again."""
        for alloc in state.allocs.values():
            if alloc.client_status == status.CLIENT_COMPLETE and alloc.job and alloc.job.type == status.JOB_BATCH:
                self.completed.add(alloc.id)
        assert all(
            found.client_status == status.CLIENT_COMPLETE
            for found in map(state.allocs.get, self.completed)
            if found is not None
        )


def has_successor(state: Snapshot, alloc: Allocation) -> bool:
    """Whether an allocation is being replaced: a migrated or rescheduled pair shares a name for a while."""
    return bool(alloc.next_allocation) and alloc.next_allocation in state.allocs


def check_capacity(node: Node, allocs: list[Allocation]) -> None:
    """The live allocations of a node fit, and no port is assigned twice."""
    tasks = [task for alloc in allocs for task in alloc.allocated_resources.tasks.values()]
    assert sum(task.cpu.cpu_shares for task in tasks) <= node.node_resources.cpu.cpu_shares
    assert sum(task.memory.memory_mb for task in tasks) <= node.node_resources.memory.memory_mb
    ports = [(p.host_ip, p.value) for alloc in allocs for p in alloc.allocated_resources.shared.ports]
    assert len(ports) == len(set(ports)), "a port is held twice"
    device_keys = [key for alloc in allocs for key in usage_of(alloc).devices]
    assert len(device_keys) == len(set(device_keys)), "a device is given twice"
    assert not overbooked(node, device_keys, device_keys)


def is_healthy(alloc: Allocation) -> bool:
    """Whether its deployment counts the allocation as healthy."""
    return alloc.deployment_status is not None and alloc.deployment_status.healthy is True
