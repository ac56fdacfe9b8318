"""The options of qemu, and the step from a task to an emulator's command line. Pure.

QEMU's command line can give access to all files of the host, so everything from a job is checked here, after
interpolation: names contain no commas (which separate QEMU's options), and `args` contains only flags that the agent's
configuration allows. Without such a list, only flags without access to the host are allowed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from yurt.sdk.driver import UNDETECTED, Capabilities, Fingerprint, PortGiven, TaskRequest
from yurt.sdk.errors import DriverError
from yurt.sdk.schema import decode_config

NAME = "qemu"
DEFAULT_EMULATOR = "qemu-system-x86_64"
INSTALL = "apt install qemu-system-x86"
ABSENT = Fingerprint(health=UNDETECTED, description=f"{DEFAULT_EMULATOR} is not on PATH", fix=INSTALL)
CAPABILITIES = Capabilities(
    send_signals=False, exec=True, fs_isolation="none", network_modes=("host", "group"), finds_by_id=True
)
DEFAULT_MACHINE = "pc"
DEFAULT_ACCELERATOR = "tcg"
DEFAULT_INTERFACE = "ide"
ACCELERATORS = ("tcg", "kvm", "hvf", "xen", "whpx", "nvmm")
INTERFACES = ("ide", "scsi", "sd", "mtd", "floppy", "pflash", "virtio", "none")
LAYERED = ("qcow", "qcow2")
MEMORY_MB_MIN = 128
QMP_SOCKET = "secrets/qmp.sock"
AGENT_SOCKET = "qa.sock"
EMULATOR_NAME = re.compile(r"qemu-system-[a-z0-9_]+|qemu-kvm")
MACHINE_NAME = re.compile(r"[A-Za-z0-9._-]+")
HARMLESS_VALUE = re.compile(r"[A-Za-z0-9_.,=+:@-]*")
EVERYTHING = "*"
HARMLESS_ALONE = frozenset((
    "-nodefaults", "-nodefconfig", "-no-user-config", "-nographic", "-no-reboot", "-no-shutdown", "-no-acpi",
    "-no-hpet", "-no-fd-bootchk", "-snapshot", "-win2k-hack",
))  # fmt: skip
HARMLESS_WITH_VALUE = frozenset(("-boot", "-cpu", "-k", "-rtc", "-smp", "-uuid", "-vga"))
TAKES_NO_VALUE = HARMLESS_ALONE | frozenset((
    "-S", "-daemonize", "-enable-kvm", "-enable-sync-profile", "-full-screen", "-h", "-help", "-mem-prealloc",
    "-old-param", "-only-migratable", "-portrait", "-preconfig", "-s", "-semihosting", "-singlestep", "-usb",
    "-version", "-xen-attach", "-xen-domid-restrict",
))  # fmt: skip


class TaskConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `config` block of a task."""

    image_path: str
    emulator: str = ""
    machine_type: str = ""
    drive_interface: str = ""
    accelerator: str = ""
    graceful_shutdown: bool = False
    guest_agent: bool = False
    args: list[str] = []
    port_map: list[dict[str, int]] = []


class PluginConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `config` block of `plugin "qemu"` in the agent's configuration; absent lists are None."""

    image_paths: list[str] = []
    args_allowlist: list[str] | None = None
    emulators_allowlist: list[str] | None = None


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """A checked disk image: its real or pinned path, its format, and its backing image."""

    path: str
    format: str
    is_pinned: bool = False
    backing: Image | None = None

    @property
    def chain(self) -> tuple[Image, ...]:
        """The image and its backing images."""
        return (self, *(self.backing.chain if self.backing else ()))


def plugin_config(block: Mapping[str, Any]) -> PluginConfig:
    """Read the agent's block; raises Invalid."""
    return decode_config(PluginConfig, block)


def emulator_of(config: TaskConfig, plugin: PluginConfig) -> str:
    """The emulator of a task; raises DriverError when the agent does not permit it."""
    emulator = config.emulator or DEFAULT_EMULATOR
    allowed = plugin.emulators_allowlist
    if allowed is None:
        is_allowed, rule = (
            bool(EMULATOR_NAME.fullmatch(emulator)),
            "only qemu-system-<architecture> from PATH is allowed",
        )
    else:
        is_allowed, rule = emulator in allowed, f"allowed are {', '.join(allowed) or 'none'}"
    if not is_allowed:
        raise DriverError(
            f'emulator "{emulator}" is not allowed on this client: {rule}; change the job, or add it to '
            'emulators_allowlist in plugin "qemu"'
        )
    return emulator


def check_args(args: Sequence[str], allowlist: Sequence[str] | None) -> None:
    """Check the flags against the agent's list; a word that is neither a flag nor its value would add a disk."""
    if allowlist is not None and EVERYTHING in allowlist:
        return
    allowed = HARMLESS_ALONE | HARMLESS_WITH_VALUE if allowlist is None else {one_dash(flag) for flag in allowlist}
    flag = ""
    for word in args:
        if word.startswith("-"):
            flag = one_dash(word)
            if flag not in allowed:
                raise DriverError(
                    f'args: "{word}" is not allowed on this client; drop it from the job, or add it to args_allowlist '
                    'in plugin "qemu"'
                )
            continue
        if not flag or flag in TAKES_NO_VALUE:
            raise DriverError(f'args: "{word}" follows no flag that takes a value: QEMU would take it for a disk image')
        if allowlist is None and (not HARMLESS_VALUE.fullmatch(word) or "splash" in word):
            raise DriverError(
                f'args: the value "{word}" of {flag} is not allowed; add {flag} to args_allowlist in plugin "qemu"'
            )
        flag = ""


def one_dash(flag: str) -> str:
    """A flag with one dash: QEMU reads --smp as -smp."""
    return flag[1:] if flag.startswith("--") else flag


def chosen(value: str, default: str, *, option: str, among: Sequence[str]) -> str:
    """Check an option with a fixed set of values, and return its value."""
    choice = value or default
    if choice not in among:
        raise DriverError(f'{option} = "{choice}" is none of {", ".join(among)}')
    return choice


def machine_of(config: TaskConfig) -> str:
    """Machine type and accelerator, both without further properties."""
    machine = config.machine_type or DEFAULT_MACHINE
    if not MACHINE_NAME.fullmatch(machine):
        raise DriverError(f'machine_type "{machine}" is not a valid machine type; write it as "pc" or "q35"')
    accelerator = chosen(config.accelerator, DEFAULT_ACCELERATOR, option="accelerator", among=ACCELERATORS)
    return f"type={machine},accel={accelerator}"


def forwards(
    port_map: Sequence[Mapping[str, int]], ports: Sequence[PortGiven], *, is_namespaced: bool = False
) -> tuple[str, ...]:
    """Forwarding rules from host ports to guest ports, TCP and UDP, for each label of `port_map`.

    In a network of the group's own the port is the one inside, on every address.
    """
    by_label = {port.label: port for port in ports}
    rules: list[str] = []
    for label, inside in (pair for each in port_map for pair in each.items()):
        port = by_label.get(label)
        if port is None:
            labels = ", ".join(sorted(by_label)) or "none"
            raise DriverError(f'port_map names "{label}", which the group\'s network does not have (it has: {labels})')
        if not 0 < inside < 65536:
            raise DriverError(f'port_map leads "{label}" to {inside}, which is not a valid port; use 1 to 65535')
        address = "" if is_namespaced or ":" in port.host_ip else port.host_ip
        outside = port.to if is_namespaced and port.to > 0 else port.host_port
        rules += [f"hostfwd={kind}:{address}:{outside}-:{inside}" for kind in ("tcp", "udp")]
    return tuple(rules)


def escaped(value: str) -> str:
    """A value in a list of options, with commas doubled as QEMU requires."""
    return value.replace(",", ",,")


def drive(image: Image) -> str:
    """A drive's options. The pinned files are named explicitly, so that no header can refer to others."""
    if not any(each.is_pinned for each in image.chain):
        return f"file={escaped(image.path)},format={image.format}"
    try:
        return f"file=json:{escaped(msgspec.json.encode(block_node(image)).decode())}"
    except UnicodeEncodeError:
        raise DriverError(f"the name of an image below {image.path} is not UTF-8; give it another one") from None


def block_node(image: Image) -> dict[str, Any]:
    """An image in the format of QEMU's block layer.

    A pinned file must be opened exactly once: hence no probing for devices, and no reopening for writing.
    """
    pinned: dict[str, Any] = {"driver": "file", "auto-read-only": False} if image.is_pinned else {}
    backing = {"backing": block_node(image.backing) if image.backing else None}
    return {
        "driver": image.format,
        "file": {"filename": image.path, **pinned},
        **(backing if image.format in LAYERED else {}),
    }


def command_line(request: TaskRequest, *, emulator: str, image: Image, plugin: PluginConfig) -> tuple[str, ...]:
    """The complete command line, within the agent's permissions."""
    config: TaskConfig = request.config
    check_args(config.args, plugin.args_allowlist)
    if request.resources.memory_mb < MEMORY_MB_MIN:
        raise DriverError(f"memory = {request.resources.memory_mb}: a virtual machine needs {MEMORY_MB_MIN} MB or more")
    interface = chosen(config.drive_interface, DEFAULT_INTERFACE, option="drive_interface", among=INTERFACES)
    cores = len(request.resources.reserved_cores)
    rules = forwards(config.port_map, request.ports, is_namespaced=bool(request.network_namespace))
    network = ("-netdev", ",".join(("user", "id=user.0", *rules)), "-device", "virtio-net,netdev=user.0")
    return (
        emulator,
        *("-machine", machine_of(config)),
        *("-name", escaped(f"yurt-{request.task_name}-{request.alloc_id[:8]}")),
        *("-m", f"{request.resources.memory_mb}M"),
        *(("-smp", str(cores)) if cores else ()),
        *(("-cpu", "host") if config.accelerator == "kvm" else ()),
        *("-drive", f"{drive(image)},if={interface}"),
        "-nographic",
        *(("-qmp", f"unix:{QMP_SOCKET},server=on,wait=off") if config.graceful_shutdown else ()),
        *(agent_devices() if config.guest_agent else ()),
        *(network if rules else ()),
        *config.args,
    )


def agent_devices() -> tuple[str, ...]:
    """The channel to the guest agent, at `qa.sock` in the task's directory."""
    return (
        *("-chardev", f"socket,path={AGENT_SOCKET},server=on,wait=off,id=qga0"),
        *("-device", "virtio-serial"),
        *("-device", "virtserialport,chardev=qga0,name=org.qemu.guest_agent.0"),
    )
