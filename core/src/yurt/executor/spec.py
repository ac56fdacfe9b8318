"""Start requests to the executor, its answers, and the encoding of a request for the zygote.

Everything here is a value or a pure function. The zygote reads requests with `marshal`, which is safe only between
the same interpreter; the agent starts the zygote with its own, from the same file, so the two always agree.
"""

from __future__ import annotations

import errno
import marshal
import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote

from yurt.sdk.driver import ExitResult, LogRotation, TaskRequest, TaskResources
from yurt.sdk.errors import DriverError, RecoverableError
from yurt.sdk.value import UnixNano, Value, no_entries

NAME_LENGTH_MAX = 200
FILE_NAMES_MAX = 256
"""File names of tasks in the cache: a start asks for its own five times."""
MIB = 1024 * 1024
UNLIMITED = -1
RETRY_MAY_HELP = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY, errno.ENOSPC})
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class CgroupSpec(Value):
    """Limits of a task: bytes (0: none), CPU shares (MHz), cores, NUMA nodes; or the operator's cgroups to join."""

    memory_bytes: int = 0
    memory_reserved_bytes: int = 0
    cpu_shares: int = 0
    cores: tuple[int, ...] = ()
    memory_nodes: tuple[int, ...] = ()
    override_v2: str = ""
    override_v1: Mapping[str, str] = no_entries()

    @classmethod
    def of_resources(cls, resources: TaskResources) -> CgroupSpec:
        """The limits for a task's resources: memory_max when given (-1: none), otherwise memory."""
        limit_mb = resources.memory_max_mb or resources.memory_mb
        return cls(
            memory_bytes=0 if limit_mb == UNLIMITED else limit_mb * MIB,
            memory_reserved_bytes=resources.memory_mb * MIB if resources.memory_max_mb else 0,
            cpu_shares=resources.cpu_shares,
            cores=resources.reserved_cores,
            memory_nodes=resources.memory_nodes,
        )

    @property
    def is_overridden(self) -> bool:
        """Whether the operator manages the cgroup."""
        return bool(self.override_v2 or self.override_v1)


class ProcessSpec(Value):
    """A command to run as a task. `env` is its whole environment.

    A relative command is looked for in the folders of `search`; then, without a slash, in PATH, else from `cwd`.
    With a `pid_file` the command only launches the task: it stays outside the task's cgroups and ends at once, having
    left there the pid of the task, its child. `at_end` is then run when nothing is left of the task.
    `alloc_dir` is closed to other users than the agent's: `user` is let through.
    The shim holds a lock on the `lock_folder`, and starts nothing while another one does.
    """

    task_id: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    logs_dir: str
    log_name: str
    search: tuple[str, ...] = ()
    logs: LogRotation = LogRotation()
    user: str = ""
    cgroup: CgroupSpec = CgroupSpec()
    oom_score_adj: int | None = None
    network_namespace: str = ""
    alloc_dir: str = ""
    pid_file: str = ""
    at_end: tuple[str, ...] = ()
    lock_folder: str = ""

    @classmethod
    def of_task(cls, request: TaskRequest, argv: tuple[str, ...]) -> ProcessSpec:
        """The command with the variables, folder, logs, user, limits and network of the task."""
        return cls(
            task_id=request.task_id,
            argv=argv,
            env=request.env,
            cwd=request.dirs.task_dir,
            search=(request.dirs.local_dir, request.dirs.task_dir),
            logs_dir=request.dirs.logs_dir,
            log_name=request.task_name,
            logs=request.logs,
            user=request.user,
            cgroup=CgroupSpec.of_resources(request.resources),
            network_namespace=request.network_namespace,
            alloc_dir=request.dirs.alloc_dir,
            lock_folder=request.dirs.task_dir,
        )


class ProcessHandle(Value):
    """The identity of a started task; start times (system ticks) distinguish its processes from reused pids."""

    task_id: str
    pid: int
    start_time: int
    shim_pid: int
    shim_start_time: int
    boot_id: str
    exit_file: str
    started_at: UnixNano
    cgroups: tuple[str, ...] = ()
    cores: tuple[int, ...] | None = None
    """The cores that it reserves; None in a handle of a version that did not record them."""


class UserIds(Value):
    """The ids of the task's user."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


class CgroupPlan(Value):
    """Folders to create with settings, files to join by (mandatory ones separate), and where OOM kills are counted."""

    folders: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()
    join: tuple[str, ...] = ()
    must_join: tuple[str, ...] = ()
    shim_join: tuple[str, ...] = ()
    oom_file: str = ""


class ExitRecord(Value, rename=None):
    """The content of an exit file."""

    exit_code: int
    signal: int
    oom_killed: bool
    finished_at: UnixNano

    def result(self) -> ExitResult:
        """The exit result for the driver."""
        return ExitResult(
            exit_code=self.exit_code, signal=self.signal, oom_killed=self.oom_killed, finished_at=self.finished_at
        )


@lru_cache(maxsize=FILE_NAMES_MAX)
def file_name(task_id: str) -> str:
    """A file name for the task's id: readable and unique."""
    name = quote(task_id, safe="")
    if len(name) <= NAME_LENGTH_MAX:
        return name
    import hashlib

    digest = hashlib.blake2b(task_id.encode(), digest_size=16).hexdigest()
    return f"{name[: NAME_LENGTH_MAX - len(digest) - 1]}-{digest}"


def candidates(command: str, path: str, search: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The files that a command may refer to, in the order of execution attempts."""
    if command.startswith("/"):
        return (command,)
    last = (command,) if "/" in command else tuple(f"{folder or '.'}/{command}" for folder in path.split(":"))
    return (*(f"{folder}/{command}" for folder in search), *last)


def search_path(env: Mapping[str, str]) -> str:
    """The task's PATH, or else the agent's."""
    return env.get("PATH") or os.environ.get("PATH") or DEFAULT_PATH


class ShimFiles(NamedTuple):
    """A shim's files: the one it takes, its name afterwards, and the exit file."""

    request: str
    start: str
    exit: str


def encoded(env: Mapping[str, str]) -> dict[bytes, bytes]:
    """An environment in bytes; its texts, which have no NUL (`check_spec`), are encoded all at once."""
    if not env:
        return {}
    keys, values = (os.fsencode("\0".join(texts)).split(b"\0") for texts in (env.keys(), env.values()))
    return dict(zip(keys, values, strict=True))


def encode_start(
    spec: ProcessSpec, *, request_id: int, files: ShimFiles, cgroup: CgroupPlan, user: UserIds | None
) -> bytes:
    """The request that makes the next shim start a task.

    A tuple of what the shim needs, in its order. What only its child needs on the way to the command is packed once
    more, so that the shim never unpacks it; so is what the shim needs at the task's end and not before.
    """
    base = os.fsencode(f"{spec.logs_dir}/{spec.log_name}")
    folders = [
        (os.fsencode(folder), [(name.encode(), value.encode()) for name, value in settings])
        for folder, settings in cgroup.folders
    ]
    task: dict[str, Any] = {
        "id": request_id,
        "asked_file": os.fsencode(files.request),
        "start_file": os.fsencode(files.start),
        "shim_join": [os.fsencode(path) for path in cgroup.shim_join],
        "cgroups": folders,
        "argv": [os.fsencode(word) for word in spec.argv],
        "candidates": [os.fsencode(path) for path in candidates(spec.argv[0], search_path(spec.env), spec.search)],
        "env": encoded(spec.env),
        "cwd": os.fsencode(spec.cwd),
        "uid": user.uid if user else None,
        "gid": user.gid if user else None,
        "groups": list(user.groups) if user else [],
        "oom_score_adj": spec.oom_score_adj,
        "netns": os.fsencode(spec.network_namespace),
        "join": [os.fsencode(path) for path in cgroup.join if not spec.pid_file],
        "must_join": [os.fsencode(path) for path in cgroup.must_join],
    }
    end = (
        os.fsencode(files.exit),
        os.fsencode(cgroup.oom_file),
        [folder for folder, _ in folders],
        [os.fsencode(word) for word in spec.at_end],
    )
    return framed(
        (
            request_id,
            b"" if spec.logs.disabled else base + b".stdout",
            b"" if spec.logs.disabled else base + b".stderr",
            spec.logs.max_files,
            spec.logs.max_bytes,
            os.fsencode(files.request),
            os.fsencode(files.start),
            os.fsencode(spec.pid_file),
            marshal.dumps(task),
            marshal.dumps(end),
            os.fsencode(spec.lock_folder),
        )
    )


class StartedProcess(NamedTuple):
    """A shim's answer when its task runs; start times are in system ticks."""

    id: int
    pid: int
    start_time: int
    at: UnixNano
    shim_pid: int
    shim_start_time: int


class Failed(NamedTuple):
    """A shim's answer when its task could not be started."""

    id: int
    stage: str
    errno: int


def decode_answer(line: bytes) -> StartedProcess | Failed:
    """Decode a shim's answer: six numbers, or the request's id with a stage and an error number."""
    number, *words = line.split()
    if words[0].startswith(b"!"):
        return Failed(int(number), words[0][1:].decode(), int(words[1]))
    pid, started, at, shim, shim_started = map(int, words)
    return StartedProcess(int(number), pid, started, UnixNano(at), shim, shim_started)


def framed(message: tuple[Any, ...]) -> bytes:
    """A message in a frame: its length (4 bytes, big endian) and its content."""
    body = marshal.dumps(message)
    return len(body).to_bytes(4, "big") + body


def take_lines(buffer: bytearray) -> list[bytes]:
    """Remove the complete lines from a buffer and return them without their ends."""
    *lines, rest = bytes(buffer).split(b"\n")
    buffer[:] = rest
    return lines


def start_failure(spec: ProcessSpec, *, stage: str, code: int) -> DriverError:
    """An error text for a failed start: the command, the stage, the system's reason and the remedy."""
    command, reason = spec.argv[0], f"{os.strerror(code)} ({errno.errorcode.get(code, code)})"
    match stage:
        case "lock" if code == errno.EAGAIN:
            text = f"a process of an earlier run of the task still lives: a shim holds {spec.lock_folder} locked"
        case "exec":
            text = f'cannot run the command "{command}": {exec_reason(spec, code=code, reason=reason)}'
        case "cwd":
            text = f'cannot start "{command}" in the folder {spec.cwd}: {reason}; make the folder or change `work_dir`'
        case "user":
            text = f'cannot start "{command}" as user "{spec.user}": {reason}; run the agent as root or drop `user`'
        case "logs":
            text = f'cannot start "{command}": its log files in {spec.logs_dir} cannot be opened: {reason}'
        case "cgroup":
            cgroup = spec.cgroup.override_v2 or ", ".join(f"{k}:{v}" for k, v in spec.cgroup.override_v1.items())
            text = f'cannot start "{command}" in the cgroup {cgroup}: {reason}; make it first or drop the override'
        case "netns":
            text = f'cannot start "{command}" in the network namespace {spec.network_namespace}: {reason}'
        case "oom_score_adj":
            text = f'cannot start "{command}" with oom_score_adj {spec.oom_score_adj}: {reason}; lowering it takes root'
        case _:
            text = f'cannot start "{command}": {reason} while making its process'
    return RecoverableError(text) if code in RETRY_MAY_HELP else DriverError(text)


def exec_reason(spec: ProcessSpec, *, code: int, reason: str) -> str:
    """The reason why an exec failed, and the remedy."""
    command = spec.argv[0]
    if code == errno.ENOENT and "/" not in command:
        path = search_path(spec.env)
        return f"{reason}; it is in none of the folders of PATH ({path}); install it or give its full path"
    if code == errno.ENOENT:
        return f"{reason}; check the path, and for a script the interpreter named in its first line"
    if code == errno.EACCES:
        return f"{reason}; make it executable (chmod +x) for the task's user"
    if code == errno.ENOEXEC:
        return f"{reason}; a script needs a first line such as #!/bin/sh, a program must be built for this machine"
    return reason
