"""Processes identified by (pid, start time): a signal never reaches another process that reuses the pid.

On Linux a pidfd is opened first and the start time compared afterwards, so that the descriptor certainly refers to the
right process. Elsewhere the start time is compared just before the signal.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import psutil

HAS_PIDFD = hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal")
BOOT_ID_FILE = "/proc/sys/kernel/random/boot_id"
ZOMBIE_STATES = ("Z", "X")
STAT_BYTES = 4096
"""More than the file of a process has."""


def boot_id() -> str:
    """The id of the machine's boot: start times are comparable only within one."""
    try:
        return Path(BOOT_ID_FILE).read_text(encoding="ascii").strip()
    except OSError:
        return str(int(psutil.boot_time()))


def start_time(pid: int) -> int:
    """The start time of a live process, in system ticks; 0 when it is absent, a zombie, or unknown."""
    try:
        return read_start_time(pid)
    except OSError:
        return 0


def read_start_time(pid: int) -> int:
    """Like `start_time`; raises OSError when it cannot be read, for example for lack of descriptors."""
    try:
        # Three system calls: the agent looks at each process several times at its start and end.
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            fields = os.read(descriptor, STAT_BYTES).rpartition(b")")[2].split()
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return 0 if os.path.isdir("/proc/self") else start_time_elsewhere(pid)
    except ProcessLookupError:
        return 0
    return 0 if fields[0].decode() in ZOMBIE_STATES else int(fields[19])


def start_time_elsewhere(pid: int) -> int:
    """The start time on systems without /proc, in microseconds since 1970."""
    try:
        process = psutil.Process(pid)
        return 0 if process.status() == psutil.STATUS_ZOMBIE else int(process.create_time() * 1_000_000)
    except psutil.Error:
        return 0


def is_alive(pid: int, started: int) -> bool:
    """Whether this process is alive; where its start time cannot be read, whether its pid exists.

    A task is not said to have ended because its agent has no descriptor left.
    """
    if pid <= 0 or started <= 0:
        return False
    try:
        return read_start_time(pid) == started
    except OSError:
        return pid_exists(pid)


def pid_exists(pid: int) -> bool:
    """Whether a process with this pid exists, alive or not yet reaped."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def open_process(pid: int, started: int) -> int | None:
    """A pidfd of this process; None when it has ended or the system lacks pidfds."""
    if not HAS_PIDFD:
        return None
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return None
    if is_alive(pid, started):
        return fd
    os.close(fd)
    return None


def send_signal(pid: int, started: int, number: int) -> bool:
    """Signal this process; false when it has ended."""
    if not HAS_PIDFD:
        return is_alive(pid, started) and try_kill(pid, number)
    fd = open_process(pid, started)
    if fd is None:
        return is_alive(pid, started) and try_kill(pid, number)
    try:
        signal.pidfd_send_signal(fd, signal.Signals(number))
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)
    return True


def try_kill(pid: int, number: int) -> bool:
    """Signal a pid, if it exists."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def signal_number(name: str) -> int:
    """The number for SIGHUP, hup or 1; 0 for an unknown signal."""
    text = name.strip().upper()
    if text.isdigit():
        return int(text) if int(text) in {int(each) for each in signal.valid_signals()} else 0
    full = text if text.startswith("SIG") else f"SIG{text}"
    return int(getattr(signal, full)) if isinstance(getattr(signal, full, None), signal.Signals) else 0


def relatives(pid: int, started: int, shim: int) -> list[psutil.Process]:
    """Processes of a task: its session, their descendants, and those of its shim.

    The system keeps a session's number while it has members: one whose process started at another time is a stranger's.
    """
    members: dict[int, psutil.Process] = {}
    if start_time(pid) in (0, started):
        members = {process.pid: process for process in psutil.process_iter() if session_of(process.pid) == pid}
    for root in (shim, *list(members)):
        with contextlib.suppress(psutil.Error):
            members |= {child.pid: child for child in psutil.Process(root).children(recursive=True)}
    members.pop(shim, None)
    return [process for process in members.values() if start_time(process.pid)]


def all_pids() -> list[int]:
    """All pids of the machine; blocking."""
    return psutil.pids()


def session_of(pid: int) -> int:
    """The session of a process, or 0."""
    try:
        return os.getsid(pid)
    except OSError:
        return 0


def kill_all(found: list[psutil.Process]) -> None:
    """Send SIGKILL to each; psutil compares the start times first."""
    for process in found:
        with contextlib.suppress(psutil.Error):
            process.kill()


def by_pid(pids: list[int]) -> list[psutil.Process]:
    """The living processes among the pids."""
    found = []
    for pid in filter(start_time, pids):
        with contextlib.suppress(psutil.Error):
            found.append(psutil.Process(pid))
    return found
