"""The contract of task drivers: a few coroutines over values.

A driver starts, finds again, watches, signals, stops and destroys tasks of one kind. It never decides whether to
restart: it reports how a task ended and the client's task runner decides. All calls run on the client's event loop,
so a driver that blocks must use its own threads. `task_id` is `<alloc id>/<task name>/<run>`: unique for each start.

States of a task as a driver sees them: (nothing) -start_task-> running -exit-> exited -destroy_task-> (nothing).
After an agent restart, `recover_task` leads from (nothing) to running or exited, or raises NotFound when the task
cannot be found. An agent may end while `start_task` is under way: a driver whose capabilities say `finds_by_id` is then
given a handle that is only an intent, and either recovers the started task or ensures that it never starts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import msgspec

from yurt.sdk.value import Duration, UnixNano, Value, no_entries

HEALTHY = "healthy"
UNHEALTHY = "unhealthy"
UNDETECTED = "undetected"


def unknown_signal(name: str) -> str:
    """A driver's error for the name of an unknown signal."""
    return f'invalid signal "{name}": use the name of a signal of this system, such as SIGHUP'


class Capabilities(Value):
    """A driver's capabilities. `fs_isolation` is none, chroot or image; `network_modes` are host, group, task, none.

    `mounts`: `TaskRequest.mounts` are made, and go with the task.
    `devices`: the task sees the devices of its request, by the first of `cdi_devices`, `engine_devices` and `devices`
    that the driver can give; a driver without isolation need not say so.
    `dynamic_users`: a task without a `user` is started as a dynamic user (`yurt.sdk.dynamic_users`) of its own.
    `finds_by_id`: `recover_task` also takes a handle that holds only the task's id.
    `network_modes`: a driver of `group` starts tasks in `TaskRequest.network_namespace`; one whose tasks can join only
    namespaces that it made itself says `must_create_network` as well, and is a `NetworkDriver`.
    """

    send_signals: bool = True
    exec: bool = False
    fs_isolation: str = "none"
    network_modes: tuple[str, ...] = ("host",)
    must_create_network: bool = False
    mounts: bool = False
    devices: bool = False
    finds_by_id: bool = False
    dynamic_users: bool = False


class Fingerprint(Value):
    """Whether a driver works on this node. `description` gives the reason, `fix` the remedy."""

    health: str
    description: str = ""
    fix: str = ""
    attributes: Mapping[str, str] = no_entries()


class TaskResources(Value):
    """Limits of one task: MHz share, cores, MiB; `memory_nodes` are the NUMA nodes of its memory.

    `node_cpu_shares` are all MHz of the node: of them `cpu_shares` is the task's part.
    """

    cpu_shares: int = 0
    node_cpu_shares: int = 0
    reserved_cores: tuple[int, ...] = ()
    memory_nodes: tuple[int, ...] = ()
    memory_mb: int = 0
    memory_max_mb: int = 0


class TaskDirs(Value):
    """A task's directories on the host: its own and the shared one of its allocation."""

    alloc_dir: str
    shared_dir: str
    task_dir: str
    local_dir: str
    secrets_dir: str
    logs_dir: str


class LogRotation(Value):
    """Log files `<logs_dir>/<task>.stdout.N`: how many and how large (bytes); collection may be off."""

    max_files: int = 10
    max_bytes: int = 10 * 1024 * 1024
    disabled: bool = False


class PortGiven(Value):
    """A port of the task's group: label, host address and port, and the port in a namespace.

    `of_task`: it was asked for by the task itself (`resources { network {} }`, from before groups had networks), so a
    container publishes it unasked.
    """

    label: str
    host_ip: str
    host_port: int
    to: int = 0
    of_task: bool = False


class Mount(Value):
    """A host folder mounted in a task at `task_path`; `propagation`: private, host-to-task or bidirectional;
    `selinux_label`: "z" to share the folder among containers, "Z" to give it to this one, or "".
    """

    host_path: str
    task_path: str
    is_read_only: bool = False
    propagation: str = "private"
    selinux_label: str = ""


class DeviceNode(Value):
    """A device file of the host, its path in the task, and permissions: letters of "rwm" (read, write, mknod)."""

    host_path: str
    task_path: str = ""
    permissions: str = "rw"


class EngineDevices(Value):
    """Devices that a container engine provides through a driver of its own, as Docker's `--gpus`."""

    driver: str
    ids: tuple[str, ...]
    capabilities: tuple[str, ...] = ()


class NameServers(Value):
    """The resolver settings of a group's network block."""

    servers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


class TaskRequest(Value):
    """Everything a driver needs to start a task; `config` is the decoded value of its own `task_config` type.

    `devices`, `cdi_devices` and `engine_devices` are three ways to the same devices. What `name_servers` says is also
    in an /etc/resolv.conf among the `mounts`, for a driver that mounts.
    """

    task_id: str
    alloc_id: str
    task_name: str
    job_id: str
    group_name: str
    namespace: str
    config: Any
    env: Mapping[str, str]
    dirs: TaskDirs
    resources: TaskResources
    logs: LogRotation = LogRotation()
    user: str = ""
    ports: tuple[PortGiven, ...] = ()
    network_namespace: str = ""
    hostname: str = ""
    name_servers: NameServers | None = None
    mounts: tuple[Mount, ...] = ()
    devices: tuple[DeviceNode, ...] = ()
    cdi_devices: tuple[str, ...] = ()
    engine_devices: tuple[EngineDevices, ...] = ()


class TaskHandle(Value):
    """The data that the client stores to recover a task; `state` is opaque and belongs to the driver.

    `address` is the task's own, where the driver has put it into a network of its own. Version 0 is an intent: the task
    was about to be started, and only its id is known. `reserved_cores` are those of the allocation, which the client
    adds: handles of older versions do not tell them.
    """

    driver: str
    task_id: str
    version: int = 1
    pid: int = 0
    started_at: UnixNano = UnixNano(0)
    address: str = ""
    state: Mapping[str, Any] = no_entries()
    reserved_cores: tuple[int, ...] | None = None

    @property
    def is_intent(self) -> bool:
        """Whether only the task's id is known."""
        return self.version == 0


class ExitResult(Value):
    """The exit result of a task; `error` is set when the driver lost it."""

    exit_code: int = 0
    signal: int = 0
    oom_killed: bool = False
    error: str = ""
    finished_at: UnixNano = UnixNano(0)

    @property
    def is_success(self) -> bool:
        """Whether the task ended with exit code 0, no signal and no error."""
        return self.exit_code == 0 and self.signal == 0 and not self.error and not self.oom_killed


class TaskStats(Value):
    """Usage of one task at `at`: bytes, and total nanoseconds of CPU.

    `memory_stall_ns` is the total time in which all of its threads waited for memory; 0 where nothing counts it.
    `memory_charged_bytes` counts against its limit, pages of files included; 0 where it never waited, or unknown.
    """

    at: UnixNano
    rss_bytes: int = 0
    swap_bytes: int = 0
    cpu_user_ns: int = 0
    cpu_system_ns: int = 0
    pids: int = 0
    memory_stall_ns: int = 0
    memory_charged_bytes: int = 0


class ExecResult(Value):
    """The outcome of a command run inside a task."""

    exit_code: int
    stdout: bytes = b""
    stderr: bytes = b""


@runtime_checkable
class Driver(Protocol):
    """A task driver. `task_config` is the msgspec struct of the job's `config` block."""

    name: str
    capabilities: Capabilities

    @property
    def task_config(self) -> type[msgspec.Struct]:
        """The struct of the `config` block; a class attribute is sufficient."""
        ...

    def fingerprint(self) -> AsyncIterator[Fingerprint]:
        """The present fingerprint at once, then one after each change; ends only when the driver is closed."""
        ...

    async def start_task(self, request: TaskRequest) -> TaskHandle:
        """Start the task; raises RecoverableError when a retry may help, otherwise DriverError."""
        ...

    async def recover_task(self, handle: TaskHandle) -> None:
        """Recover a task of an earlier agent; raises NotFound when it is gone without a trace."""
        ...

    async def wait_task(self, task_id: str) -> ExitResult:
        """Wait for the end; allows several waiters, and calls after the end."""
        ...

    async def signal_task(self, task_id: str, signal: str) -> None:
        """Send a signal by name ("SIGHUP")."""
        ...

    async def stop_task(self, task_id: str, *, signal: str, timeout: Duration) -> None:
        """Send `signal`, wait up to `timeout`, then kill; returns when no process is left."""
        ...

    async def destroy_task(self, task_id: str) -> None:
        """Forget an ended task and free its resources on the host; kills a running one."""
        ...

    async def task_stats(self, task_id: str) -> TaskStats:
        """Present resource usage."""
        ...

    async def exec_task(self, task_id: str, command: tuple[str, ...], *, timeout: Duration) -> ExecResult:
        """Run a command in the task's context; raises DriverError when this is not possible."""
        ...

    async def close(self) -> None:
        """Free the driver's own resources; tasks continue."""
        ...


@runtime_checkable
class NetworkDriver(Protocol):
    """A driver that creates the network namespaces of groups itself: one with `must_create_network`.

    The client gives the namespace its interfaces and addresses; here it has none but its loopback.
    """

    async def create_network(self, alloc_id: str, *, hostname: str = "") -> str:
        """Create or find the namespace of this allocation; returns its file's path, valid while it exists."""
        ...

    async def destroy_network(self, alloc_id: str) -> None:
        """Remove the namespace; does nothing for an absent one."""
        ...


@runtime_checkable
class ProgressDriver(Protocol):
    """A driver that reports the progress of a start, such as the download of an image."""

    def progress(self, task_id: str) -> AsyncIterator[str]:
        """Progress texts for task events; subscribed before the start, left when it is over."""
        ...


class Leftover(Value):
    """An object on the host that outlived its agent; `name` is unique within its `kind`."""

    kind: str
    name: str
    detail: str = ""


@runtime_checkable
class ClearingDriver(Protocol):
    """A driver that finds the containers and mounts that an agent left at an engine.

    Asked by `yurt doctor -leftovers` on a driver that runs no task, and only while no agent has this `state_dir`. What
    drivers start with the executors of `yurt.sdk.executor` is found without it.
    """

    async def leftovers(self) -> tuple[Leftover, ...]:
        """All leftovers of the agent with this `state_dir`; raises DriverError when they cannot be determined."""
        ...

    async def remove_leftover(self, leftover: Leftover) -> None:
        """Remove a leftover; does nothing for an absent one. Raises DriverError with the reason."""
        ...


class AgentPaths(Value):
    """Folders for a plugin: `state_dir` outlives the agent, `run_dir` holds sockets and is removed with a dev agent.

    `secret`: files and folders of the agent that no task may see.
    """

    state_dir: str
    run_dir: str
    secret: tuple[str, ...] = ()


class PluginContext(Value):
    """The agent's data for a plugin: `agent -dev`, its config block, client options, folders, a clock.

    `chroot_env`: what of the host an isolating driver shows its tasks, by its path there; empty for the usual.
    `cgroup_parent`: the parent of the cgroups of tasks, below the mount point; "" for the usual one.
    """

    dev: bool = False
    config: Mapping[str, Any] = no_entries()
    options: Mapping[str, str] = no_entries()
    chroot_env: Mapping[str, str] = no_entries()
    cgroup_parent: str = ""
    paths: AgentPaths = AgentPaths(state_dir="", run_dir="")
    now: Callable[[], UnixNano] | None = None
