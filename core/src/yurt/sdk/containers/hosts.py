"""Host names from a container's options, for groups whose tasks share one network and hosts file.

The client shows every task of the group the same /etc/hosts and /etc/resolv.conf. A task's `extra_hosts` are added to
that hosts file, so that all tasks of the group find them, as with Nomad. Name servers are the group's alone: the same
option of a task is refused, because nobody would read it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence

from yurt.sdk.driver import TaskRequest
from yurt.sdk.errors import DriverError

HOSTS = "/etc/hosts"
RESOLVER = "/etc/resolv.conf"
HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252}[A-Za-z0-9_])?")


def shared_file(request: TaskRequest, task_path: str) -> str:
    """The host path of the hosts file that the client shares between the group's tasks; empty without one."""
    return next((mount.host_path for mount in request.mounts if mount.task_path == task_path), "")


def hosts_lines(extra_hosts: Sequence[str]) -> tuple[str, ...]:
    """Lines of a hosts file for `name:address` entries; raises DriverError for an invalid entry."""
    return tuple(_line(entry) for entry in extra_hosts)


def _line(entry: str) -> str:
    name, _, address = entry.partition(":")
    if not HOST_NAME.fullmatch(name):
        raise DriverError(f'extra_hosts: "{entry}" names no host; write it as "db.internal:10.0.0.5"')
    try:
        return f"{ipaddress.ip_address(address.strip('[]'))} {name}"
    except ValueError:
        raise DriverError(
            f'extra_hosts: "{address}" of "{entry}" is not an IP address; the hosts file of the group needs one'
        ) from None


def add_lines(path: str, lines: Sequence[str]) -> None:
    """Append missing lines in place, since running tasks have the same file mounted. Blocking."""
    with open(path, "r+", encoding="utf-8", errors="replace") as file:
        present = set(file.read().splitlines())
        file.writelines(f"{line}\n" for line in dict.fromkeys(lines) if line not in present)


def share_names(request: TaskRequest, extra_hosts: Sequence[str]) -> None:
    """Add a task's names to the shared hosts file of its group, if any. Blocking; raises DriverError."""
    path = shared_file(request, HOSTS)
    if not path or not extra_hosts:
        return
    lines = hosts_lines(extra_hosts)
    try:
        add_lines(path, lines)
    except OSError as error:
        raise DriverError(f"extra_hosts cannot be added to {path}: {error.strerror}") from None


def check_names(request: TaskRequest, mode: str, options: Mapping[str, object]) -> None:
    """Refuse options that would have no effect; `given` maps option names to their values.

    `mode` is the network that the container gets: one of another container has that one's names.
    """
    is_joined = mode.startswith(("container:", "task:"))
    has_file = {"extra_hosts": bool(shared_file(request, HOSTS)), "dns": bool(shared_file(request, RESOLVER))}
    for option, value in options.items():
        if not value:
            continue
        if option.startswith("dns") and has_file["dns"]:
            raise DriverError(
                f"{option} has no effect in a network of the group, whose tasks share one resolver;"
                " write network { dns { servers, searches, options } } in the group instead"
            )
        if is_joined and not (option == "extra_hosts" and has_file["extra_hosts"]):
            is_group = option == "hostname" and request.network_namespace
            where = "network { hostname } of the group" if is_group else "the container that it joins"
            raise DriverError(f'{option} cannot be set with network_mode "{mode}"; set it in {where}')
