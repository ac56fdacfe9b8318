"""Paths below host folders visible to a task that must be hidden, since they hold secrets of the host.

The listed places of keys and passwords and the agent's own paths are hidden from every task. From a task that may read
files against their mode (of root, for example) all files of /etc are hidden that others cannot read, because no list
can name every program that stores a password there. The paths are determined at the start of a task; a hidden folder
also hides files that come later. Blocking.
"""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterable, Iterator

from yurt.executor.oci.bundle import Bind
from yurt.sdk.errors import DriverError

SECRET_PATTERNS = (
    "/etc/chrony/chrony.keys", "/etc/cloud", "/etc/consul.d", "/etc/containerd/certs.d", "/etc/containers/certs.d",
    "/etc/credstore", "/etc/credstore.encrypted", "/etc/cryptsetup-keys.d", "/etc/docker/*.json",
    "/etc/docker/certs.d", "/etc/etcd", "/etc/exim4/passwd.client", "/etc/gshadow", "/etc/gshadow-",
    "/etc/ipsec.d/private", "/etc/ipsec.secrets", "/etc/krb5.keytab", "/etc/kubernetes", "/etc/letsencrypt",
    "/etc/mysql/debian.cnf", "/etc/NetworkManager/system-connections", "/etc/nomad", "/etc/nomad.d", "/etc/openvpn",
    "/etc/pki/entitlement", "/etc/pki/tls/private", "/etc/ppp/*-secrets", "/etc/rancher", "/etc/security/opasswd",
    "/etc/shadow", "/etc/shadow-", "/etc/ssh/*_key", "/etc/ssl/private", "/etc/sudoers", "/etc/sudoers.d",
    "/etc/swanctl/private", "/etc/vault.d", "/etc/wireguard", "/etc/wpa_supplicant", "/etc/yurt", "/etc/yurt.d",
)  # fmt: skip
SYSTEM_CONFIGURATION = "/etc"
READS_ANYTHING = frozenset(("CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH"))
ENTRIES_MAX = 50_000
HIDDEN_MAX = 1_000


def hidden_paths(host: Iterable[Bind], own: Iterable[str], *, rights: Iterable[str]) -> tuple[str, ...]:
    """The hidden paths inside a task; raises DriverError when there are too many."""
    shown = [(os.path.realpath(each.source), each.target) for each in host]
    secrets = [os.path.realpath(path) for pattern in SECRET_PATTERNS for path in expanded(pattern)]
    secrets += [os.path.realpath(path) for path in own if os.path.lexists(path)]
    if READS_ANYTHING & set(rights) and any(related(source, SYSTEM_CONFIGURATION) for source, _ in shown):
        secrets += unreadable(SYSTEM_CONFIGURATION)
    inside = {place for path in secrets for place in places(path, shown)}
    found = sorted(path for path in inside if not any(above in inside for above in folders_above(path)))
    if len(found) > HIDDEN_MAX:
        raise DriverError(
            f"the task would see {len(found)} files of this machine that hold secrets, which is more than can be "
            f"hidden ({HIDDEN_MAX}); show it fewer folders: client {{ chroot_env }} in the configuration of this client"
        )
    return tuple(found)


def expanded(pattern: str) -> list[str]:
    """The existing files that match a pattern."""
    if "*" in pattern:
        return glob.glob(pattern)
    return [pattern] if os.path.lexists(pattern) else []


def related(path: str, other: str) -> bool:
    """Whether two paths are equal or one contains the other."""
    return f"{path}/".startswith(f"{other.rstrip('/')}/") or f"{other}/".startswith(f"{path.rstrip('/')}/")


def places(path: str, shown: Iterable[tuple[str, str]]) -> Iterator[str]:
    """The paths of a host path inside; one that the operator lists by its exact name stays visible."""
    for source, target in shown:
        if path.startswith(f"{source.rstrip('/')}/"):
            yield f"{target.rstrip('/')}/{path[len(source.rstrip('/')) + 1 :]}"


def folders_above(path: str) -> Iterator[str]:
    """The folders that contain a path, the nearest first."""
    while path not in ("", "/"):
        path = os.path.dirname(path)
        yield path


def unreadable(folder: str) -> list[str]:
    """Paths below a folder that only their owner or group can read; a closed folder stands for its content.

    Raises DriverError when there is too much to look at.
    """
    found: list[str] = []
    pending, seen = [folder], 0
    while pending:
        entries = modes_in(pending.pop())
        seen += len(entries)
        if seen > ENTRIES_MAX:
            raise DriverError(
                f"{folder} of this machine has more than {ENTRIES_MAX} files, too many to look for secrets in before a "
                "task of root starts; show it fewer folders: client { chroot_env } in the configuration of this client"
            )
        found += [path for path, mode in entries if not is_open(mode)]
        pending += [path for path, mode in entries if stat.S_ISDIR(mode) and is_open(mode)]
    return found


def modes_in(folder: str) -> list[tuple[str, int]]:
    """The paths in a folder with their modes, without links and without files removed meanwhile."""
    try:
        with os.scandir(folder) as entries:
            found = [(entry.path, mode_of(entry)) for entry in entries]
    except OSError:
        return []
    return [(path, mode) for path, mode in found if mode and not stat.S_ISLNK(mode)]


def is_open(mode: int) -> bool:
    """Whether every user can read a file, or enter and list a folder."""
    needed = stat.S_IROTH | stat.S_IXOTH if stat.S_ISDIR(mode) else stat.S_IROTH
    return mode & needed == needed


def mode_of(entry: os.DirEntry[str]) -> int:
    """The mode of an entry, links not followed; 0 when it was removed meanwhile."""
    try:
        return entry.stat(follow_symlinks=False).st_mode
    except OSError:
        return 0
