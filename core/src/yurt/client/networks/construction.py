"""Makes and removes one network: a namespace, its connection by CNI plugins, and the record of both.

    nothing -record of the intent-> namespace -ADD-> joined -DEL-> namespace gone -> record gone

The intent is on disk before anything is made, and the record goes after everything else is gone, so that a crash
anywhere leaves nothing that a later agent does not find.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from yurt.client.networks import namespaces, plugins
from yurt.client.networks.cni import status_of
from yurt.client.networks.makers import NamespaceMakers, namespace_of
from yurt.client.networks.records import NetworkRecord, RecordFolder
from yurt.client.networks.settings import NetworkSettings
from yurt.runtime.env import Env
from yurt.sdk.errors import RecoverableError, YurtError
from yurt.sdk.value import replace
from yurt.structs.network import NetworkResource

ATTEMPTS = 3
RETRY_S = 0.2
AT_ONCE = 4
"""The number of networks that are made or removed at the same time: each runs several programs."""

log = logging.getLogger(__name__)


class Construction:
    """Makes networks from plans, and removes them."""

    def __init__(self, settings: NetworkSettings, env: Env, *, makers: NamespaceMakers, folder: RecordFolder) -> None:
        self.settings = settings
        self.makers = makers
        self.folder = folder
        self._env = env
        self._at_once = asyncio.Semaphore(AT_ONCE)

    async def make(self, plan: NetworkRecord, network: NetworkResource) -> NetworkRecord:
        """Make a network, in several attempts; after a DriverError the caller must call `undo`."""
        for _ in range(ATTEMPTS - 1):
            try:
                return await self._make_once(plan, network)
            except RecoverableError as error:
                log.warning("making a network failed, trying again: allocation=%s error=%s", plan.alloc_id, error)
                await self.undo(plan)
            await self._env.sleep(RETRY_S)
        return await self._make_once(plan, network)

    async def _make_once(self, plan: NetworkRecord, network: NetworkResource) -> NetworkRecord:
        path = Path(plan.namespace)
        async with self._at_once:
            await self.write(plan)
            maker = self.makers.get(plan.maker)
            if maker is not None:
                source = await namespace_of(maker, plan.alloc_id, network)
                await asyncio.to_thread(namespaces.keep_namespace, source, path)
            else:
                await asyncio.to_thread(namespaces.make_namespace, path)
            record = plan
            if plan.config is not None and plan.attachment is not None:
                result = await plugins.add(plan.config, plan.attachment, self.settings.cni_paths)
                record = replace(plan, result=result, status=status_of(result))
            record = replace(record, identity=await asyncio.to_thread(namespaces.identity, path))
            await self.write(record)
            return record

    async def write(self, record: NetworkRecord) -> None:
        """Write a record to disk; raises RecoverableError."""
        try:
            await asyncio.to_thread(self.folder.write, record)
        except OSError as error:
            raise RecoverableError(f"cannot write {error.filename}: {error.strerror}") from None

    async def is_intact(self, record: NetworkRecord, network: NetworkResource) -> bool:
        """Whether the namespace is the recorded one, and the driver that made it still has it."""
        now = await asyncio.to_thread(namespaces.identity, record.namespace)
        maker = self.makers.get(record.maker)
        if maker is not None:
            source = await namespace_of(maker, record.alloc_id, network)
            return now == record.identity == await asyncio.to_thread(namespaces.identity, source)
        return now == record.identity

    async def check(self, record: NetworkRecord) -> None:
        """Have the plugins CHECK a network against the result of its creation; log a difference."""
        if record.config is None or record.attachment is None or record.result is None:
            return
        try:
            await plugins.check(record.config, record.attachment, self.settings.cni_paths, record.result)
        except YurtError as error:
            log.warning("network differs from its record: allocation=%s error=%s", record.alloc_id, error)

    async def undo(self, record: NetworkRecord) -> str:
        """Disconnect and remove the namespace, then its record. Returns the remaining part with the reason, or ""."""
        problems = []
        if record.config is not None and record.attachment is not None:
            problems.append(await self._disconnect(record))
        if record.namespace:
            problems.append(await asyncio.to_thread(_removed, Path(record.namespace)))
        if record.maker:
            problems.append(await self.makers.destroy(record.maker, record.alloc_id))
        problem = "; ".join(filter(None, problems))
        if problem:
            log.warning("removing a network failed: allocation=%s error=%s", record.alloc_id, problem)
        else:
            await asyncio.to_thread(self.folder.remove, record.alloc_id)
        return problem

    async def _disconnect(self, record: NetworkRecord) -> str:
        """Have the plugins disconnect the namespace; returns the reason of a failure, or ""."""
        problem = ""
        assert record.config is not None and record.attachment is not None
        for attempt in range(1, ATTEMPTS + 1):
            try:
                async with self._at_once:
                    await plugins.delete(record.config, record.attachment, self.settings.cni_paths, record.result)
            except RecoverableError as error:
                log.warning(
                    "disconnecting a network failed: allocation=%s attempt=%d error=%s", record.alloc_id, attempt, error
                )
                problem = f"the network of allocation {record.alloc_id} stays connected: {error}"
                await self._env.sleep(RETRY_S)
            else:
                return ""
        return problem


def _removed(path: Path) -> str:
    """Remove a namespace; returns the reason of a failure, or "". Blocking."""
    try:
        namespaces.remove_namespace(path)
    except OSError as error:
        return f"the network namespace {path} stays: {error.strerror}"
    return ""
