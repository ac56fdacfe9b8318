"""Starts isolated tasks that outlive the agent: each has an OCI bundle and is launched by `runc run` under a shim.

runc only launches: it makes namespaces, mounts and cgroups, and ends (25 ms). Its child, the task, is reparented to the
shim, which waits for it like for any other, so that exit codes and signals are the task's own and no runc stays in
memory. When no process of the task is left, the shim becomes `runc delete`, with or without an agent.

On disk, below the agent's state: `oci/containers/<id>` is runc's, `oci/bundles/<id>` holds the configuration (which
has the task's environment: for root alone), runc's log and the pid. Both go with the task.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import re
import shutil
import signal
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from yurt.executor.exec_session import DEFAULT_TERM, ProcessSession, run_to_end
from yurt.executor.oci import runc, seccomp
from yurt.executor.oci.allowance import UserRules, check_user
from yurt.executor.oci.bundle import CHROOT, HOST, Bind, ContainerSpec, DeviceFile, Machine, container_id, oci_config
from yurt.executor.oci.secret_paths import hidden_paths
from yurt.executor.polling import until
from yurt.executor.process_context import check_spec, look_up_user
from yurt.executor.process_executor import ProcessExecutor
from yurt.executor.process_identity import signal_number
from yurt.executor.spec import ProcessHandle, ProcessSpec, UserIds, candidates
from yurt.sdk.driver import DeviceNode, ExecResult, ExitResult, PluginContext, TaskStats
from yurt.sdk.errors import DriverError, NotFound, RecoverableError
from yurt.sdk.search_permission import grant_search
from yurt.sdk.value import Duration, Value, replace

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
TMP_MODE = 0o777
RUNC_INIT = b"runc:["
EXEC_LIMIT_S = 20.0
FATAL_BY_DEFAULT = frozenset(
    getattr(signal, f"SIG{name}", 0)
    for name in ("HUP", "INT", "QUIT", "ABRT", "USR1", "USR2", "PIPE", "ALRM", "TERM", "IO", "VTALRM", "PROF")
)
LINUX = "linux"


class Abilities(Value):
    """The reasons why optional parts of the isolation (system call filters, user namespaces) are unavailable."""

    filter_problem: str = ""
    user_namespace_problem: str = ""


class ContainerExecutor:
    """Starts tasks as OCI bundles by runc, for drivers whose tasks are isolated commands of this machine."""

    def __init__(
        self, processes: ProcessExecutor, *, folder: Path, program: str = "", secret: tuple[str, ...] = ()
    ) -> None:
        self._processes = processes
        self._secret = secret
        self._machine: Machine | None = None
        self._bundles = folder / "bundles"
        self._runc = runc.Runc(program or runc.find_program(), folder / "containers")

    @classmethod
    def from_context(cls, context: PluginContext) -> ContainerExecutor:
        """The executor for a plugin."""
        folder = Path(context.paths.state_dir) / "oci"
        return cls(ProcessExecutor.from_context(context), folder=folder, secret=context.paths.secret)

    def obstacle(self) -> tuple[str, str]:
        """The reason why isolated tasks cannot run here, and the remedy; both empty when they can."""
        if not sys_is_linux():
            return "isolation needs Linux namespaces", "run this client on Linux"
        if os.geteuid() != 0:
            return f"the agent runs as uid {os.geteuid()} and isolation takes root", "run the agent as root"
        program = runc.find_program()
        if not program:
            return "runc is not on PATH", runc.FIX
        if self._processes.cgroup_mode == "none":
            return "no cgroups can be made here", "mount the cgroup hierarchies writable below /sys/fs/cgroup"
        self._runc.program = program
        return "", ""

    async def abilities(self) -> Abilities:
        """The optional parts of the isolation that this machine supports."""
        program = self._runc.program
        problem = kernel_filter_problem() or (await self._runc.filter_problem() if program else runc.FIX)
        self._machine = Machine(
            kernel=kernel_version(os.uname().release),
            architecture=os.uname().machine,
            runs_filters=not problem,
            runs_32bit=any(map(os.path.exists, seccomp.LOADERS_32BIT)),
        )
        return Abilities(filter_problem=problem, user_namespace_problem=user_namespace_problem())

    async def open(self) -> None:
        """Initialise before the first task."""
        await self._processes.open()

    async def start(self, spec: ContainerSpec) -> ProcessHandle:
        """Start a task; raises DriverError with the command and the reason."""
        task_id, container = spec.process.task_id, container_id(spec.process.task_id)
        reason, fix = self.obstacle()
        if reason:
            raise DriverError(f"the task cannot be isolated: {reason}; {fix}")
        self._processes.check_new(task_id)
        check_spec(spec.process)
        ids = look_up_user(spec.process.user)
        check_id_map(spec, ids)
        hidden = await self._hidden(spec, ids)
        spec = replace(spec, device_files=tuple(map(device_file, spec.devices)), hidden=hidden)
        if self._machine is None:
            await self.abilities()
        await self._forget(task_id)
        bundle = self._bundles / container
        try:
            self._prepare(spec, ids, bundle)
        except OSError as error:
            await self._forget(task_id)
            raise RecoverableError(
                f'cannot prepare the file system of "{spec.process.argv[0]}": {error.strerror} ({error.filename})'
            ) from None
        try:
            handle = await self._processes.start(self._launcher(spec, container, bundle))
            await until(lambda: not is_still_runc(handle.pid), EXEC_LIMIT_S)
            return handle
        except DriverError as error:
            failure = runc.read_failure(bundle / "log")
            await self._forget(task_id)
            if failure:
                raise DriverError(explained(spec.process, failure)) from None
            raise error from None

    async def _hidden(self, spec: ContainerSpec, ids: UserIds) -> tuple[str, ...]:
        """The host folders hidden from the task; the rights of a user namespace do not extend to the host's files.

        For root all of /etc is searched, in a thread; for other users only the listed places, which takes 0.5 ms.
        """
        rights = spec.rights.of(ids.uid) if spec.id_map is None else ()
        look = partial(hidden_paths, spec.host, self._secret, rights=rights)
        return await asyncio.to_thread(look) if rights else look()

    def _prepare(self, spec: ContainerSpec, ids: UserIds, bundle: Path) -> None:
        """Write the bundle and prepare the task's folders."""
        assert self._machine is not None
        bundle.mkdir(mode=0o700, parents=True)
        hand_over(spec, ids)
        cgroup_path = self._processes.cgroup_path(spec.process.task_id)
        argv = inside_command(spec)
        spec = replace(spec, is_32bit=is_32bit(spec.root, argv[0]))
        config = oci_config(spec, argv=argv, user=ids, cgroup_path=cgroup_path, machine=self._machine)
        runc.write_private(bundle / "config.json", msgspec.json.encode(config))

    def _launcher(self, spec: ContainerSpec, container: str, bundle: Path) -> ProcessSpec:
        """The runc command that launches the task."""
        pid_file = str(bundle / "pid")
        options = () if spec.is_pivoting else ("--no-pivot",)
        words = ("run", "--detach", *options, "--bundle", str(bundle), "--pid-file", pid_file, container)
        return replace(
            spec.process,
            argv=self._runc.command(*words, log_file=bundle / "log"),
            env={},
            cwd="/",
            user="",
            search=(),
            network_namespace="",
            pid_file=pid_file,
            at_end=self._runc.command("delete", "--force", container),
        )

    async def recover(self, handle: ProcessHandle) -> None:
        """Recover a task of an earlier agent; raises NotFound, and cleans up, when it is gone."""
        try:
            await self._processes.recover(handle)
        except NotFound:
            await self._forget(handle.task_id)
            raise

    async def recover_by_id(self, task_id: str) -> None:
        """Recover a task whose agent was killed during its start; raises NotFound and cleans up when it is gone."""
        try:
            await self._processes.recover_by_id(task_id)
        except NotFound:
            await self._forget(task_id)
            raise

    async def wait(self, task_id: str) -> ExitResult:
        """Wait for the end; may be called after it."""
        return await self._processes.wait(task_id)

    async def signal(self, task_id: str, name: str) -> None:
        """Signal the task's main process by name."""
        await self._processes.signal(task_id, self._effective_signal(task_id, name))

    async def stop(self, task_id: str, *, signal_name: str, timeout: Duration) -> None:
        """Signal the main process, wait up to `timeout`, then kill all processes."""
        effective = self._effective_signal(task_id, signal_name)
        await self._processes.stop(task_id, signal_name=effective, timeout=timeout)

    def _effective_signal(self, task_id: str, name: str) -> str:
        """The signal to send for `name`: SIGKILL where the kernel would drop it for PID 1 of a namespace.

        For the first process of a PID namespace the kernel skips the default action of every signal but SIGKILL and
        SIGSTOP: `sleep` would not end by SIGTERM. So a signal that ends a process by default, and that the process
        neither catches nor ignores, becomes SIGKILL.
        """
        number = signal_number(name)
        return "SIGKILL" if number in FATAL_BY_DEFAULT and is_spared(self._processes.pid_of(task_id), number) else name

    async def destroy(self, task_id: str) -> None:
        """Kill a task's processes, free its resources on the host, and forget it."""
        await self._processes.destroy(task_id)
        await self._forget(task_id)

    async def stats(self, task_id: str) -> TaskStats:
        """Resource usage, from the task's cgroups."""
        return await self._processes.stats(task_id)

    async def exec(self, task_id: str, command: tuple[str, ...], *, timeout: Duration) -> ExecResult:
        """Run a command in the task to its end, with its environment, folder, user, rights and limits."""
        return await run_to_end(await self.exec_stream(task_id, command, tty=False), command, timeout=timeout)

    async def exec_stream(self, task_id: str, command: tuple[str, ...], *, tty: bool) -> ProcessSession:
        """Start a command in the task, with its environment, folder, user, rights and limits."""
        self._processes.check_alive(task_id)
        if not command:
            raise DriverError("no command was given to run in the task")
        container = container_id(task_id)
        bundle = self._bundles / container
        stored = stored_process(bundle / "config.json")
        env = stored.get("env", [])
        named = tty and not any(entry.startswith("TERM=") for entry in env)
        process = {**stored, "args": list(command), "env": [*env, f"TERM={DEFAULT_TERM}"] if named else env}
        session = await self._runc.exec_stream(container, process, scratch=bundle, tty=tty)
        try:
            self._processes.keep_session(task_id, session)
        except NotFound:
            await session.close()
            raise
        return session

    async def close(self) -> None:
        """Stop watching; tasks continue, those of a dev agent are killed."""
        await self._processes.close()

    async def wait_closed(self) -> None:
        """Wait until the executor is closed."""
        await self._processes.wait_closed()

    async def _forget(self, task_id: str) -> None:
        """Remove container and bundle of a task that is not running."""
        container = container_id(task_id)
        await self._runc.delete(container)
        shutil.rmtree(self._bundles / container, ignore_errors=True)


def kernel_filter_problem() -> str:
    """The reason why the kernel cannot filter system calls; empty when it can."""
    if os.path.exists("/proc/sys/kernel/seccomp/actions_avail"):
        return ""
    return "the kernel has no seccomp filters (CONFIG_SECCOMP_FILTER)"


def user_namespace_problem() -> str:
    """The reason why the kernel cannot create user namespaces; empty when it can."""
    try:
        most = int(Path("/proc/sys/user/max_user_namespaces").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return "the kernel has no user namespaces (CONFIG_USER_NS)"
    return "" if most > 0 else "the kernel makes no user namespaces (sysctl user.max_user_namespaces is 0)"


def check_id_map(spec: ContainerSpec, ids: UserIds) -> None:
    """Check for settings that a user namespace excludes; raises DriverError."""
    if spec.id_map is None:
        return
    if problem := user_namespace_problem():
        raise DriverError(f'userns_mode = "private": {problem}; allow them, or set userns_mode = "host"')
    shared = [name for name in ("pid_mode", "ipc_mode") if getattr(spec, name) == HOST]
    if shared:
        raise DriverError(
            f'userns_mode = "private" excludes {shared[0]} = "host": a user namespace has no rights over the name '
            "spaces of the host; set one of the two otherwise"
        )
    most = max(ids.uid, ids.gid)
    if most >= spec.id_map.count:
        raise DriverError(
            f'user "{spec.process.user}" has the id {most}, and the user namespace of tasks ends at '
            f"{spec.id_map.count - 1}; choose another `user`, or raise user_namespace {{ count }} in the driver's "
            "plugin configuration of this client"
        )


def is_still_runc(pid: int) -> bool:
    """Whether a task's process is still runc, which ignores signals until just before it becomes the command."""
    try:
        return Path(f"/proc/{pid}/comm").read_bytes().startswith(RUNC_INIT)
    except OSError:
        return False


def is_spared(pid: int, number: int) -> bool:
    """Whether a process is PID 1 of its namespace and does not handle the signal: the kernel then drops the signal."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    rows = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    pids = rows.get("NSpid", "").split()
    handled = int(rows.get("SigCgt", "0"), 16) | int(rows.get("SigIgn", "0"), 16)
    return len(pids) > 1 and pids[-1] == "1" and not handled >> (number - 1) & 1


def sys_is_linux() -> bool:
    """Whether this is Linux."""
    return sys.platform == LINUX


def kernel_version(release: str) -> tuple[int, int]:
    """ "6.1.0-13-amd64" as (6, 1); (0, 0) for an invalid text."""
    found = re.match(r"(\d+)\.(\d+)", release)
    return (int(found.group(1)), int(found.group(2))) if found else (0, 0)


def host_binds(chroot_env: Mapping[str, str]) -> tuple[Bind, ...]:
    """Read-only host paths of a task: the existing files and folders of the client's `chroot_env`."""
    binds = chroot_env or {folder: folder for folder in CHROOT}
    return tuple(
        Bind(source=source, target=target or source) for source, target in binds.items() if os.path.exists(source)
    )


def check_task_user(rules: UserRules, user: str) -> None:
    """Check that the user is not denied; raises DriverError."""
    check_user(rules, user, ids=look_up_user(user), denied_ids=ids_of_names(rules.names))


def ids_of_names(names: Iterable[str]) -> dict[str, int]:
    """The uids of existing users."""
    found = {}
    for name in names:
        with contextlib.suppress(KeyError):
            found[name] = pwd.getpwnam(name).pw_uid
    return found


def inside_command(spec: ContainerSpec) -> tuple[str, ...]:
    """The command's path inside the task: changed for files in the task's own folders, unchanged for others."""
    command, *arguments = spec.process.argv
    for path in candidates(command, "", spec.process.search)[: 0 if command.startswith("/") else -1]:
        if os.path.lexists(f"{spec.root}/{path}") and not os.path.isdir(f"{spec.root}/{path}"):
            return (f"/{os.path.normpath(path).lstrip('/')}", *arguments)
    return spec.process.argv


def is_32bit(root: str, command: str) -> bool:
    """Whether a command, by its path inside the task, is a 32-bit program on a 64-bit machine."""
    path = f"{root}{command}" if os.path.lexists(f"{root}{command}") else command
    if not command.startswith("/"):
        return False
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    with os.fdopen(descriptor, "rb") as file:
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        return is_file and file.read(len(seccomp.ELF_32BIT)) == seccomp.ELF_32BIT


def device_file(node: DeviceNode) -> DeviceFile:
    """The kind and numbers of a device node on this machine; raises DriverError when it is not a device."""
    try:
        found = os.stat(node.host_path)
    except OSError as error:
        raise DriverError(
            f"the task's device {node.host_path} is not on this machine: {error.strerror}; make its node, or load its "
            "driver"
        ) from None
    kinds = {stat.S_IFCHR: "c", stat.S_IFBLK: "b"}
    kind = kinds.get(stat.S_IFMT(found.st_mode))
    if kind is None:
        raise DriverError(f"{node.host_path} is not a device node; the task's devices must be device nodes")
    return DeviceFile(
        path=node.task_path or node.host_path,
        kind=kind,
        major=os.major(found.st_rdev),
        minor=os.minor(found.st_rdev),
        mode=stat.S_IMODE(found.st_mode),
        uid=found.st_uid,
        gid=found.st_gid,
        rights=node.permissions,
    )


def hand_over(spec: ContainerSpec, ids: UserIds) -> None:
    """Make the task's user the owner of its private folders, and open /tmp to all users."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(f"{spec.root}/tmp")
        with opened_folder(f"{spec.root}/tmp") as descriptor:
            os.fchmod(descriptor, TMP_MODE)
    owner = spec.id_map.on_host(ids) if spec.id_map is not None else ids
    for folder in spec.private_dirs:
        with opened_folder(folder) as descriptor:
            os.fchown(descriptor, owner.uid, owner.gid)
    if spec.id_map is not None and spec.process.alloc_dir:
        grant_search(spec.process.alloc_dir, spec.id_map.first_host_id)


@contextlib.contextmanager
def opened_folder(path: str) -> Iterator[int]:
    """A folder's descriptor; raises OSError for a link, which another task may have placed."""
    descriptor = os.open(path, FOLDER_FLAGS)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def stored_process(config_file: Path) -> dict[str, Any]:
    """The process of a stored OCI configuration; raises DriverError when it cannot be read."""
    try:
        config = msgspec.json.decode(config_file.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError) as error:
        raise DriverError(f"no command can be run in the task: its configuration is lost ({error})") from None
    process: dict[str, Any] = config["process"]
    return process


def explained(process: ProcessSpec, failure: str) -> str:
    """The reason why runc could not start a command, in terms for an operator."""
    command = process.argv[0]
    if "no such file or directory" in failure and "exec" in failure:
        where = "at that path" if "/" in command else f"in the folders of PATH ({process.env.get('PATH', '')})"
        return (
            f'cannot run the command "{command}": it is not {where} inside the task, which sees its own directory and '
            "the system folders of the host read-only; install it there, or fetch it with an artifact"
        )
    if "executable file not found" in failure:
        path = process.env.get("PATH", "")
        return (
            f'cannot run the command "{command}": it is in none of the folders of PATH ({path}) inside the task; '
            "install it on the host, or fetch it with an artifact and give its full path"
        )
    if process.cwd != "/" and any(word in failure for word in ("chdir", "cwd", "mkdir")):
        return f'cannot start "{command}" in the folder {process.cwd}: {failure}; make the folder or change `work_dir`'
    return f'cannot start "{command}": runc says: {failure}'
