"""Makes the network of each allocation for its first task, and removes it when the allocation has ended.

Each task calls `join` before each start; the first one makes the network, the others find it. A found network is
trusted only when its namespace is the recorded one. A partly made network is undone before it is made again
(`construction`). A network that cannot be removed keeps its record, and the removal is repeated at intervals, also by
later agents.
"""

from __future__ import annotations

import asyncio
import logging
from weakref import WeakValueDictionary

from yurt.client.networks.construction import Construction
from yurt.client.networks.etc_files import EtcFiles
from yurt.client.networks.offers import OfferedNetworks
from yurt.client.networks.plan import HOST_MODES, network_of, planned
from yurt.client.networks.records import NetworkRecord, Owner
from yurt.runtime.env import Env
from yurt.sdk.driver import Driver, Mount
from yurt.sdk.errors import DriverError, RecoverableError
from yurt.sdk.value import Value
from yurt.structs.alloc import Allocation, AllocNetworkStatus
from yurt.structs.job import TaskGroup
from yurt.structs.network import NetworkResource

GROUP = "group"
CLEAR_EVERY_S = 60.0

log = logging.getLogger(__name__)


class TaskNetwork(Value):
    """A task's view of its group's network: the namespace, its address, and files in /etc."""

    namespace: str = ""
    status: AllocNetworkStatus | None = None
    mounts: tuple[Mount, ...] = ()


class Networks:
    """The networks of all allocations of this node."""

    def __init__(self, offers: OfferedNetworks, construction: Construction, env: Env, *, owner: Owner) -> None:
        self._offers = offers
        self._construction = construction
        self._env = env
        self._owner = owner
        self._files = EtcFiles(construction.folder)
        self._records: dict[str, NetworkRecord] = {}
        self._leftover: dict[str, NetworkRecord] = {}
        """Unneeded networks whose removal failed so far."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def open(self, allocs: set[str]) -> None:
        """Read what an earlier agent left; `allocs` are the allocations that it ran."""
        records = await asyncio.to_thread(self._construction.folder.owned_by, self._owner)
        self._records = {record.alloc_id: record for record in records if self._goes_on(record, allocs)}
        self._leftover = {record.alloc_id: record for record in records if record.alloc_id not in self._records}

    def _goes_on(self, record: NetworkRecord, allocs: set[str]) -> bool:
        return record.owner.state_dir == self._owner.state_dir and record.alloc_id in allocs

    async def run(self) -> None:
        """Remove leftover networks, check the present ones, then retry failed removals until cancelled."""
        for record in self._leftover.values():
            log.info("removing the network of a forgotten allocation: allocation=%s", record.alloc_id)
        await self._clear()
        for record in tuple(self._records.values()):
            async with self._lock(record.alloc_id):
                if self._records.get(record.alloc_id) is record:
                    await self._construction.check(record)
        while True:
            await self._env.sleep(CLEAR_EVERY_S)
            await self._clear()

    async def _clear(self) -> None:
        for alloc_id in tuple(self._leftover):
            async with self._lock(alloc_id):
                record = self._leftover.pop(alloc_id, None)
                if record is not None and alloc_id not in self._records:
                    await self._undo(record)

    def status(self, alloc_id: str) -> AllocNetworkStatus | None:
        """The address of an allocation that has joined its network."""
        record = self._records.get(alloc_id)
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
                mounts = await self._files.of_namespace(record, network) if driver.capabilities.mounts else ()
            except OSError as error:
                raise RecoverableError(f"cannot prepare the network: {error.strerror} ({error.filename})") from None
            return TaskNetwork(namespace=record.namespace, status=record.status, mounts=mounts)

    def _lock(self, alloc_id: str) -> asyncio.Lock:
        """The lock of an allocation; it exists while it is in use."""
        return self._locks.setdefault(alloc_id, asyncio.Lock())

    async def _host_network(self, alloc: Allocation, network: NetworkResource, driver: Driver) -> TaskNetwork:
        """The host's own network; only its resolver may differ."""
        if network.dns is None or not driver.capabilities.mounts:
            return TaskNetwork()
        if alloc.id not in self._records:
            self._records[alloc.id] = NetworkRecord(alloc_id=alloc.id, owner=self._owner)
            await self._construction.write(self._records[alloc.id])
        return TaskNetwork(mounts=await self._files.of_host(alloc.id, network.dns))

    async def _joined(self, alloc: Allocation, group: TaskGroup, network: NetworkResource) -> NetworkRecord:
        record = self._records.get(alloc.id) or await asyncio.to_thread(self._construction.folder.read, alloc.id)
        if record is not None and record.identity and await self._construction.is_intact(record, network):
            self._records[alloc.id] = record
            return record
        if record is not None:
            await self._undo(record)
        plan = planned(
            alloc,
            network,
            self._offers.offered,
            owner=self._owner,
            maker=self._construction.makers.name_for(group),
            binds_wildcard=self._construction.settings.binds_wildcard,
        )
        # Recorded from now on, so that `release` also removes the network of a start that is cancelled here.
        self._records[alloc.id] = plan
        try:
            record = await self._construction.make(plan, network)
        except DriverError as error:
            await self._undo(plan)
            raise type(error)(f'network of mode "{network.mode}": {error}') from None
        self._records[alloc.id] = record
        return record

    async def release(self, alloc_id: str) -> None:
        """Remove the network of an ended allocation."""
        if alloc_id not in self._records:
            return
        async with self._lock(alloc_id):
            record = self._records.get(alloc_id)
            if record is not None:
                await self._undo(record)

    async def _undo(self, record: NetworkRecord) -> None:
        problem = await self._construction.undo(record)
        self._records.pop(record.alloc_id, None)
        if problem:
            self._leftover[record.alloc_id] = record
