"""Confines the process that reads untrusted bytes: by Landlock and an unprivileged user.

Two processes fetch an artifact. The worker downloads and unpacks in a folder of its own, as `nobody` where the agent
is root. Landlock lets it write there alone, and read that folder and what programs need of the system. When it is gone,
the placer, which keeps the agent's rights, moves what came to its destination; it reads no archive and parses nothing,
and Landlock lets it write in the allocation's directory alone.

Each part is used where the system has it. A node says in the attribute `artifact.isolation` which ones it has.

git asks the system for the names of all folders above its own, and an unprivileged user may not look into those of the
agent. So the worker sees a file system of its own, in which an empty one lies over the topmost of these folders, and
holds the way to the worker's alone. This hides the rest of the agent's data as well.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import stat
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from yurt.sdk import landlock
from yurt.sdk.errors import Invalid
from yurt.sdk.landlock import EXECUTE, IOCTL_DEV, READ_FILE, READING, WRITE_FILE, WRITING, PathRule
from yurt.sdk.mounting import MS_PRIVATE, MS_REC, bind, c_library, detach, libc_call

LANDLOCK, USER, NONE = "landlock", "user", "none"
NOBODY: Final = "nobody"
NOBODY_ID: Final = 65534
CLONE_NEWNS, CLONE_NEWPID = 0x00020000, 0x20000000
PARENT_OUTSIDE: Final = 0
"""The parent pid that the first process of a process namespace sees."""
PR_SET_PDEATHSIG: Final = 1
NEEDED_CAPABILITIES: Final = (0, 6, 7)
"""CAP_CHOWN, CAP_SETGID and CAP_SETUID, to give up root and to give files back."""
STATUS: Final = "/proc/self/status"
PROGRAM_FOLDERS: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/nix/store", "/gnu/store")
SYSTEM_FILES: Final = (
    "/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/etc/ca-certificates.conf", "/etc/crypto-policies", "/etc/gnutls",
    "/var/lib/ca-certificates", "/etc/resolv.conf", "/run/systemd/resolve", "/etc/hosts", "/etc/host.conf",
    "/etc/nsswitch.conf", "/etc/gai.conf", "/etc/services", "/etc/protocols", "/etc/passwd", "/etc/group",
    "/etc/localtime", "/etc/ld.so.cache", "/etc/ld.so.preload", "/etc/alternatives", "/dev/urandom", "/dev/random",
)  # fmt: skip
CERTIFICATE_VARIABLES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR")
KINDS, MODES = "fd", {"r": READING, "w": WRITE_FILE, "c": WRITING, "x": EXECUTE}


class Ids(NamedTuple):
    """A user and a group."""

    uid: int
    gid: int


class Isolation(NamedTuple):
    """The confinement available here; `missing` gives the reason for a missing part and its remedy."""

    landlock: int
    user: Ids | None
    missing: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The value of the node's attribute: `landlock,user`, one of them, or `none`."""
        parts = (LANDLOCK if self.landlock else "", USER if self.user else "")
        return ",".join(part for part in parts if part) or NONE


def isolation(*, is_confined: bool) -> Isolation:
    """The confinement that this process can apply. Blocking."""
    if not is_confined:
        return Isolation(0, None, ("client artifact.disable_filesystem_isolation switches it off",))
    found = landlock.availability()
    user = unprivileged()
    missing = [found.reason] if not found.version else []
    if user is None and sys.platform == "linux" and os.geteuid() == 0:
        missing.append("the agent's root lacks CAP_SETUID, CAP_SETGID or CAP_CHOWN, so downloads run as root")
    return Isolation(found.version, user, tuple(missing))


def unprivileged() -> Ids | None:
    """The user that the worker becomes; None when the agent may not change users."""
    if sys.platform != "linux" or os.geteuid() != 0 or not has_capabilities(*NEEDED_CAPABILITIES):
        return None
    with contextlib.suppress(KeyError):
        entry = pwd.getpwnam(NOBODY)
        return Ids(entry.pw_uid, entry.pw_gid)
    return Ids(NOBODY_ID, NOBODY_ID)


def has_capabilities(*requested: int) -> bool:
    """Whether this process has these capabilities, given by number; False when the system does not tell."""
    try:
        lines = Path(STATUS).read_text().splitlines()
        effective = int(next(line.split()[1] for line in lines if line.startswith("CapEff:")), 16)
    except (OSError, StopIteration, ValueError):
        return False
    return all(effective >> capability & 1 for capability in requested)


def extra_rule(text: str) -> PathRule:
    """A path of `filesystem_isolation_extra_paths`, KIND:MODE:PATH; raises Invalid."""
    kind, _, rest = text.partition(":")
    mode, _, path = rest.partition(":")
    if len(kind) != 1 or kind not in KINDS or not mode or not set(mode) <= set(MODES) or not path.startswith("/"):
        raise Invalid(
            f"client artifact filesystem_isolation_extra_paths: {text!r} is not KIND:MODE:PATH; write f (a file) or d "
            '(a folder), some of r, w, c and x, and a full path, for example "d:rx:/opt/git"'
        )
    access = 0
    for letter in mode:
        access |= MODES[letter]
    return PathRule(path, access)


def checked_extra_path(text: str) -> str:
    """The text when it is a KIND:MODE:PATH; raises Invalid."""
    extra_rule(text)
    return text


def rules(writable: str, extra_paths: Iterable[str]) -> tuple[PathRule, ...]:
    """The Landlock rules of a process that writes in one folder, reads system settings and runs system programs."""
    programs = {*PROGRAM_FOLDERS, sys.prefix, sys.base_prefix, *sys.path, *os.environ.get("PATH", "").split(":")}
    for program in filter(None, map(shutil.which, ("git", "hg"))):
        programs.add(os.path.dirname(os.path.dirname(os.path.realpath(program))))
    certificates = (os.environ.get(name, "") for name in CERTIFICATE_VARIABLES)
    return (
        PathRule(writable, READING | WRITING),
        PathRule("/dev/null", READ_FILE | WRITE_FILE | IOCTL_DEV),
        *(PathRule(path, READING | EXECUTE) for path in sorted(programs) if path.startswith("/") and path != "/"),
        *(PathRule(path, READING) for path in (*SYSTEM_FILES, *certificates) if path),
        *(extra_rule(text) for text in extra_paths),
    )


def restrict_files(writable: str, extra_paths: Iterable[str]) -> bool:
    """Deny this process all files except those of `rules`; returns whether that succeeded."""
    version = landlock.availability().version
    if not version:
        return False
    landlock.restrict(rules(writable, extra_paths), version=version)
    return True


def end_with_parent(parent: int) -> None:
    """End with the parent process; call it after the last change of user, which would undo it."""
    c_library().prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() not in (parent, PARENT_OUTSIDE):
        os._exit(1)


def become(ids: Ids) -> None:
    """Become an unprivileged user permanently, without capabilities."""
    os.setgroups([])
    os.setresgid(ids.gid, ids.gid, ids.gid)
    os.setresuid(ids.uid, ids.uid, ids.uid)


def closed_folder(path: str) -> str:
    """The topmost folder on the path that other users may not enter; None when all are open."""
    for folder in (*reversed(Path(path).parents), Path(path)):
        if not os.stat(folder).st_mode & stat.S_IXOTH:
            return str(folder)
    return ""


def open_way(path: str) -> bool:
    """Make the path to a folder accessible to an unprivileged user in this process; returns whether that worked.

    As root, before rights are given up. The folder itself is mounted where it was, by its descriptor.
    """
    closed = closed_folder(os.path.dirname(path))
    if not closed:
        return True
    if not unshare(CLONE_NEWNS) or libc_call("mount", None, b"/", None, MS_REC | MS_PRIVATE, None):
        return False
    folder_fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)  # of the new namespace
    try:
        if libc_call("mount", b"tmpfs", os.fsencode(closed), b"tmpfs", 0, b"mode=0755,size=64k"):
            return False
        try:
            os.makedirs(path, exist_ok=True)
            bind(folder_fd, path)
        except OSError:
            detach(closed)
            return False
    finally:
        os.close(folder_fd)
    return True


def unshare(namespace: int) -> bool:
    """Move this process into a new namespace; returns whether that succeeded."""
    return bool(c_library().unshare(namespace) == 0)
