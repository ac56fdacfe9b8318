"""Servers as separate processes with their own etcd members, so that tests can kill -9 them at any time.

`python -m yurt.testing.log_process CONFIG PAUSE_S` is one server: while it leads it appends numbers, one after another,
and says on its output which were acknowledged, when, and how the state looks that it has applied.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from yurt.runtime.env import RealEnv
from yurt.sdk.errors import YurtError
from yurt.storage.etcd.log import EtcdLog
from yurt.storage.etcd.member_process import EtcdMember
from yurt.storage.etcd.settings import EtcdMemberConfig
from yurt.storage.log import Entry
from yurt.testing.log_server import LogServer, running

REGION = "global"
DIGEST_EVERY = 25
END_LIMIT_S = 60.0


class Ack(NamedTuple):
    """An acknowledged number: its index in the log, and the time on the clock that all processes share."""

    number: int
    log_index: int
    at: float


def say(*words: object) -> None:
    """Print a line for the parent process."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


class DigestingServer(LogServer):
    """Reports a digest of the state at every index that is a multiple of `DIGEST_EVERY`."""

    def __init__(self, name: str, log: EtcdLog) -> None:
        super().__init__(name, log)
        self._hasher = hashlib.blake2b(digest_size=8)
        self._digested = 0

    def digest(self) -> None:
        """Advance the digest to the newest index."""
        while self._digested + DIGEST_EVERY <= len(self.applied):
            part = self.applied[self._digested : self._digested + DIGEST_EVERY]
            self._hasher.update(repr(part).encode())
            self._digested += DIGEST_EVERY
            say("digest", self._digested, self._hasher.hexdigest())

    async def append(self, numbers: Sequence[int], *, size: int = 0) -> None:
        """Append, then advance the digest."""
        await super().append(numbers, size=size)
        self.digest()

    def apply(self, entry: Entry) -> None:
        """Apply, then advance the digest."""
        super().apply(entry)
        self.digest()


class LogProcess:
    """A server process as the parent sees it; its output is kept when it is killed and restarted."""

    def __init__(self, config: EtcdMemberConfig, *, pause_s: float) -> None:
        self.config = config
        self.acks: list[Ack] = []
        self.digests: list[tuple[int, str]] = []
        self.etcd_pid = 0
        self.is_open = False
        """Its log is open, its etcd answers."""
        self._pause_s = pause_s
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    def start(self) -> None:
        """Start it over its existing data."""
        command = [sys.executable, "-m", __name__, msgspec.json.encode(self.config).decode(), str(self._pause_s)]
        with open(f"{self.config.data_dir}.log", "ab") as errors:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()

    def signal(self, number: int, *, to_etcd: bool = False) -> None:
        """Send a signal to the server, or to its etcd."""
        assert self._process is not None
        pid = self.etcd_pid if to_etcd else self._process.pid
        with suppress(ProcessLookupError):
            os.kill(pid, number)

    def kill(self) -> None:
        """Kill it with SIGKILL; its etcd member dies with it."""
        process, self._process = self._process, None
        self.is_open = False
        if process is not None:
            process.kill()
            process.wait(timeout=END_LIMIT_S)
            assert self._reader is not None
            self._reader.join(timeout=END_LIMIT_S)
            assert process.stdout is not None
            process.stdout.close()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            match line.split():
                case ["ack", number, index, at] if line.endswith("\n"):
                    self.acks.append(Ack(int(number), int(index), float(at)))
                case ["digest", index, digest] if line.endswith("\n"):
                    self.digests.append((int(index), digest))
                case ["open"]:
                    self.is_open = True
                case ["etcd", pid]:
                    self.etcd_pid = int(pid)


@contextmanager
def log_processes(configs: Sequence[EtcdMemberConfig], *, pause_s: float) -> Iterator[list[LogProcess]]:
    """Run servers during the block."""
    servers = [LogProcess(config, pause_s=pause_s) for config in configs]
    try:
        for server in servers:
            server.start()
        yield servers
    finally:
        for server in servers:
            with suppress(AssertionError):
                server.signal(signal.SIGCONT)
            server.kill()


async def serve(config: EtcdMemberConfig, pause_s: float) -> None:
    """Entry point of the child process: run a server until killed."""
    env = RealEnv()
    member = EtcdMember(config, env=env)
    log = EtcdLog(
        endpoints=(config.client_endpoint,),
        folder=Path(config.data_dir) / "log",
        name=config.name,
        region=REGION,
        env=env,
        own_endpoint=config.client_endpoint,
    )
    await member.start()
    async with asyncio.TaskGroup() as group:
        group.create_task(member.run())
        group.create_task(_tell_etcd(member))
        async with running(DigestingServer(config.name, log)) as server:
            say("open")
            while True:
                await _write(server)
                await asyncio.sleep(pause_s)


async def _write(server: LogServer) -> None:
    number = time.monotonic_ns()
    with suppress(YurtError):
        await server.append([number])
        say("ack", number, len(server.applied), time.monotonic())


async def _tell_etcd(member: EtcdMember) -> None:
    reported = 0
    while True:
        if member.pid not in (0, reported):
            reported = member.pid
            say("etcd", reported)
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s.%(msecs)03d %(name)s %(message)s", datefmt="%H:%M:%S")
    asyncio.run(serve(msgspec.json.decode(sys.argv[1], type=EtcdMemberConfig), float(sys.argv[2])))
