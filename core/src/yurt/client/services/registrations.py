"""Registers an allocation's services with one provider, and retries until it answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine
from typing import Any, Final

from yurt.client.timed_waits import finish_within, wait_or_sleep
from yurt.runtime.env import Env
from yurt.runtime.supervise import outcome_of, supervised
from yurt.sdk.errors import Unavailable, YurtError
from yurt.sdk.services import ServiceInstance, ServiceProvider

RETRY_S = 1.0
CALL_LIMIT_S: Final = 10.0
"""The time limit for one call of a provider, which is then cancelled and made again."""

log = logging.getLogger(__name__)

DesiredServices = dict[str, ServiceInstance]
"""Services by id."""


class Registrations:
    """The desired and the confirmed registrations of one allocation with one provider."""

    def __init__(self, provider: ServiceProvider, env: Env, group: asyncio.TaskGroup) -> None:
        self._provider = provider
        self._env = env
        self._group = group
        self._desired: DesiredServices = {}
        self._confirmed: dict[str, ServiceInstance | None] = {}
        """The confirmed registrations by id; None where it is uncertain what the provider has registered."""
        self._changed = asyncio.Event()
        self._settled = asyncio.Event()
        self._settled.set()
        self._worker: asyncio.Task[None] | None = None

    def want(self, desired: DesiredServices) -> None:
        """Set the desired registrations."""
        has_changed, self._desired = desired != self._desired, desired
        if has_changed or (self._is_idle and not self._confirmed.keys() <= desired.keys()):
            self._wake()

    def doubt(self, ids: Collection[str]) -> None:
        """Record registrations that an earlier agent may have made: they are deregistered unless desired next."""
        self._confirmed = dict.fromkeys(ids) | self._confirmed

    def resend(self) -> None:
        """Register again, because the provider may have lost its registrations."""
        self._confirmed = dict.fromkeys(self._confirmed)  # forgetting one would lose its deregistration if that is due
        self._wake()

    async def wait_settled(self, limit_s: float) -> None:
        """Wait, within a time limit, until the provider has exactly the desired registrations."""
        await wait_or_sleep(self._env, self._settled, limit_s)

    @property
    def _is_idle(self) -> bool:
        return self._worker is None or self._worker.done()

    def _wake(self) -> None:
        self._settled.clear()
        self._changed.set()
        if self._is_idle:
            self._worker = supervised(self._group, "registration of services", self._keep())

    async def _keep(self) -> None:
        """Repeat until the provider has exactly the desired registrations."""
        while True:
            self._changed.clear()
            error = await outcome_of(self._bring_up_to_date())
            if error is not None:
                trace = None if isinstance(error, YurtError) else error
                name = self._provider.name
                log.warning("registering services failed, trying again: provider=%s: %s", name, error, exc_info=trace)
                await wait_or_sleep(self._env, self._changed, RETRY_S)
            elif not self._changed.is_set():
                self._settled.set()
                return

    async def _bring_up_to_date(self) -> None:
        desired = self._desired
        gone = tuple(service_id for service_id in self._confirmed if service_id not in desired)
        if gone:
            await self._answer(self._provider.deregister(gone))
            for service_id in gone:
                self._confirmed.pop(service_id, None)
        new = tuple(service for service in desired.values() if self._confirmed.get(service.id) != service)
        if new:
            self._confirmed |= dict.fromkeys((service.id for service in new), None)
            await self._answer(self._provider.register(new))
            self._confirmed |= {service.id: service for service in new if service.id in self._confirmed}

    async def _answer(self, call: Coroutine[Any, Any, None]) -> None:
        """Await a call of the provider; raises Unavailable when it hangs, so that later changes are not delayed."""
        if not await finish_within(self._env, call, CALL_LIMIT_S):
            raise Unavailable(f"no answer within {CALL_LIMIT_S:g} s")
