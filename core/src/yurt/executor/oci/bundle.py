"""Builds the OCI runtime configuration (runtime-spec 1.0) of an isolated task. Pure.

The task's own directory is the root of its file system, as in Nomad's chroot, but with bind mounts instead of copies:
folders of the host read-only and `/alloc` writable; `/local`, `/secrets` and `/tmp` are folders of the task's
directory. The mounts exist in the task's mount namespace and end with its last process; nothing is mounted on the host.

A task must never get: devices other than harmless ones and those assigned to it (the cgroup denies the others even to a
task that makes nodes); new privileges by setuid files; capabilities as a user other than root unless requested by name;
a system call that the filter does not list; the secrets in the host's /etc and in the agent's folders; a writable
/proc/sys.

With an `IdMap` the task runs in a user namespace: its root is an ordinary user of the host.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

from yurt.executor.oci import seccomp
from yurt.executor.spec import DEFAULT_PATH, ProcessSpec, UserIds
from yurt.sdk.driver import DeviceNode, Mount, TaskRequest
from yurt.sdk.value import Value, replace

OCI_VERSION = "1.0.2"
CHROOT = (
    "/bin", "/etc", "/lib", "/lib32", "/lib64", "/run/resolvconf", "/run/systemd/resolve", "/sbin", "/usr",
)  # fmt: skip
"""The folders of the host that a task sees read-only, those that exist, unless `chroot_env` names others."""
HOST = "host"
PRIVATE = "private"
CONTAINER_NAME_LENGTH_MAX = 80
SHM_SIZE_MB = 64
MASKED = (
    "/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/key-users", "/proc/keys",
    "/proc/latency_stats", "/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
    "/sys/devices/virtual/powercap", "/sys/firmware",
)  # fmt: skip
READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
RECURSIVE_READ_ONLY_SINCE = (5, 12)
ROOT = 0
PROPAGATION = {"private": "rprivate", "host-to-task": "rslave", "bidirectional": "rshared"}
UNLESS_HARMFUL = ("nosuid", "nodev")


class Bind(Value):
    """A host file or folder mounted into the task's file system."""

    source: str
    target: str
    is_writable: bool = False
    propagation: str = ""


class DeviceFile(Value):
    """A device node of a task at `path`: kind ("c" or "b"), numbers, mode bits, owner, permissions of "rwm"."""

    path: str
    kind: str
    major: int
    minor: int
    mode: int
    uid: int
    gid: int
    rights: str


class LinuxCapabilities(Value):
    """Capabilities as `CAP_NET_RAW`: of a root task, and those that a task of another user requested."""

    of_root: tuple[str, ...] = ()
    of_others: tuple[str, ...] = ()

    def of(self, uid: int) -> tuple[str, ...]:
        """The capabilities of a task."""
        return self.of_root if uid == ROOT else self.of_others


class IdMap(Value):
    """The user namespace of a task: its ids from 0 map to the host's from `first_host_id`."""

    first_host_id: int
    count: int

    def on_host(self, ids: UserIds) -> UserIds:
        """The ids as the host sees them."""
        groups = tuple(self.first_host_id + each for each in ids.groups)
        return UserIds(uid=self.first_host_id + ids.uid, gid=self.first_host_id + ids.gid, groups=groups)


class Machine(Value):
    """Facts about the machine that a bundle needs: `runs_filters` says that kernel and runtime filter system calls,
    `runs_32bit` that it has the loader of programs with half the word size.
    """

    kernel: tuple[int, int]
    architecture: str
    runs_filters: bool = True
    runs_32bit: bool = False


class ContainerSpec(Value):
    """An isolated task: `process` as seen from inside (folder, command, user), its mounts and its permissions.

    `host` are the machine's own folders that it sees, `binds` the files and folders assigned to it.
    `is_32bit`: its command is of half the machine's word size.
    `private_dirs` are folders of the host that are handed to the task's user before it starts. `devices` are asked for;
    `device_files` are as on this machine, `hidden` are paths inside that show nothing: both are determined when
    the task is started.
    """

    process: ProcessSpec
    root: str
    host: tuple[Bind, ...] = ()
    binds: tuple[Bind, ...] = ()
    devices: tuple[DeviceNode, ...] = ()
    device_files: tuple[DeviceFile, ...] = ()
    rights: LinuxCapabilities = LinuxCapabilities()
    is_filtered: bool = True
    is_32bit: bool = False
    id_map: IdMap | None = None
    hidden: tuple[str, ...] = ()
    pid_mode: str = PRIVATE
    ipc_mode: str = PRIVATE
    hostname: str = ""
    is_pivoting: bool = True
    private_dirs: tuple[str, ...] = ()

    @classmethod
    def of_task(cls, request: TaskRequest, argv: tuple[str, ...], *, host: tuple[Bind, ...]) -> ContainerSpec:
        """The command in the task's directory, with its variables, logs, user, limits, network, and those of the `host`
        it sees.
        """
        env = {"PATH": DEFAULT_PATH, **request.env}
        process = replace(ProcessSpec.of_task(request, argv), cwd="/", search=("/local", "/"), env=env)
        return cls(
            process=process,
            root=request.dirs.task_dir,
            host=host,
            binds=(
                Bind(source=request.dirs.shared_dir, target="/alloc", is_writable=True),
                *(volume_bind(each) for each in request.mounts),
            ),
            devices=request.devices,
            hostname=request.hostname,
            private_dirs=(request.dirs.secrets_dir,),
        )


def volume_bind(mount: Mount) -> Bind:
    """A volume of the task."""
    return Bind(
        source=mount.host_path,
        target=mount.task_path,
        is_writable=not mount.is_read_only,
        propagation=PROPAGATION[mount.propagation],
    )


def container_id(task_id: str) -> str:
    """A valid container name for runtimes, unique per task."""
    digest = hashlib.blake2b(task_id.encode(), digest_size=8).hexdigest()
    return f"{re.sub(r'[^A-Za-z0-9_.-]', '.', task_id)[:CONTAINER_NAME_LENGTH_MAX].lstrip('.-')}-{digest}"


def oci_config(
    spec: ContainerSpec, *, argv: tuple[str, ...], user: UserIds, cgroup_path: str, machine: Machine
) -> dict[str, Any]:
    """The complete `config.json` of a task; limits are omitted, since the task's shim sets them on the cgroup.

    A kernel that cannot make a whole tree of mounts read-only (before 5.12) shows of each of the host's folders only
    its own file system.
    """
    is_recursive, binds = machine.kernel >= RECURSIVE_READ_ONLY_SINCE, (*spec.host, *spec.binds)
    return {
        "ociVersion": OCI_VERSION,
        "process": oci_process(spec, argv=argv, user=user),
        "root": {"path": spec.root, "readonly": False},
        **({"hostname": spec.hostname} if spec.hostname else {}),
        "mounts": [*system_mounts(spec), *(bind_mount(each, is_recursive) for each in binds)],
        "linux": {
            "cgroupsPath": cgroup_path,
            "namespaces": namespaces(spec),
            "devices": [device_entry(each) for each in spec.device_files],
            "resources": {"devices": [{"allow": False, "access": "rwm"}, *map(device_rule, spec.device_files)]},
            "maskedPaths": [*MASKED, *spec.hidden],
            "readonlyPaths": list(READ_ONLY),
            **id_mappings(spec.id_map),
            **filter_of(spec, user, machine),
        },
    }


def filter_of(spec: ContainerSpec, user: UserIds, machine: Machine) -> dict[str, Any]:
    """The task's system call filter, if it has one."""
    if not spec.is_filtered or not machine.runs_filters:
        return {}
    capabilities = frozenset(spec.rights.of(user.uid))
    with_32bit = machine.runs_32bit or spec.is_32bit
    return {"seccomp": seccomp.encoded(machine.architecture, machine.kernel, capabilities, with_32bit=with_32bit)}


def id_mappings(id_map: IdMap | None) -> dict[str, Any]:
    """The id mappings of a user namespace, if any: equal for users and groups."""
    if id_map is None:
        return {}
    row = {"containerID": 0, "hostID": id_map.first_host_id, "size": id_map.count}
    return {"uidMappings": [row], "gidMappings": [row]}


def device_entry(file: DeviceFile) -> dict[str, Any]:
    """A node that the runtime makes in the task's /dev."""
    numbers = {"type": file.kind, "major": file.major, "minor": file.minor}
    return {"path": file.path, **numbers, "fileMode": file.mode, "uid": file.uid, "gid": file.gid}


def device_rule(file: DeviceFile) -> dict[str, Any]:
    """The cgroup rule for a device of the task."""
    return {"allow": True, "type": file.kind, "major": file.major, "minor": file.minor, "access": file.rights}


def oci_process(spec: ContainerSpec, *, argv: tuple[str, ...], user: UserIds) -> dict[str, Any]:
    """The task's process: user, variables, folder and rights."""
    return {
        "terminal": False,
        "user": {"uid": user.uid, "gid": user.gid, "additionalGids": list(user.groups)},
        "args": list(argv),
        "env": [f"{name}={value}" for name, value in spec.process.env.items()],
        "cwd": spec.process.cwd,
        "capabilities": capability_sets(spec.rights, user),
        "noNewPrivileges": True,
    }


def capability_sets(rights: LinuxCapabilities, user: UserIds) -> dict[str, list[str]]:
    """The capability sets of a process.

    Root gets them again with each program, within the bounding set. Another user keeps them across an exec only
    through the ambient set, which requires them inheritable too; without requested capabilities every set is empty.
    """
    capabilities = sorted(rights.of(user.uid))
    retained = [] if user.uid == ROOT else capabilities
    return {
        "bounding": capabilities,
        "effective": capabilities,
        "permitted": capabilities,
        "inheritable": retained,
        "ambient": retained,
    }


def system_mounts(spec: ContainerSpec) -> list[dict[str, Any]]:
    """/proc, /dev and /sys; a shared IPC namespace binds the host's."""
    return [
        mount("/proc", "proc", "proc", "nosuid", "noexec", "nodev"),
        mount("/dev", "tmpfs", "tmpfs", "nosuid", "strictatime", "mode=755", "size=65536k"),
        mount("/dev/pts", "devpts", "devpts", "nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"),
        *ipc_mounts(is_shared=spec.ipc_mode == HOST),
        sys_mount(spec),
        mount("/sys/fs/cgroup", "cgroup", "cgroup", "nosuid", "noexec", "nodev", "relatime", "ro"),
    ]


def sys_mount(spec: ContainerSpec) -> dict[str, Any]:
    """/sys: the host's for a user namespace, which cannot mount its own when its network belongs to another."""
    if spec.id_map is not None:
        return mount("/sys", "bind", "/sys", "rbind", "rro", "nosuid", "noexec", "nodev")
    return mount("/sys", "sysfs", "sysfs", "nosuid", "noexec", "nodev", "ro")


def ipc_mounts(*, is_shared: bool) -> list[dict[str, Any]]:
    """Shared memory and message queues: private or the host's."""
    if is_shared:
        return [bind_mount(Bind(source="/dev/shm", target="/dev/shm", is_writable=True))]
    size = f"size={SHM_SIZE_MB}m"
    return [
        mount("/dev/shm", "tmpfs", "shm", "nosuid", "noexec", "nodev", "mode=1777", size),
        mount("/dev/mqueue", "mqueue", "mqueue", "nosuid", "noexec", "nodev"),
    ]


def mount(target: str, kind: str, source: str, *options: str) -> dict[str, Any]:
    """A mount in the runtime's format."""
    return {"destination": target, "type": kind, "source": source, "options": list(options)}


def bind_mount(bind: Bind, is_recursive: bool = True) -> dict[str, Any]:
    """A bind mount including the mounts below its source; recursively read-only unless writable."""
    read_only = ("rbind", "rro") if is_recursive else ("bind", "ro")
    options = ("rbind", "rw") if bind.is_writable else read_only
    propagation = (bind.propagation,) if bind.propagation else ()
    return mount(bind.target, "bind", bind.source, *options, *propagation, *UNLESS_HARMFUL)


def namespaces(spec: ContainerSpec) -> list[dict[str, str]]:
    """The namespaces that the task does not share with the host."""
    private = [{"type": "mount"}, {"type": "uts"}]
    private += [{"type": "pid"}] if spec.pid_mode != HOST else []
    private += [{"type": "ipc"}] if spec.ipc_mode != HOST else []
    private += [{"type": "user"}] if spec.id_map is not None else []
    joined = spec.process.network_namespace
    return private + ([{"type": "network", "path": joined}] if joined else [])
