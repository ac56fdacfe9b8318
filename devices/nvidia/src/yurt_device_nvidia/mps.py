"""NVIDIA's Multi-Process Service: one control daemon per shared card.

The daemon lets the programs of several tasks run on one card at the same time, and keeps each within its memory and its
part of the card's processors. It is started before the first such task of a card and stopped after the last one.
Like tasks it outlives the agent, but not one in development mode; the next agent finds it by its pipe folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterable
from pathlib import Path

from yurt.sdk.device import ClaimedDevices, Reservation
from yurt.sdk.driver import Mount
from yurt.sdk.errors import DriverError, RecoverableError

PROGRAM = "nvidia-cuda-mps-control"
PID_FILE = f"{PROGRAM}.pid"
CARD_FILE = "card"
SHORT_LENGTH = 12
SHARED_MEMORY = "/dev/shm"
ANSWER_LIMIT_S = 15.0
SAID_BYTES_MAX = 4096


class MpsDaemons:
    """The daemons below one folder, `<folder>/<end of the card's id>/pipe`, since a socket's path must be short."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._locks: dict[str, asyncio.Lock] = {}

    @staticmethod
    def is_installed() -> bool:
        """Whether daemons can be started here."""
        return shutil.which(PROGRAM) is not None

    def pipe_folder(self, card: str) -> Path:
        """The folder in which programs find a card's daemon."""
        return self._folder / card[-SHORT_LENGTH:] / "pipe"

    def running(self) -> list[str]:
        """The cards with a running daemon."""
        live = (file.parent.parent for file in self._folder.glob(f"*/pipe/{PID_FILE}") if is_alive(file))
        return sorted((folder / CARD_FILE).read_text() for folder in live if (folder / CARD_FILE).is_file())

    async def ensure(self, card: str) -> None:
        """Start a card's daemon unless it runs; raises DriverError on failure."""
        async with self._locks.setdefault(card, asyncio.Lock()):
            pipes = self.pipe_folder(card)
            if is_alive(pipes / PID_FILE):
                return
            if not self.is_installed():
                raise DriverError(f"{PROGRAM} is not on PATH; install the NVIDIA driver's utilities on this client")
            for folder in (pipes, pipes.parent / "log"):
                folder.mkdir(parents=True, exist_ok=True, mode=0o755)
            (pipes.parent / CARD_FILE).write_text(card)
            failure = await self._control(card, "-d")
            if failure:
                raise RecoverableError(f"the MPS daemon of {card} does not start: {failure}")

    async def quit(self, card: str) -> None:
        """Ask a card's daemon to quit; it ends after the programs that still use it."""
        async with self._locks.setdefault(card, asyncio.Lock()):
            pid_file = self.pipe_folder(card) / PID_FILE
            if is_alive(pid_file) and await self._control(card, given=b"quit\n"):
                terminate(pid_file)
            shutil.rmtree(self.pipe_folder(card).parent, ignore_errors=True)

    async def keep(self, cards: Iterable[str], *, startable: frozenset[str]) -> None:
        """Run exactly these daemons; those of unresponsive cards are not started."""
        active = set(cards)
        for card in self.running():
            if card not in active:
                await self.quit(card)
        for card in sorted(active & startable):
            await self.ensure(card)

    async def _control(self, card: str, *words: str, given: bytes = b"") -> str:
        """Run the control program; returns why it failed, or nothing.

        Files take the place of pipes: the daemon that it leaves behind would hold a pipe open.
        """
        pipes = self.pipe_folder(card)
        env = {
            **os.environ,
            "CUDA_VISIBLE_DEVICES": card,
            "CUDA_MPS_PIPE_DIRECTORY": str(pipes),
            "CUDA_MPS_LOG_DIRECTORY": str(pipes.parent / "log"),
        }
        with tempfile.TemporaryFile() as words_in, tempfile.TemporaryFile() as said:
            words_in.write(given)
            words_in.seek(0)
            try:
                process = await asyncio.create_subprocess_exec(
                    PROGRAM,
                    *words,
                    env=env,
                    start_new_session=True,
                    stdin=words_in,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=said,
                )
            except OSError as error:
                return str(error)
            if not await ended(process):
                return f"no answer within {ANSWER_LIMIT_S:g} s"
            said.seek(0)
            text = said.read(SAID_BYTES_MAX).decode(errors="replace").strip()
        return "" if process.returncode == 0 else text or f"code {process.returncode}"


async def ended(process: asyncio.subprocess.Process) -> bool:
    """Whether a process ended by itself within the limit; it is killed otherwise."""
    try:
        async with asyncio.timeout(ANSWER_LIMIT_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
        return False
    return True


def is_alive(pid_file: Path) -> bool:
    """Whether the process in a pid file is an MPS daemon."""
    try:
        name = Path(f"/proc/{int(pid_file.read_text())}/cmdline").read_bytes()
    except (OSError, ValueError):
        return False
    return PROGRAM.encode() in name


def terminate(pid_file: Path) -> None:
    """End a daemon that does not respond to quit."""
    with contextlib.suppress(OSError, ValueError):
        if is_alive(pid_file):
            os.kill(int(pid_file.read_text()), signal.SIGTERM)


def limits(claimed: ClaimedDevices, pipes: Path) -> Reservation:
    """The variables and mounts with which a task joins its card's daemon, within its share."""
    env = {"CUDA_MPS_PIPE_DIRECTORY": str(pipes)}
    if claimed.memory_mb:
        env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={claimed.memory_mb * len(claimed.ids)}M"
    if claimed.compute:
        env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(min(100, claimed.compute * len(claimed.ids)))
    mounts = (
        Mount(host_path=str(pipes), task_path=str(pipes)),
        Mount(host_path=SHARED_MEMORY, task_path=SHARED_MEMORY),
    )
    return Reservation(env=env, mounts=mounts)
