"""Checks the isolation that a task requests against the agent's configuration. Pure.

The options are read after interpolation, on the client, so that a variable cannot add permissions that the job file
does not show. Everything that is not allowed by name is refused with the option that would allow it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from yurt.executor.oci.bundle import HOST, PRIVATE, IdMap, LinuxCapabilities
from yurt.executor.spec import UserIds
from yurt.sdk.errors import DriverError, Invalid
from yurt.sdk.value import Value

DEFAULT_USER = "nobody"
DENIED_USERS_OPTION, DEFAULT_DENIED_USERS = "user.denylist", "root,Administrator"
DENIED_USERS_OLD_OPTION = "user.blacklist"
CHECKED_DRIVERS_OPTION, DEFAULT_CHECKED_DRIVERS = "user.checked_drivers", "exec,qemu,java"
ALL = "all"
DEFAULT, UNCONFINED = "default", "unconfined"
USER_IDS = 1 << 32
DEFAULT_CAPABILITIES = (
    "audit_write", "chown", "dac_override", "fowner", "fsetid", "kill", "mknod", "net_bind_service", "setfcap",
    "setgid", "setpcap", "setuid", "sys_chroot",
)  # fmt: skip
"""Nomad's default `allow_caps`."""
CAPABILITIES = frozenset((
    *DEFAULT_CAPABILITIES, "audit_control", "audit_read", "block_suspend", "bpf", "checkpoint_restore",
    "dac_read_search", "ipc_lock", "ipc_owner", "lease", "linux_immutable", "mac_admin", "mac_override", "net_admin",
    "net_broadcast", "net_raw", "perfmon", "sys_admin", "sys_boot", "sys_module", "sys_nice", "sys_pacct",
    "sys_ptrace", "sys_rawio", "sys_resource", "sys_time", "sys_tty_config", "syslog", "wake_alarm",
))  # fmt: skip


class UserRules(Value):
    """Users that tasks must not run as: names and ranges of ids."""

    names: tuple[str, ...] = ()
    uids: tuple[range, ...] = ()
    gids: tuple[range, ...] = ()


def denied_names(driver: str, options: Mapping[str, str]) -> tuple[str, ...]:
    """The users that the client's options deny to tasks of a driver; root by default."""
    if driver not in words(options.get(CHECKED_DRIVERS_OPTION, DEFAULT_CHECKED_DRIVERS)):
        return ()
    old = options.get(DENIED_USERS_OLD_OPTION, DEFAULT_DENIED_USERS)
    return words(options.get(DENIED_USERS_OPTION, old))


def words(text: str) -> tuple[str, ...]:
    """The words of a comma-separated text such as `"a, b"`."""
    return tuple(filter(None, (word.strip() for word in text.split(","))))


def parse_ranges(text: str, *, option: str) -> tuple[range, ...]:
    """`"0,10-20"` as inclusive ranges of ids; raises Invalid."""
    ranges = []
    for part in words(text):
        first, _, last = part.partition("-")
        last = last or first
        if not first.isdigit() or not last.isdigit() or int(first) > int(last):
            raise Invalid(f'{option}: "{part}" is not a valid id or range of ids; write it as "0,10-20"')
        ranges.append(range(int(first), int(last) + 1))
    return tuple(ranges)


def check_user(rules: UserRules, user: str, *, ids: UserIds, denied_ids: Mapping[str, int]) -> None:
    """Check that a user is not denied by name, as another name of the same uid, or by an id; `denied_ids` has the uids
    of the denied names that exist."""
    name = next((each for each in rules.names if each == user or denied_ids.get(each) == ids.uid), None)
    if name is not None:
        raise DriverError(
            f'tasks of this driver may not run as user "{user}": this client denies {name} ({DENIED_USERS_OPTION}); '
            f"set another `user`, or change {DENIED_USERS_OPTION} in the options of this client"
        )
    uid, gid = first_in([ids.uid], rules.uids), first_in([ids.gid, *ids.groups], rules.gids)
    if uid is not None or gid is not None:
        what = f"uid {uid} (denied_host_uids)" if uid is not None else f"gid {gid} (denied_host_gids)"
        raise DriverError(
            f'tasks of this driver may not run as user "{user}": this client denies {what}; set another `user`'
        )


def first_in(ids: Iterable[int], ranges: tuple[range, ...]) -> int | None:
    """The first id within one of the ranges."""
    return next((each for each in ids if any(each in span for span in ranges)), None)


def capability_names(values: Iterable[str], *, option: str) -> frozenset[str]:
    """Capabilities in canonical form, such as `net_raw`; `all` stands for all of them; raises DriverError."""
    names = {name.strip().lower().removeprefix("cap_") for name in values}
    unknown = sorted(names - CAPABILITIES - {ALL})
    if unknown:
        raise DriverError(f"{option}: unknown Linux capabilities: {', '.join(unknown)}; see `man 7 capabilities`")
    return CAPABILITIES if ALL in names else frozenset(names)


def capabilities(*, allowed: Iterable[str], add: Iterable[str], drop: Iterable[str]) -> LinuxCapabilities:
    """The capabilities of a task.

    As root it has the allowed part of the defaults, less `drop`, with `add`; as another user only what `add` names.
    """
    may = capability_names(allowed, option="allow_caps")
    added, dropped = capability_names(add, option="cap_add"), capability_names(drop, option="cap_drop")
    refused = sorted(added - may)
    if refused:
        raise DriverError(
            f"cap_add: this client does not allow {', '.join(refused)}; drop it from the job, or add it to allow_caps "
            "in the driver's plugin configuration of this client"
        )
    effective = (may & frozenset(DEFAULT_CAPABILITIES) - dropped) | added
    return LinuxCapabilities(of_root=kernel_names(effective), of_others=kernel_names(added))


def kernel_names(names: Iterable[str]) -> tuple[str, ...]:
    """Capabilities as `CAP_NET_RAW`, sorted."""
    return tuple(f"CAP_{name.upper()}" for name in sorted(names))


def namespace_mode(request: str, *, option: str, default: str, allowed: Iterable[str] = ()) -> str:
    """The namespace mode `private` or `host`: the task's request, else the default; the agent must allow `host`."""
    mode = request or default
    if mode not in (PRIVATE, HOST):
        raise DriverError(f'{option} must be "private" or "host", not "{mode}"')
    if mode == HOST and HOST not in (default, *allowed):
        kind = option.removesuffix("_mode")
        raise DriverError(
            f'{option} = "host" is not allowed on this client; drop it from the job, or set allowed_modes {{ {kind} = '
            f'["host"] }} in the driver\'s plugin configuration of this client'
        )
    return mode


def is_filtered(request: str, *, default: str, allowed: Iterable[str]) -> bool:
    """Whether a task's system calls are filtered: the task's request, else the default."""
    mode = request or default
    if mode not in (DEFAULT, UNCONFINED):
        raise DriverError(f'seccomp must be "{DEFAULT}" or "{UNCONFINED}", not "{mode}"')
    if mode == UNCONFINED and UNCONFINED not in (default, *allowed):
        raise DriverError(
            f'seccomp = "{UNCONFINED}" is not allowed on this client; drop it from the job, or set allowed_modes {{ '
            f'seccomp = ["{UNCONFINED}"] }} in the driver\'s plugin configuration of this client'
        )
    return mode == DEFAULT


def check_host_ids(first: int, count: int) -> None:
    """Check the range of host ids for user namespaces; raises Invalid. A `first` of 0 means no range."""
    if first < 0 or count < 1 or first + count > USER_IDS:
        raise Invalid(
            f"user_namespace: {count} ids from {first} on are not a valid range; set first_host_id to the first id of "
            "the host that no user has, as 100000, and leave count at 65536"
        )


def id_map(request: str, *, default: str, allowed: Iterable[str], first: int, count: int) -> IdMap | None:
    """The user namespace of a task: the task's request, else the default; None for "host"."""
    if namespace_mode(request, option="userns_mode", default=default, allowed=allowed) == HOST:
        return None
    if not first:
        raise DriverError(
            'userns_mode = "private" needs ids of the host for the users of tasks; set user_namespace { '
            "first_host_id = 100000 } in the driver's plugin configuration of this client"
        )
    return IdMap(first_host_id=first, count=count)
