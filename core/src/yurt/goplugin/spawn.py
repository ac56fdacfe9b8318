"""Starts programs that outlive the agent: they depend on no transport, pipe or thread of the agent."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence

from yurt.executor import process_identity

POLL_S = 0.1


def spawn(command: Sequence[str], *, env: Mapping[str, str], outputs: tuple[int, int] | None = None) -> int:
    """Start a program in a session of its own, with descriptors for stdout and stderr; its pid. Raises OSError."""
    null = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0)
    stdout, stderr = outputs or (0, 0)
    actions = [null, (os.POSIX_SPAWN_DUP2, stdout, 1), (os.POSIX_SPAWN_DUP2, stderr, 2)]
    defaults = [signal.SIGPIPE, signal.SIGXFSZ]
    return os.posix_spawn(command[0], list(command), dict(env), file_actions=actions, setsid=True, setsigdef=defaults)


class WatchedProcess:
    """A process by its pid and start time, whether it is our child or that of an earlier agent."""

    def __init__(self, pid: int, start_time: int) -> None:
        self.pid = pid
        self.start_time = start_time
        self.ended = asyncio.Event()
        self.code: int | None = None
        self._pidfd = process_identity.open_process(pid, start_time)
        if self._pidfd is not None:
            asyncio.get_running_loop().add_reader(self._pidfd, self._on_end)
        elif not self.is_alive:
            self._on_end()

    @property
    def is_alive(self) -> bool:
        """Whether this process runs; another process with the same pid does not count."""
        return process_identity.is_alive(self.pid, self.start_time)

    def _on_end(self) -> None:
        self.leave()
        with contextlib.suppress(ChildProcessError):
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        self.ended.set()

    async def wait(self) -> None:
        """Wait until the process is gone."""
        while not self.ended.is_set():
            if self._pidfd is not None:
                await self.ended.wait()
            elif not self.is_alive:
                self._on_end()
            else:
                await asyncio.sleep(POLL_S)

    def send(self, number: int) -> None:
        """Send a signal, if the process is still there."""
        process_identity.send_signal(self.pid, self.start_time, number)

    def leave(self) -> None:
        """Stop watching."""
        if self._pidfd is not None:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
