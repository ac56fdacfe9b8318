"""Brings one provider to the services that an allocation wants known, and tries again until it answers."""

from __future__ import annotations

import asyncio
import logging

from yurt.client.waiting import wait_or_sleep
from yurt.runtime.env import Env
from yurt.runtime.supervise import outcome_of, supervised
from yurt.sdk.errors import YurtError
from yurt.sdk.services import ServiceInstance, ServiceProvider

RETRY_S = 1.0

log = logging.getLogger(__name__)

Wanted = dict[str, ServiceInstance]
"""Services by id."""


class Registrations:
    """What one provider is to know of one allocation, and what it knows."""

    def __init__(self, provider: ServiceProvider, env: Env, group: asyncio.TaskGroup) -> None:
        self._provider = provider
        self._env = env
        self._group = group
        self._wanted: Wanted = {}
        self._known: dict[str, ServiceInstance | None] = {}
        """None for one of which it is not certain what the provider has heard."""
        self._changed = asyncio.Event()
        self._settled = asyncio.Event()
        self._settled.set()
        self._worker: asyncio.Task[None] | None = None

    def want(self, wanted: Wanted) -> None:
        """These are to be known, and no others."""
        if wanted != self._wanted:
            self._wanted = wanted
            self._wake()

    def resend(self) -> None:
        """The provider may have forgotten what it was told."""
        self._known.clear()
        self._wake()

    async def wait_settled(self, limit_s: float) -> None:
        """Wait until the provider knows exactly what is wanted, but not for long."""
        await wait_or_sleep(self._env, self._settled, limit_s)

    def _wake(self) -> None:
        self._settled.clear()
        self._changed.set()
        if self._worker is None or self._worker.done():
            self._worker = supervised(self._group, "registration of services", self._keep())

    async def _keep(self) -> None:
        """Until the provider knows exactly what is wanted."""
        while True:
            self._changed.clear()
            error = await outcome_of(self._bring_up_to_date())
            if error is not None:
                trace = None if isinstance(error, YurtError) else error
                log.warning("services are not up to date with the servers, trying again: %s", error, exc_info=trace)
                await wait_or_sleep(self._env, self._changed, RETRY_S)
            elif not self._changed.is_set():
                self._settled.set()
                return

    async def _bring_up_to_date(self) -> None:
        wanted = self._wanted
        gone = tuple(service_id for service_id in self._known if service_id not in wanted)
        if gone:
            await self._provider.deregister(gone)
            for service_id in gone:
                self._known.pop(service_id, None)
        new = tuple(service for service in wanted.values() if self._known.get(service.id) != service)
        if new:
            self._known |= dict.fromkeys((service.id for service in new), None)
            await self._provider.register(new)
            self._known |= {service.id: service for service in new if service.id in self._known}
