"""Landlock: an unprivileged process permanently gives up its access to parts of the file system.

The kernel's interface (Documentation/userspace-api/landlock.rst) grows by versions. A ruleset names the accesses that
it handles; all of those are then denied but beneath the paths that rules name. So a program asks for the version first
and handles exactly what that one knows: a right that the kernel does not know would refuse the whole ruleset.
Blocking; for a process with one thread.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import sys
from collections.abc import Iterable
from typing import Final, NamedTuple

from yurt.sdk.mounting import c_library

SYS_CREATE_RULESET, SYS_ADD_RULE, SYS_RESTRICT_SELF = 444, 445, 446
VERSION_FLAG, RULE_PATH_BENEATH = 1, 1
PR_SET_NO_NEW_PRIVS: Final = 38

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REMOVE_DIR, REMOVE_FILE = 1 << 4, 1 << 5
MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK, MAKE_SYM = (1 << bit for bit in range(6, 13))
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
BIND_TCP: Final = 1 << 0
SCOPE_ABSTRACT_SOCKETS, SCOPE_SIGNALS = 1 << 0, 1 << 1

READING: Final = READ_FILE | READ_DIR
WRITING: Final = (
    WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | MAKE_SYM | REFER | TRUNCATE
)  # fmt: skip
"""Rights to store files, without creating sockets, pipes and devices."""
FOR_FILES: Final = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
"""Rights that a rule may grant for anything but a folder."""
_FIRST: Final = (1 << 13) - 1
_LATER: Final = ((2, REFER), (3, TRUNCATE), (5, IOCTL_DEV))
NETWORK_SINCE, SCOPES_SINCE = 4, 6


class PathRule(NamedTuple):
    """The access allowed for a path and everything below it; a missing path is ignored."""

    path: str
    access: int


class Availability(NamedTuple):
    """The version of the kernel's interface; 0 without one, then `reason` explains why and how to change that."""

    version: int
    reason: str = ""


def availability() -> Availability:
    """Query the kernel."""
    if sys.platform != "linux":
        return Availability(0, "Landlock is a part of Linux")
    answer = c_library().syscall(SYS_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(VERSION_FLAG))
    if answer > 0:
        return Availability(int(answer))
    if ctypes.get_errno() == errno.EOPNOTSUPP:
        return Availability(0, "Landlock is switched off; add landlock to the kernel's parameter lsm=")
    return Availability(0, "the kernel has no Landlock, or the container's seccomp profile hides it; use Linux 5.13+")


def handled(version: int) -> int:
    """The kinds of file access that a version controls."""
    access = _FIRST
    for since, right in _LATER:
        access |= right if version >= since else 0
    return access


def ruleset_attributes(version: int) -> bytes:
    """struct landlock_ruleset_attr at the version's length: files, TCP ports, scopes.

    No port may be bound, and no process outside be signalled; connecting is not restricted.
    """
    made = struct.pack("=Q", handled(version))
    if version >= NETWORK_SINCE:
        made += struct.pack("=Q", BIND_TCP)
    if version >= SCOPES_SINCE:
        made += struct.pack("=Q", SCOPE_ABSTRACT_SOCKETS | SCOPE_SIGNALS)
    return made


def granted(access: int, *, version: int, is_folder: bool) -> int:
    """The part of a rule's access that the kernel accepts for this kind of file."""
    return access & handled(version) & (-1 if is_folder else FOR_FILES)


def restrict(rules: Iterable[PathRule], *, version: int) -> None:
    """Deny this process, and all that it starts, everything that no rule allows; raises OSError."""
    attributes = ruleset_attributes(version)
    ruleset = _call(SYS_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    try:
        for rule in rules:
            _add(ruleset, rule, version)
        if c_library().prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "no_new_privs cannot be set")
        _call(SYS_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)


def _add(ruleset: int, rule: PathRule, version: int) -> None:
    try:
        fd = os.open(rule.path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    try:
        access = granted(rule.access, version=version, is_folder=stat.S_ISDIR(os.fstat(fd).st_mode))
        if access:
            attributes = struct.pack("=Qi", access, fd)
            _call(SYS_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(RULE_PATH_BENEATH), attributes, ctypes.c_uint32(0))
    finally:
        os.close(fd)


def _call(number: int, *arguments: object) -> int:
    answer = int(c_library().syscall(ctypes.c_long(number), *arguments))
    if answer < 0:
        raise OSError(ctypes.get_errno(), f"Landlock: {os.strerror(ctypes.get_errno())}")
    return answer
