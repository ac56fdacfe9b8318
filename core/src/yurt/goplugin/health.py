"""Watches a plugin's process and kills it after several unanswered health checks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Final

from yurt.goplugin.connection import CallSpec, Connection, NotOffered
from yurt.goplugin.messages import HEALTH_SERVICE
from yurt.goplugin.process import PluginProcess
from yurt.sdk.errors import Invalid, YurtError

log = logging.getLogger(__name__)

PING_S: Final = 15.0
PING_LIMIT_S: Final = 10.0
PINGS_MISSED_MAX: Final = 3


class HealthCheck:
    """Checks a plugin every `pause_s`; an answer may take `limit_s`."""

    def __init__(self, name: str, *, pause_s: float, limit_s: float) -> None:
        self._name = name
        self._pause_s = pause_s
        self._call = CallSpec(service=HEALTH_SERVICE, method="Check", limit_s=limit_s)

    async def watch(self, process: PluginProcess, connection: Connection) -> str:
        """Wait until the process has ended or was killed as unresponsive; returns the reason."""
        missed, failure = 0, ""
        while not process.watched.ended.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s):
                    await process.watched.wait()
            if process.watched.ended.is_set():
                break
            missed = 0 if await self._answers(connection) else missed + 1
            if missed >= PINGS_MISSED_MAX:
                failure = f"the plugin answered {missed} health checks in a row with silence; it is killed"
                log.warning("plugin %s: %s", self._name, failure)
                await process.end(patience_s=0)
        return failure or "the plugin's process ended"

    async def _answers(self, connection: Connection) -> bool:
        try:
            await connection.call(self._call, service="plugin")
        except (NotOffered, Invalid):
            return True  # it answers, and knows no health checks
        except YurtError:
            return False
        return True
