"""Tells systemd that the agent is ready, reloads, stops, and is alive (sd_notify, without its library).

A unit of `Type=notify` or `notify-reload` names a datagram socket in `NOTIFY_SOCKET`. The variables are taken out of
the environment, so that no task speaks for the agent. Without them nothing is sent.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import MutableMapping
from typing import Final

from yurt.runtime.env import Env

_VARIABLES: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")

EXTENSION_S: Final = 30.0
"""For how long each request for more time to stop holds."""


class Notifier:
    """Sends one agent's notifications to systemd."""

    def __init__(self, environ: MutableMapping[str, str], env: Env) -> None:
        found = {name: environ.pop(name, "") for name in _VARIABLES}
        self._address = found["NOTIFY_SOCKET"]
        self._env = env
        is_meant = found["WATCHDOG_PID"] in ("", str(os.getpid()))
        micros = found["WATCHDOG_USEC"]
        self.watchdog_s = int(micros) / 1e6 if is_meant and micros.isdecimal() else 0.0
        """After so long without a sign of life systemd ends the agent; 0: never."""

    def ready(self, status: str) -> None:
        """The agent answers; `status` is shown by `systemctl status`."""
        self._send("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """Report that SIGHUP has arrived; `ready` follows."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={int(self._env.monotonic() * 1e6)}")

    def stopping(self, status: str) -> None:
        """The agent ends."""
        self._send("STOPPING=1", f"STATUS={status}")

    async def keep_waiting(self) -> None:
        """Ask for more time to stop, until cancelled."""
        while self._address:
            self._send(f"EXTEND_TIMEOUT_USEC={int(EXTENSION_S * 1e6)}")
            await self._env.sleep(EXTENSION_S / 3)

    async def run_watchdog(self) -> None:
        """Send a sign of life twice in each period; a blocked loop sends none."""
        while self._address and self.watchdog_s:
            self._send("WATCHDOG=1")
            await self._env.sleep(self.watchdog_s / 2)

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        # An address that begins with @ is in the abstract name space.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        text = "\n".join(line.replace("\n", " ") for line in lines)
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out,
        ):
            out.setblocking(False)
            out.sendto(text.encode(), address)
