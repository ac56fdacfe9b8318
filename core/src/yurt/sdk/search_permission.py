"""Grants one user search permission on a private folder with an entry in its access control list.

The directory of an allocation is closed, so that no local user reaches what tasks leave there. A process of the host
that runs as another user than the agent must pass all the same, and an engine of another user too. The entry gives
search permission on that one folder: it lists nothing. File systems without such lists let everybody pass. Blocking.
"""

from __future__ import annotations

import os
import stat
import struct

ATTRIBUTE = "system.posix_acl_access"
HEADER = struct.Struct("<I")
ENTRY = struct.Struct("<HHI")
VERSION = 2
OWNER, USER, GROUP, NAMED_GROUP, MASK, OTHERS = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
SEARCH = 0o1
NO_ID = 0xFFFFFFFF
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

Entries = dict[tuple[int, int], int]
"""Permissions by kind of entry and id."""


def grant_search(folder: str, uid: int) -> None:
    """Grant a user search permission on a folder that stays private; raises OSError when the folder does not exist."""
    descriptor = os.open(folder, FOLDER_FLAGS)
    try:
        found = os.fstat(descriptor)
        if uid == found.st_uid or found.st_mode & stat.S_IXOTH:
            return
        try:
            entries = _read(descriptor, found.st_mode)
            if not entries.get((USER, uid), 0) & entries.get((MASK, NO_ID), 0) & SEARCH:
                _write(descriptor, _with_search(entries, uid))
        except (OSError, AttributeError):
            os.fchmod(descriptor, stat.S_IMODE(found.st_mode) | stat.S_IXGRP | stat.S_IXOTH)
    finally:
        os.close(descriptor)


def grant_search_to_all(folder: str) -> None:
    """Grant every user search permission on a folder; raises OSError when the folder does not exist."""
    descriptor = os.open(folder, FOLDER_FLAGS)
    try:
        os.fchmod(descriptor, stat.S_IMODE(os.fstat(descriptor).st_mode) | stat.S_IXGRP | stat.S_IXOTH)
    finally:
        os.close(descriptor)


def _with_search(entries: Entries, uid: int) -> Entries:
    """The list with one more user; the mask bounds named users and groups."""
    return {
        **entries,
        (USER, uid): entries.get((USER, uid), 0) | SEARCH,
        (MASK, NO_ID): entries.get((MASK, NO_ID), 0) | SEARCH,
    }


def _read(descriptor: int, mode: int) -> Entries:
    """The access control list of a folder; derived from its mode without one."""
    try:
        data = os.getxattr(descriptor, ATTRIBUTE)
    except OSError:
        return {(OWNER, NO_ID): mode >> 6 & 7, (GROUP, NO_ID): mode >> 3 & 7, (OTHERS, NO_ID): mode & 7}
    return {(kind, number): rights for kind, rights, number in ENTRY.iter_unpack(data[HEADER.size :])}


def _write(descriptor: int, entries: Entries) -> None:
    """Set the list; the kernel requires entries in the order of their kinds and ids."""
    body = b"".join(ENTRY.pack(kind, rights, number) for (kind, number), rights in sorted(entries.items()))
    os.setxattr(descriptor, ATTRIBUTE, HEADER.pack(VERSION) + body)
