"""Listens for the driver's critical errors on a thread of its own, because the wait blocks."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable

from yurt_device_nvidia.nvml import Nvml, NvmlProblem, Xid

WAIT_MS = 250

log = logging.getLogger(__name__)


class XidWatcher:
    """Passes every error to `on_xid`, on the event loop that started it."""

    def __init__(self, nvml: Nvml, on_xid: Callable[[Xid], None]) -> None:
        self._nvml = nvml
        self._on_xid = on_xid
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_listening(self) -> bool:
        """Whether errors are delivered."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Listen until stopped; no effect for a driver without events."""
        loop = asyncio.get_running_loop()
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, args=(loop,), name="nvidia-xids", daemon=True)
        self._thread.start()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            events = self._nvml.event_set()
            while events is not None and not self._stop.is_set():
                found = self._nvml.next_xid(events, WAIT_MS)
                if found is not None and not self._stop.is_set():
                    loop.call_soon_threadsafe(self._on_xid, found)
        except NvmlProblem as problem:
            if not self._stop.is_set():
                log.warning("watch for XID errors ended: %s", problem.reason)

    async def stop(self) -> None:
        """Stop listening; the thread notices it slightly later."""
        self._stop.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, 2 * WAIT_MS / 1000)
            self._thread = None
