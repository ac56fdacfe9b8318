"""Finds the other servers at the configured addresses, and at those recorded in the last run."""

from __future__ import annotations

import asyncio
import logging

from yurt.agent.blocks.cluster import ClusterSettings
from yurt.agent.cluster.exchange import Exchange
from yurt.agent.cluster.membership import Membership
from yurt.http.cluster import Joined
from yurt.sdk.errors import Unavailable, YurtError
from yurt.structs.member import ALIVE

log = logging.getLogger(__name__)

PAUSE_FIRST_S = 1.0


class Joiner:
    """Joins the servers named in the configuration."""

    def __init__(
        self, settings: ClusterSettings, *, membership: Membership, exchange: Exchange, peers: tuple[str, ...]
    ) -> None:
        self._settings = settings
        self._membership = membership
        self._peers = peers
        self._exchange = exchange

    async def run(self) -> None:
        """Join, and retry until another server answers; raises Unavailable after the configured number of attempts."""
        start = self._settings.start_join
        if self._peers:
            await self.join(self._peers)
        if start and not self._has_live_peer():
            joined = await self.join(start)
            if not joined.count:
                raise Unavailable(f"start_join: no server can be joined: {'; '.join(joined.problems)}")
        if self._settings.retry_join:
            await self._retry(self._settings.retry_join)

    async def _retry(self, addresses: tuple[str, ...]) -> None:
        settings, pause_s, logged = self._settings, PAUSE_FIRST_S, ""
        attempts = 0
        while not self._has_live_peer():
            attempts += 1
            joined = await self.join(addresses)
            if joined.count:
                return
            problem = "; ".join(joined.problems) or "only this server itself answers there"
            if settings.retry_max and attempts >= settings.retry_max:
                raise Unavailable(f"retry_join: no server could be joined in {attempts} attempts: {problem}")
            if problem != logged:
                log.info("no other server can be joined yet, trying again: %s", problem)
            logged = problem
            await self._membership.wait_change(min(pause_s, settings.retry_interval_s))
            pause_s *= 2

    def _has_live_peer(self) -> bool:
        own = self._membership.own.name
        return any(each.status == ALIVE and each.name != own for each in self._membership.members())

    async def join(self, addresses: tuple[str, ...]) -> Joined:
        """Try all addresses at once; this server itself does not count."""
        async with asyncio.TaskGroup() as group:
            tries = [group.create_task(self._try(address), name=f"join {address}") for address in addresses]
        answers = [each.result() for each in tries]
        return Joined(
            count=sum(answer == "" for answer in answers),
            problems=tuple(answer for answer in answers if answer),
        )

    async def _try(self, address: str) -> str | None:
        """The error; "" when another server answered, None for this server itself."""
        try:
            name = await self._exchange.join(address)
        except YurtError as error:
            text = str(error)
            return text if text.startswith(address) else f"{address}: {text}"
        return None if name == self._membership.own.name else ""
