"""Gives each allocation its network, and takes it away: the shell around namespaces, plugins and records.

    nothing -record of the intent-> namespace -ADD-> joined -DEL-> namespace gone -> record gone

Each task asks before each start (`join`); the first makes the network, the others find it. What is found is trusted
only when the namespace is the one that the record names. Anything half made is undone before it is made again, so
that a crash anywhere leaves nothing that a later `join`, `release` or start of an agent does not find. A network that
cannot be taken away keeps its record, and is tried again by and by, by this agent and by the next ones.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from weakref import WeakValueDictionary

from yurt.client.networks import namespaces, plugins
from yurt.client.networks.cni import Attachment, environment, status_of
from yurt.client.networks.offered import Offered, find_offered, folders_mark
from yurt.client.networks.records import NetworkRecord, RecordFolder, owner_of
from yurt.client.networks.resolving import NAMES, RESOLVER, host_resolver, hosts_text, merged, resolver_text
from yurt.client.networks.settings import NetworkSettings
from yurt.runtime.env import Env
from yurt.sdk.driver import Driver, Mount, NetworkDriver
from yurt.sdk.errors import DriverError, Invalid, RecoverableError, YurtError
from yurt.sdk.value import Value, replace
from yurt.structs.alloc import Allocation, AllocNetworkStatus
from yurt.structs.job import TaskGroup
from yurt.structs.network import DNSConfig, NetworkResource

HOST_MODES = ("", "host")
NO_NETWORK = "none"
GROUP = "group"
ATTEMPTS = 3
RETRY_S = 0.2
AT_ONCE = 4
LOOK_EVERY_S = 5.0
LOOKS_BEFORE_CLEARING = 12

log = logging.getLogger(__name__)

Finder = Callable[[NetworkSettings], Awaitable[Offered]]
"""How it is found out what a machine offers; a client on a virtual clock cannot wait for programs."""


class TaskNetwork(Value):
    """What a task is given of its group's network: the namespace, its address, and files in /etc."""

    namespace: str = ""
    status: AllocNetworkStatus | None = None
    mounts: tuple[Mount, ...] = ()


def _removed(path: Path) -> str:
    """Let go of a namespace; why it stays, or "". Blocking."""
    try:
        namespaces.remove_namespace(path)
    except OSError as error:
        problem = f"the network namespace {path} stays: {error.strerror}"
        log.warning("%s", problem)
        return problem
    return ""


def network_of(group: TaskGroup) -> NetworkResource:
    """The one network of a group."""
    return group.networks[0] if group.networks else NetworkResource()


class Networks:
    """The networks of all allocations of this node."""

    def __init__(
        self,
        settings: NetworkSettings,
        *,
        env: Env,
        drivers: Mapping[str, Driver],
        state_dir: str,
        is_dev: bool,
        folder: RecordFolder | None = None,
    ) -> None:
        self.find: Finder = find_offered
        self.offered = Offered()
        self.on_change: Callable[[], None] = lambda: None
        self._settings = settings
        self._env = env
        self._drivers = drivers
        self._owner = owner_of(state_dir, is_dev=is_dev)
        self._folder = folder or RecordFolder.of_machine(state_dir)
        self._known: dict[str, NetworkRecord] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._left: dict[str, NetworkRecord] = {}

    # What is offered.

    async def open(self, allocs: set[str]) -> None:
        """Find out what this machine offers and what an earlier agent left; `allocs` are those that it ran."""
        self.offered = await self.find(self._settings)
        self._left = await asyncio.to_thread(self._sort_records, allocs)

    def _sort_records(self, allocs: set[str]) -> dict[str, NetworkRecord]:
        """Take up the records of allocations that go on; those that nobody needs. Blocking."""
        left = {}
        for record in self._folder.all():
            is_own = record.owner.state_dir == self._owner.state_dir
            if is_own and record.alloc_id in allocs:
                self._known[record.alloc_id] = record
            elif is_own or record.owner.leaves_to(self._owner):
                left[record.alloc_id] = record
        return left

    async def keep_house(self) -> None:
        """Take away what allocations left that nobody knows any more, then follow the plugins' folders."""
        for record in self._left.values():
            log.info("taking away the network of allocation %s, which is gone", record.alloc_id)
        await self._clear()
        for record in tuple(self._known.values()):
            await self._check(record)
        mark = await asyncio.to_thread(folders_mark, self._settings)
        for look in itertools.count(1):
            await self._env.sleep(LOOK_EVERY_S)
            if look % LOOKS_BEFORE_CLEARING == 0:
                await self._clear()
            now = await asyncio.to_thread(folders_mark, self._settings)
            if now != mark:
                mark, before = now, self.offered
                self.offered = await self.find(self._settings)
                if self.offered != before:
                    self.on_change()

    async def _clear(self) -> None:
        """Take away what should be gone."""
        for alloc_id in tuple(self._left):
            async with self._lock(alloc_id):
                record = self._left.pop(alloc_id, None)
                if record is not None and alloc_id not in self._known:
                    await self._undo(record)

    async def _check(self, record: NetworkRecord) -> None:
        """Say when a network that an earlier agent made is not as it was made."""
        if record.config is None or record.attachment is None or record.result is None:
            return
        async with self._lock(record.alloc_id):
            if self._known.get(record.alloc_id) is not record:
                return
            try:
                await plugins.check(record.config, record.attachment, self._settings.cni_paths, record.result)
            except YurtError as error:
                log.warning("the network of allocation %s has changed: %s", record.alloc_id, error)

    # What an agent that is gone left.

    def leftovers(self) -> tuple[NetworkRecord, ...]:
        """The networks of this state directory, and of agents that never come back, when no agent runs here. Blocking.

        Those that other agents made in a network namespace of their own are left to them.
        """
        return tuple(self._sort_records(set()).values())

    async def remove_leftover(self, record: NetworkRecord) -> str:
        """Take such a network away; what stays and why, "" when all is gone."""
        return await self._undo(record)

    # Joining.

    def status(self, alloc_id: str) -> AllocNetworkStatus | None:
        """The address of an allocation that has joined its network."""
        record = self._known.get(alloc_id)
        return record.status if record is not None else None

    async def join(self, alloc: Allocation, group: TaskGroup, driver: Driver) -> TaskNetwork:
        """The network for a task of this driver, made when it is the first; raises DriverError."""
        network = network_of(group)
        if network.mode not in HOST_MODES and GROUP not in driver.capabilities.network_modes:
            raise DriverError(
                f'driver "{driver.name}" cannot join the network of its group (mode "{network.mode}"); '
                'use mode = "host", or a driver such as exec or docker'
            )
        async with self._lock(alloc.id):
            try:
                if network.mode in HOST_MODES:
                    return await self._host_network(alloc, network, driver)
                record = await self._joined(alloc, group, network)
                mounts = await asyncio.to_thread(self._files, record, network) if driver.capabilities.mounts else ()
            except OSError as error:
                raise RecoverableError(f"cannot prepare the network: {error.strerror} ({error.filename})") from None
            return TaskNetwork(namespace=record.namespace, status=record.status, mounts=mounts)

    def _lock(self, alloc_id: str) -> asyncio.Lock:
        """The allocation's turn; kept as long as somebody takes part."""
        return self._locks.setdefault(alloc_id, asyncio.Lock())

    async def _host_network(self, alloc: Allocation, network: NetworkResource, driver: Driver) -> TaskNetwork:
        """The host's own network; at most its resolver is another."""
        if network.dns is None or not driver.capabilities.mounts:
            return TaskNetwork()
        if alloc.id not in self._known:
            self._known[alloc.id] = NetworkRecord(alloc_id=alloc.id, owner=self._owner)
            await self._remember(self._known[alloc.id])
        wanted = merged(network.dns, await asyncio.to_thread(host_resolver, is_namespaced=False))
        return TaskNetwork(mounts=(await asyncio.to_thread(self._resolver, alloc.id, resolver_text(wanted)),))

    async def _joined(self, alloc: Allocation, group: TaskGroup, network: NetworkResource) -> NetworkRecord:
        record = self._known.get(alloc.id) or await asyncio.to_thread(self._folder.read, alloc.id)
        if record is not None and record.identity and await self._is_there(record, network):
            self._known[alloc.id] = record
            return record
        if record is not None:
            await self._undo(record)
        return await self._make(self._plan(alloc, group, network), network)

    async def _is_there(self, record: NetworkRecord, network: NetworkResource) -> bool:
        """The namespace is the one that was joined, and the driver that made it still has it."""
        now = await asyncio.to_thread(namespaces.identity, record.namespace)
        maker = self._network_driver(record.maker)
        if maker is not None:
            source = await self._source(maker, record.alloc_id, network)
            return now == record.identity == await asyncio.to_thread(namespaces.identity, source)
        return now == record.identity

    async def _source(self, maker: NetworkDriver, alloc_id: str, network: NetworkResource) -> str:
        """The namespace that a driver keeps for an allocation."""
        try:
            return await maker.create_network(alloc_id, hostname=network.hostname)
        except DriverError:
            raise
        except YurtError as error:
            raise RecoverableError(str(error)) from None

    def _plan(self, alloc: Allocation, group: TaskGroup, network: NetworkResource) -> NetworkRecord:
        """What is to be made; raises DriverError when this node cannot."""
        offered = self.offered
        config = offered.networks.get(network.mode)
        if not offered.has_namespaces or (config is None and network.mode != NO_NETWORK):
            reason = offered.why_not(network.mode)
            raise DriverError(f'this node has no network of mode "{network.mode}": {reason}')
        namespace = str(namespaces.FOLDER / alloc.id)
        asked = {
            "IgnoreUnknown": "1",
            "NOMAD_REGION": alloc.job.region if alloc.job is not None else "",
            "NOMAD_NAMESPACE": alloc.namespace,
            "NOMAD_JOB_ID": alloc.job_id,
            "NOMAD_GROUP_NAME": alloc.task_group,
            "NOMAD_ALLOC_ID": alloc.id,
            **(network.cni.args if network.cni is not None else {}),
        }
        attachment = Attachment(
            container_id=alloc.id,
            namespace=namespace,
            args=asked,
            ports=alloc.allocated_resources.shared.ports,
            binds_wildcard=self._settings.binds_wildcard,
        )
        try:
            environment("", attachment, ())
        except Invalid as error:
            raise DriverError(str(error)) from None
        return NetworkRecord(
            alloc_id=alloc.id,
            owner=self._owner,
            namespace=namespace,
            maker=self._maker(group),
            config=config,
            attachment=attachment if config is not None else None,
        )

    def _maker(self, group: TaskGroup) -> str:
        """The driver that has to make the namespace, where one has to."""
        named = {task.driver for task in group.tasks}
        makers = sorted(
            name for name in named if name in self._drivers and self._drivers[name].capabilities.must_create_network
        )
        if len(makers) > 1:
            raise DriverError(
                f"tasks of {' and '.join(makers)} cannot share a network: each of these drivers joins only what it made"
            )
        if makers and self._network_driver(makers[0]) is None:
            raise DriverError(f'driver "{makers[0]}" has to make the network of its group, and this version cannot')
        return makers[0] if makers else ""

    def _network_driver(self, name: str) -> NetworkDriver | None:
        """The driver of a namespace that a driver made."""
        found: object = self._drivers.get(name)
        return found if name and isinstance(found, NetworkDriver) else None

    # Making and taking away.

    async def _make(self, plan: NetworkRecord, network: NetworkResource) -> NetworkRecord:
        """Make it, some times over when that fails; raises the last reason."""
        for attempt in range(1, ATTEMPTS + 1):
            self._known[plan.alloc_id] = plan
            try:
                async with self._at_once:
                    record = await self._make_once(plan, network)
            except DriverError as error:
                await self._undo(plan)
                if attempt == ATTEMPTS or not isinstance(error, RecoverableError):
                    raise type(error)(f'network of mode "{network.mode}": {error}') from None
                log.warning("the network of allocation %s failed, trying again: %s", plan.alloc_id, error)
                await self._env.sleep(RETRY_S)
            else:
                break
        self._known[plan.alloc_id] = record
        return record

    async def _make_once(self, plan: NetworkRecord, network: NetworkResource) -> NetworkRecord:
        path = Path(plan.namespace)
        await self._remember(plan)
        maker = self._network_driver(plan.maker)
        if maker is not None:
            source = await self._source(maker, plan.alloc_id, network)
            await asyncio.to_thread(namespaces.keep_namespace, source, path)
        else:
            await asyncio.to_thread(namespaces.make_namespace, path)
        record = plan
        if plan.config is not None and plan.attachment is not None:
            result = await plugins.add(plan.config, plan.attachment, self._settings.cni_paths)
            record = replace(plan, result=result, status=status_of(result))
        record = replace(record, identity=await asyncio.to_thread(namespaces.identity, path))
        await self._remember(record)
        return record

    async def _remember(self, record: NetworkRecord) -> None:
        try:
            await asyncio.to_thread(self._folder.write, record)
        except OSError as error:
            raise RecoverableError(f"cannot write {error.filename}: {error.strerror}") from None

    async def release(self, alloc_id: str) -> None:
        """The allocation is over: nothing of its network stays."""
        if alloc_id not in self._known:
            return
        async with self._lock(alloc_id):
            record = self._known.pop(alloc_id, None)
            if record is not None:
                await self._undo(record)

    async def _undo(self, record: NetworkRecord) -> str:
        """Disconnect and remove the namespace; the record goes when that has succeeded. What stays and why, or ""."""
        problems = []
        if record.config is not None and record.attachment is not None:
            problems.append(await self._disconnect(record))
        if record.namespace:
            problems.append(await asyncio.to_thread(_removed, Path(record.namespace)))
        if record.maker:
            problems.append(await self._unmake(record))
        self._known.pop(record.alloc_id, None)
        problem = "; ".join(filter(None, problems))
        if problem:
            self._left[record.alloc_id] = record
        else:
            await asyncio.to_thread(self._folder.remove, record.alloc_id)
        return problem

    async def _unmake(self, record: NetworkRecord) -> str:
        """Have the driver that made the namespace remove it; why it did not, or ""."""
        maker = self._network_driver(record.maker)
        problem = f"driver {record.maker}, which made the network of allocation {record.alloc_id}, is gone"
        if maker is not None:
            try:
                await maker.destroy_network(record.alloc_id)
            except YurtError as error:
                problem = f"driver {record.maker} keeps the network of allocation {record.alloc_id}: {error}"
            else:
                return ""
        log.warning("%s", problem)
        return problem

    async def _disconnect(self, record: NetworkRecord) -> str:
        """Have the plugins disconnect it; why they did not, or ""."""
        problem = ""
        assert record.config is not None and record.attachment is not None
        for attempt in range(1, ATTEMPTS + 1):
            try:
                async with self._at_once:
                    await plugins.delete(record.config, record.attachment, self._settings.cni_paths, record.result)
            except RecoverableError as error:
                log.warning("disconnecting allocation %s, attempt %d: %s", record.alloc_id, attempt, error)
                problem = f"the network of allocation {record.alloc_id} stays connected: {error}"
                await self._env.sleep(RETRY_S)
            else:
                return ""
        return problem

    # Files.

    def _files(self, record: NetworkRecord, network: NetworkResource) -> tuple[Mount, ...]:
        """/etc/hosts and /etc/resolv.conf of the namespace; blocking."""
        status = record.status or AllocNetworkStatus()
        hostname = network.hostname or record.alloc_id[:8]
        text = hosts_text(hostname, tuple(dict.fromkeys((status.address, status.address_ipv6))))
        names = self._folder.write_file(record.alloc_id, NAMES, text.encode(), may_grow=True)
        own = merged(network.dns, status.dns or DNSConfig())
        wanted = merged(own, host_resolver(is_namespaced=True))
        return (
            Mount(host_path=str(names), task_path="/etc/hosts", is_read_only=True),
            self._resolver(record.alloc_id, resolver_text(wanted)),
        )

    def _resolver(self, alloc_id: str, text: str) -> Mount:
        path = self._folder.write_file(alloc_id, RESOLVER, text.encode())
        return Mount(host_path=str(path), task_path="/etc/resolv.conf", is_read_only=True)
