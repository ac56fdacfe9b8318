"""`plugin reload`: reloads the code of a plugin and replaces its drivers while their tasks keep running.

The new code must import, make its drivers and say that they work here before anything changes. Exec sessions in tasks
of the drivers end; tasks, waits for their ends and what is asked meanwhile do not notice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from importlib.metadata import EntryPoint
from typing import Any

from yurt.client.client import Client
from yurt.executor import zygote_client
from yurt.plugins import code
from yurt.plugins.manager import OK, PluginFailed, PluginManager, PluginStatus
from yurt.sdk.driver import Driver, PluginContext
from yurt.sdk.errors import Conflict, Invalid, NotFound
from yurt.sdk.plugin import PluginSkipped
from yurt.structs.plugins import PluginReloaded

log = logging.getLogger(__name__)


class PluginReloader:
    """Reloads the plugins of one agent, one at a time, and tracks their status."""

    def __init__(
        self,
        plugins: PluginManager,
        client: Client,
        *,
        statuses: Sequence[PluginStatus],
        context_for: Callable[[str], PluginContext],
        facts: Callable[[PluginStatus], Mapping[str, Any]],
    ) -> None:
        self._plugins = plugins
        self._client = client
        self._statuses = {status.name: status for status in statuses}
        self._context_for = context_for
        self._facts = facts
        self._turn = asyncio.Lock()

    def rows(self) -> list[Mapping[str, Any]]:
        """The plugins as the API shows them."""
        return [self._facts(status) for status in self._statuses.values()]

    async def reload(self, name: str) -> PluginReloaded:
        """Reload the code of a plugin; raises NotFound, Invalid or Conflict, after which the old code stays in use."""
        async with self._turn:
            status = self._reloadable(name)
            entry_point = code.find(name)
            old_modules = code.take_out(entry_point)
            try:
                fresh, new = self._load(status, entry_point)
            except BaseException:
                code.put_back(entry_point, old_modules)
                raise
            async with paused_zygotes():
                task_count = await self._exchange(status, entry_point, new, old_modules)
            self._statuses[name] = fresh
            log.info("plugin reloaded: plugin=%s version=%s tasks=%d", name, fresh.version, task_count)
            return PluginReloaded(name=name, version=fresh.version, drivers=fresh.drivers, tasks=task_count)

    def _reloadable(self, name: str) -> PluginStatus:
        owners = [each for each in self._statuses.values() if name == each.name or name in each.drivers]
        if not owners:
            raise NotFound(f'no plugin "{name}"; installed are: {", ".join(sorted(self._statuses)) or "none"}')
        status = owners[0]
        if what := status.fixed:
            raise Invalid(f'the plugin "{name}" offers {what}, which are taken up only at a start of the agent')
        if status.state != OK or not status.drivers:
            raise Invalid(f'the plugin "{name}" is {status.state} ({status.reason}); restart the agent to load it')
        return status

    def _load(self, status: PluginStatus, entry_point: EntryPoint) -> tuple[PluginStatus, dict[str, Driver]]:
        """Import the code and create its drivers; every failure becomes a Conflict with its reason."""
        try:
            return self._plugins.make_again(status, entry_point, self._context_for(status.name))
        except PluginSkipped as reason:
            raise Conflict(f"the new code has nothing to offer here: {reason}; the old one remains in use") from None
        except PluginFailed as error:
            raise Conflict(f"the new code fails: {error}; the old one remains in use") from error

    async def _exchange(
        self, status: PluginStatus, entry_point: EntryPoint, new: dict[str, Driver], old_modules: code.Modules
    ) -> int:
        """Exchange the drivers; on failure, restore the old code."""

        def remake() -> dict[str, Driver]:
            code.put_back(entry_point, old_modules)
            _, old = self._plugins.make_again(status, entry_point, self._context_for(status.name))
            self._plugins.put(old)
            return old

        try:
            task_count = await self._client.exchange_drivers(new, remake=remake)
        except BaseException:
            code.put_back(entry_point, old_modules)
            raise
        self._plugins.put(new)
        return task_count


@contextlib.asynccontextmanager
async def paused_zygotes() -> AsyncIterator[None]:
    """Keep the zygotes during an exchange of drivers: in dev mode, the end of a zygote would end its tasks."""
    zygotes = tuple(zygote_client.SHARED.values())
    for each in zygotes:
        each.users += 1
    try:
        yield
    finally:
        for each in zygotes:
            await zygote_client.release(each)
