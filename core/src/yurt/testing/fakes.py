"""Fakes of the parts that a client depends on: clock, servers and driver.

A server, a driver and a clock, all in memory and under the test's control.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import random
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, ParamSpec, TypeVar

import msgspec

from yurt.runtime.env import Timer
from yurt.sdk.driver import (
    HEALTHY,
    Capabilities,
    ExecResult,
    ExitResult,
    Fingerprint,
    TaskHandle,
    TaskRequest,
    TaskStats,
)
from yurt.sdk.errors import NotFound, YurtError
from yurt.sdk.value import NANOSECONDS, Duration, UnixNano, replace
from yurt.structs.alloc import Allocation
from yurt.structs.commands import AllocUpdate
from yurt.structs.node import DeviceMark, DrainSpec, Node
from yurt.structs.queueing.gang import GangAnswer, GangQuery
from yurt.structs.rpc import (
    AllocBatch,
    AllocPull,
    CallerRights,
    HeldIdentity,
    IdentityQuery,
    NodeEventsRequest,
    NodeReply,
    RegisterNodeRequest,
    ShownCredential,
    SignedIdentity,
    TemplateQuery,
    TemplateQueryAnswer,
    UpdateAllocsRequest,
)
from yurt.structs.service import ServiceRegistration
from yurt.structs.status import NODE_INIT, NODE_READY
from yurt.structs.volumes.csi import CSIClaimed, CSIClaimQuery

P = ParamSpec("P")
T = TypeVar("T")

START_NS = 1_700_000_000 * NANOSECONDS
SETTLE_ROUNDS = 200
THREAD_LOOK_S = 0.001


class FakeEnv:
    """A clock that only the test advances, with seeded randomness and ids."""

    def __init__(self, seed: int = 1) -> None:
        self._now_s = 0.0
        self.wall_offset_s = 0.0
        """By how much the wall clock was set forward, or, negative, back."""
        self._random = random.Random(seed)
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now(self) -> UnixNano:
        """Wall-clock nanoseconds since 1970."""
        return UnixNano(START_NS + round((self._now_s + self.wall_offset_s) * NANOSECONDS))

    def monotonic(self) -> float:
        """Seconds since the test began."""
        return self._now_s

    def random(self) -> float:
        """Uniform in [0, 1), the same in every run."""
        return self._random.random()

    def uuid(self) -> str:
        """An id, the same in every run."""
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    async def sleep(self, seconds: float) -> None:
        """Wait until the test has moved the clock this far."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now_s + seconds, next(self._order), future))
        await future

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        """As `asyncio.timeout`, but it expires when the test has moved the clock this far."""
        if seconds is None or seconds <= 0:
            return asyncio.timeout(seconds)
        limit, loop = asyncio.timeout(None), asyncio.get_running_loop()
        due: asyncio.Future[None] = loop.create_future()

        def expire(_: asyncio.Future[None]) -> None:
            with contextlib.suppress(RuntimeError):  # the block has ended before
                limit.reschedule(loop.time())

        due.add_done_callback(expire)
        heapq.heappush(self._sleepers, (self._now_s + seconds, next(self._order), due))
        return limit

    def call_later(self, seconds: float, function: Callable[[], None]) -> Timer:
        """Call a function when the test has moved the clock this far."""
        due: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        due.add_done_callback(lambda found: None if found.cancelled() else function())
        heapq.heappush(self._sleepers, (self._now_s + seconds, next(self._order), due))
        return due

    async def in_thread(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function in the next turn of the loop: real threads would make runs differ."""
        await asyncio.sleep(0)
        return function(*args, **kwargs)

    async def advance(self, seconds: float) -> None:
        """Advance the clock step by step: sleepers wake in order and their work finishes in between."""
        end_s = self._now_s + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= end_s:
            due_s, _, future = heapq.heappop(self._sleepers)
            self._now_s = max(self._now_s, due_s)
            if not future.done():
                future.set_result(None)
                await settle()
        self._now_s = end_s
        await settle()


async def unanswered_gang(query: GangQuery) -> GangAnswer:
    """The default of `FakeServerPort.gangs`: waits for ever."""
    await asyncio.Event().wait()
    raise AssertionError(query)


async def settle() -> None:
    """Let the event loop run until started work has finished its turns, work in threads included."""
    for _ in range(SETTLE_ROUNDS):
        await asyncio.sleep(0)
    await asyncio.sleep(THREAD_LOOK_S)
    for _ in range(SETTLE_ROUNDS):
        await asyncio.sleep(0)


async def eventually(condition: Callable[[], object], *, within_s: float = 60.0) -> None:
    """Wait on the real clock until a condition holds; fails the test after `within_s`."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - any condition, not an event
            await asyncio.sleep(0.002)


class FakeServerPort:
    """A server with one table of allocations; every call raises `failure` while it is set."""

    def __init__(self, *, ttl_s: float = 20.0) -> None:
        self.index = 1
        self.ttl_s = ttl_s
        self.nodes: dict[str, Node] = {}
        self.statuses: list[str] = []
        self.allocs: dict[str, Allocation] = {}
        self.updates: list[AllocUpdate] = []
        self.events: list[NodeEventsRequest] = []
        self.drains: list[DrainSpec | None] = []
        self.services: dict[str, ServiceRegistration] = {}
        self.identities: list[HeldIdentity | None] = []
        """What the client said of the node's identity, call by call."""
        self.identity = ""
        """The identity that the next answer brings."""
        self.cluster_id = ""
        """The ID that its answers name; "" like a server of an earlier version."""
        self.device_marks: dict[str, DeviceMark] = {}
        self.token_ends_at: Callable[[], int] = lambda: 0
        self.facts: dict[tuple[str, str], tuple[int, Any]] = {}
        self.registrations: list[RegisterNodeRequest] = []
        self.csi_volumes: dict[str, CSIClaimed] = {}
        self.disks: dict[str, tuple[bytes, ...]] = {}
        self.gangs: Callable[[GangQuery], Awaitable[GangAnswer]] = unanswered_gang
        self.rights: dict[ShownCredential, CallerRights] = {}
        self.failure: YurtError | None = None
        self.keep_initializing = False
        self.calls: list[str] = []
        self._moved = asyncio.Event()

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if self.failure is not None:
            raise self.failure

    def _move(self) -> None:
        self.index += 1
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    def put_alloc(self, alloc: Allocation) -> None:
        """Place or change an allocation, as a plan would."""
        self.index += 1
        self.allocs[alloc.id] = replace(alloc, modify_index=self.index, alloc_modify_index=self.index)
        self._move()

    def drop_alloc(self, alloc_id: str) -> None:
        """Forget an allocation, as garbage collection would."""
        del self.allocs[alloc_id]
        self._move()

    def status_of(self, alloc_id: str) -> str:
        """The last status that the client reported."""
        return next((update.client_status for update in reversed(self.updates) if update.id == alloc_id), "")

    def last_update(self, alloc_id: str) -> AllocUpdate:
        """The last report of an allocation."""
        return next(update for update in reversed(self.updates) if update.id == alloc_id)

    def _reply(self, status: str) -> NodeReply:
        given, self.identity = self.identity, ""
        return NodeReply(
            heartbeat_ttl_s=self.ttl_s,
            index=self.index,
            node_status=status,
            identity=given,
            device_marks=self.device_marks,
            cluster_id=self.cluster_id,
        )

    async def register_node(self, request: RegisterNodeRequest) -> NodeReply:
        """Record the registration."""
        self._called("register_node")
        self.registrations.append(request)
        self.identities.append(request.identity)
        self.nodes[request.node.id] = request.node
        self.index += 1
        return self._reply(request.node.status)

    async def heartbeat(self, node_id: str, status: str, identity: HeldIdentity | None = None) -> NodeReply:
        """Record the heartbeat."""
        self._called("heartbeat")
        self.identities.append(identity)
        if node_id not in self.nodes:
            raise NotFound(f"node {node_id} not found")
        given = NODE_INIT if self.keep_initializing else status
        self.statuses.append(given)
        self.nodes[node_id] = replace(self.nodes[node_id], status=given)
        return self._reply(given)

    async def pull_allocs(self, node_id: str, *, min_index: int, timeout_s: float) -> AllocPull:
        """Wait for a change beyond `min_index`."""
        self._called("pull_allocs")
        while self.index <= min_index:
            await self._moved.wait()
            self._called("pull_allocs")
        listed = {alloc.id: alloc.alloc_modify_index for alloc in self.allocs.values() if alloc.node_id == node_id}
        return AllocPull(index=self.index, allocs=listed, cluster_id=self.cluster_id)

    async def get_allocs(self, node_id: str, alloc_ids: tuple[str, ...]) -> AllocBatch:
        """The allocations that exist."""
        self._called("get_allocs")
        return AllocBatch(allocs=tuple(self.allocs[each] for each in alloc_ids if each in self.allocs))

    async def update_allocs(self, request: UpdateAllocsRequest) -> int:
        """Record the reports."""
        self._called("update_allocs")
        self.updates += request.updates
        self.index += 1
        return self.index

    async def register_services(self, node_id: str, services: tuple[ServiceRegistration, ...]) -> int:
        """Keep the services."""
        self._called("register_services")
        self.services |= {service.id: service for service in services}
        return self.index

    async def deregister_services(self, node_id: str, ids: tuple[str, ...]) -> int:
        """Forget the services."""
        self._called("deregister_services")
        for service_id in ids:
            self.services.pop(service_id, None)
        return self.index

    async def fetch_disk(self, node_id: str, alloc_id: str) -> AsyncGenerator[bytes]:
        """There is no disk of a previous allocation."""
        self._called("fetch_disk")
        for piece in self.disks.get(alloc_id, ()):
            yield piece
        if alloc_id not in self.disks:
            raise NotFound(f"allocation {alloc_id} has no predecessor")

    async def ask_for_template(self, query: TemplateQuery) -> TemplateQueryAnswer:
        """The entry of `facts` for (kind, name), once its index is above the query's."""
        self._called("ask_for_template")
        known = self.facts.get((query.kind, query.name))
        while known is None or known[0] <= query.min_index:
            if known is None and not query.min_index:
                is_list = query.kind != "variable"
                return TemplateQueryAnswer(index=1, exists=is_list, data=[] if is_list else None)
            await self._moved.wait()
            self._called("ask_for_template")
            known = self.facts.get((query.kind, query.name))
        return TemplateQueryAnswer(index=known[0], exists=known[1] is not None, data=known[1])

    async def claim_csi_volume(self, query: CSIClaimQuery) -> CSIClaimed:
        """The volume of that name, as `csi_volumes` has it."""
        self._called("claim_csi_volume")
        if query.volume not in self.csi_volumes:
            raise NotFound(f"volume not found: {query.volume}")
        return self.csi_volumes[query.volume]

    async def follow_gang(self, query: GangQuery) -> GangAnswer:
        """The answer of `gangs`; by default it never comes."""
        self._called("follow_gang")
        return await self.gangs(query)

    async def caller_rights(self, node_id: str, shown: ShownCredential) -> CallerRights:
        """The entry of `rights` for the caller; no rights without an entry."""
        self._called("caller_rights")
        return self.rights.get(shown, CallerRights(kind="nobody"))

    async def sign_identity(self, query: IdentityQuery) -> SignedIdentity:
        """A token that names its identity and a serial number; it expires at `token_ends_at`."""
        self._called("sign_identity")
        token = f"{query.task}.{query.name}.{self.calls.count('sign_identity')}"
        return SignedIdentity(token=token, expires_at=self.token_ends_at())

    def tell(self, kind: str, name: str, data: Any) -> None:
        """Change a fact that templates read: a variable or a service."""
        self._move()
        self.facts[(kind, name)] = (self.index, data)
        self._move()

    async def drain_node(self, node_id: str, spec: DrainSpec | None) -> None:
        """Record the drain, or its end."""
        self._called("drain_node")
        self.drains.append(spec)

    async def emit_events(self, request: NodeEventsRequest) -> None:
        """Record the events."""
        self._called("emit_events")
        self.events.append(request)

    def wake(self) -> None:
        """Wake waiting calls, for example after a change of `failure`."""
        self._move()

    def is_ready(self) -> bool:
        """Whether a node has reported that it is ready."""
        return NODE_READY in self.statuses


class FakeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a fake task."""

    command: str = ""
    args: list[str] = []


class FakeTask:
    """A task of the fake driver; it ends when the test says so or when it is stopped."""

    def __init__(self, request: TaskRequest | None, handle: TaskHandle) -> None:
        self.request = request
        self.handle = handle
        self.result: asyncio.Future[ExitResult] = asyncio.get_running_loop().create_future()
        self.signals: list[str] = []


class FakeHost:
    """Where fake tasks live; two drivers that share one act out a restart of the agent."""

    def __init__(self) -> None:
        self.tasks: dict[str, FakeTask] = {}
        self.starts: list[str] = []
        self.stops: list[str] = []


class FakeDriver:
    """A driver whose tasks are entries of a `FakeHost`."""

    task_config = FakeConfig

    def __init__(self, host: FakeHost | None = None, *, name: str = "fake", ignores_signals: bool = False) -> None:
        self.name = name
        self.capabilities = Capabilities(exec=True, finds_by_id=True)
        self.host = host or FakeHost()
        self.start_errors: list[YurtError] = []
        self.ignores_signals = ignores_signals
        self.exec_exit_code = 0
        self.known: set[str] = set()
        self._fingerprints: asyncio.Queue[Fingerprint] = asyncio.Queue()
        self.publish(Fingerprint(health=HEALTHY, attributes={f"driver.{name}.version": "1"}))

    def publish(self, found: Fingerprint) -> None:
        """Change the fingerprint."""
        self._fingerprints.put_nowait(found)

    async def fingerprint(self) -> AsyncIterator[Fingerprint]:
        """Yield each published fingerprint."""
        while True:
            yield await self._fingerprints.get()

    def _task(self, task_id: str) -> FakeTask:
        if task_id not in self.known or task_id not in self.host.tasks:
            raise NotFound(f"no task {task_id}")
        return self.host.tasks[task_id]

    async def start_task(self, request: TaskRequest) -> TaskHandle:
        """Start the task, or raise the failure that the test set."""
        await asyncio.sleep(0)
        if self.start_errors:
            raise self.start_errors.pop(0)
        assert request.task_id not in self.host.tasks, request.task_id
        handle = TaskHandle(driver=self.name, task_id=request.task_id, pid=1000 + len(self.host.starts))
        self.host.tasks[request.task_id] = FakeTask(request, handle)
        self.host.starts.append(request.task_id)
        self.known.add(request.task_id)
        return handle

    async def recover_task(self, handle: TaskHandle) -> None:
        """Find it on the host."""
        if handle.task_id not in self.host.tasks:
            raise NotFound(f"no task {handle.task_id}")
        self.known.add(handle.task_id)

    async def wait_task(self, task_id: str) -> ExitResult:
        """Wait for its end."""
        return await asyncio.shield(self._task(task_id).result)

    def finish(self, task_id: str, result: ExitResult | None = None) -> None:
        """Let a task end."""
        future = self.host.tasks[task_id].result
        if not future.done():
            future.set_result(result or ExitResult())

    async def signal_task(self, task_id: str, signal: str) -> None:
        """Record the signal."""
        self._task(task_id).signals.append(signal)

    async def stop_task(self, task_id: str, *, signal: str, timeout: Duration) -> None:
        """End it at once."""
        task = self._task(task_id)
        task.signals.append(signal)
        self.host.stops.append(task_id)
        self.finish(task_id, ExitResult(exit_code=137, signal=9) if self.ignores_signals else ExitResult(exit_code=130))

    async def destroy_task(self, task_id: str) -> None:
        """Forget it."""
        task = self._task(task_id)
        if not task.result.done():
            self.finish(task_id, ExitResult(exit_code=137, signal=9))
        del self.host.tasks[task_id]
        self.known.discard(task_id)

    async def task_stats(self, task_id: str) -> TaskStats:
        """A fixed usage."""
        self._task(task_id)
        return TaskStats(at=UnixNano(START_NS), rss_bytes=4096, pids=1)

    async def exec_task(self, task_id: str, command: tuple[str, ...], *, timeout: Duration) -> ExecResult:
        """Echo the command."""
        self._task(task_id)
        return ExecResult(exit_code=self.exec_exit_code, stdout=" ".join(command).encode())

    async def close(self) -> None:
        """Nothing is held."""
