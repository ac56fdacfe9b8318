"""The context of a task's process: user, environment, folder, commands alongside it, usage and exit result."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pwd
import signal
from collections.abc import Mapping
from pathlib import Path

import msgspec
import psutil

from yurt.executor.cgroups import write_setting
from yurt.executor.spec import ExitRecord, ProcessSpec, UserIds, candidates, search_path
from yurt.sdk.driver import ExecResult, ExitResult, TaskStats
from yurt.sdk.dynamic_users import dynamic_uid
from yurt.sdk.errors import DriverError
from yurt.sdk.search_permission import grant_search
from yurt.sdk.value import NANOSECONDS, Duration, UnixNano

EXEC_OUTPUT_BYTES_MAX = 10 * 1024 * 1024
READ_SIZE = 65536


def check_spec(spec: ProcessSpec) -> None:
    """Check for commands that no system can start: an empty one, or a NUL in a word; raises DriverError."""
    if not spec.argv or not spec.argv[0]:
        raise DriverError(f"task {spec.task_id} names no command; set `command` in its config block")
    words = (*spec.argv, spec.cwd, *spec.env.keys(), *spec.env.values())
    if "\0" in "".join(words):
        raise DriverError(f'cannot start "{spec.argv[0]}": an argument or a variable contains a NUL character')
    wrong = [key for key in spec.env if "=" in key or not key]
    if wrong:
        raise DriverError(f'cannot start "{spec.argv[0]}": "{wrong[0]}" is not a name for an environment variable')


def look_up_user(user: str) -> UserIds:
    """A user's ids by name or number, a dynamic user's by its name; the agent's own without one."""
    if not user:
        return UserIds(uid=os.geteuid(), gid=os.getegid(), groups=tuple(os.getgroups()))
    dynamic = dynamic_uid(user)
    if dynamic is not None:
        return UserIds(uid=dynamic, gid=dynamic, groups=(dynamic,))
    try:
        entry = pwd.getpwuid(int(user)) if user.isdigit() else pwd.getpwnam(user)
    except KeyError:
        raise DriverError(
            f'user "{user}" does not exist on this machine; create it or change the task\'s `user`'
        ) from None
    groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
    return UserIds(uid=entry.pw_uid, gid=entry.pw_gid, groups=tuple(groups))


def user_to_become(user: str) -> UserIds | None:
    """The ids that a task changes to; None when it runs as the agent's user."""
    ids = look_up_user(user)
    if ids.uid == os.geteuid():
        return None
    if os.geteuid() != 0:
        mine = f"uid {os.geteuid()}"
        raise DriverError(
            f'cannot start a task as user "{user}": the agent runs as {mine}; run it as root or drop `user`'
        )
    return ids


def let_through(spec: ProcessSpec, user: UserIds | None) -> None:
    """Let a task's user search the allocation's directory, which is closed to other users."""
    if user is not None and spec.alloc_dir:
        with contextlib.suppress(FileNotFoundError):  # the start of the task reports a missing folder
            grant_search(spec.alloc_dir, user.uid)


def ids_of(pid: int) -> UserIds | None:
    """The ids of a process; None when they equal ours."""
    try:
        uid, gid = psutil.Process(pid).uids().effective, psutil.Process(pid).gids().effective
    except psutil.Error as error:
        raise DriverError(f"the task's process cannot be looked at: {error}") from None
    return None if uid == os.geteuid() else UserIds(uid=uid, gid=gid, groups=(gid,))


def env_and_folder_of(pid: int) -> tuple[Mapping[str, str], str]:
    """The environment and folder of a process of an earlier agent."""
    try:
        process = psutil.Process(pid)
        return process.environ(), process.cwd()
    except (psutil.Error, OSError) as error:
        raise DriverError(f"the task's environment cannot be read: {error}") from None


def other_network_of(pid: int) -> str:
    """The file of a process's network namespace when it differs from ours; empty otherwise, or when unknown."""
    path = f"/proc/{pid}/ns/net"
    try:
        theirs, ours = os.stat(path), os.stat("/proc/self/ns/net")
    except OSError:
        return ""
    return "" if (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino) else path


async def run_alongside(
    command: tuple[str, ...],
    *,
    env: Mapping[str, str],
    cwd: str,
    user: UserIds | None,
    enter: tuple[str, ...],
    timeout: Duration,
) -> ExecResult:
    """Run a command to its end in its own session; kills it and raises DriverError after `timeout`."""
    if not command:
        raise DriverError("no command was given to run in the task")
    program = next((path for path in candidates(command[0], search_path(env)) if os.access(path, os.X_OK)), command[0])
    as_user = {"user": user.uid, "group": user.gid, "extra_groups": list(user.groups)} if user else {}
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            *command[1:],
            env=dict(env),
            cwd=cwd,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            **as_user,  # type: ignore[arg-type]
        )
    except OSError as error:
        raise DriverError(f'cannot run "{command[0]}" in the task: {error.strerror}') from None
    for folder in enter:
        write_setting(f"{folder}/cgroup.procs", str(process.pid))
    try:
        async with asyncio.timeout(timeout / NANOSECONDS):
            return await outcome(process)
    except TimeoutError:
        raise DriverError(f'"{command[0]}" did not end within {timeout / NANOSECONDS:g} s and was killed') from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


async def outcome(process: asyncio.subprocess.Process) -> ExecResult:
    """Both outputs, each up to a limit, and the exit code; 128 and the number for a signal, as in a shell."""
    assert process.stdout is not None
    assert process.stderr is not None
    async with asyncio.TaskGroup() as group:
        stdout = group.create_task(read_bounded(process.stdout))
        stderr = group.create_task(read_bounded(process.stderr))
    code = await process.wait()
    return ExecResult(exit_code=code if code >= 0 else 128 - code, stdout=stdout.result(), stderr=stderr.result())


async def read_bounded(stream: asyncio.StreamReader) -> bytes:
    """Read to the end, but keep only the first part."""
    buffer = bytearray()
    while data := await stream.read(READ_SIZE):
        buffer += data[: EXEC_OUTPUT_BYTES_MAX - len(buffer)]
    return bytes(buffer)


def summed(found: list[psutil.Process], *, at: UnixNano) -> TaskStats:
    """The total usage of several processes, without those that end meanwhile."""
    rss = user_s = system_s = 0.0
    alive = 0
    for process in found:
        with contextlib.suppress(psutil.Error):
            with process.oneshot():
                memory, cpu = process.memory_info(), process.cpu_times()
            rss, user_s, system_s, alive = rss + memory.rss, user_s + cpu.user, system_s + cpu.system, alive + 1
    return TaskStats(
        at=at,
        rss_bytes=int(rss),
        cpu_user_ns=round(user_s * NANOSECONDS),
        cpu_system_ns=round(system_s * NANOSECONDS),
        pids=alive,
    )


def read_exit_file(path: str) -> ExitResult | None:
    """A task's exit result from its shim's record; None before it is written."""
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=ExitRecord).result()
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        return ExitResult(error=f"the exit file {path} cannot be read: {error}")


def is_locked(folder: str) -> bool:
    """Whether a shim holds the lock of a task's directory, so that the task is alive; false for ""."""
    if not folder:
        return False
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def remove_file(path: str) -> None:
    """Remove a file if it exists."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
