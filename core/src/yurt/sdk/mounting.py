"""Binds, detaches and lists mounts of this machine by system calls. Blocking; for Linux, as root.

It imports only the standard library, so that it can run from this file without site packages: the command `clear`
removes the mounts that a killed agent left, `drop` those of one group.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
from collections.abc import Collection

MOUNTS_FILE = "/proc/self/mountinfo"
MS_BIND, MS_REC, MS_PRIVATE = 1 << 12, 1 << 14, 1 << 18
MNT_DETACH, UMOUNT_NOFOLLOW = 2, 8
POINT_FIELD = 4


@functools.cache
def c_library() -> ctypes.CDLL:
    """The C library, with errno for each thread; cached, since each object leaks some kilobytes."""
    return ctypes.CDLL(None, use_errno=True)


def libc_call(name: str, *arguments: bytes | int | None) -> int:
    """The errno of a call, 0 on success; integers of mount(2) are as wide as the machine's words."""
    typed = [ctypes.c_ulong(each) if isinstance(each, int) and name == "mount" else each for each in arguments]
    return ctypes.get_errno() if getattr(c_library(), name)(*typed) != 0 else 0


def bind(descriptor: int, place: str) -> None:
    """Mount a descriptor and all mounts below it over a file or folder; raises OSError.

    The descriptor, not a path, determines the source, so that renames and replacements meanwhile have no effect.
    """
    source = f"/proc/self/fd/{descriptor}".encode()
    failed = libc_call("mount", source, os.fsencode(place), None, MS_BIND | MS_REC, None)
    if failed:
        raise OSError(failed, os.strerror(failed), place)


def detach(place: str) -> None:
    """Detach a mount and all mounts below it; raises OSError.

    It is separated from its source first: otherwise the mounts below the source would be detached as well.
    """
    libc_call("mount", None, os.fsencode(place), None, MS_REC | MS_PRIVATE, None)
    failed = libc_call("umount2", os.fsencode(place), MNT_DETACH | UMOUNT_NOFOLLOW)
    if failed:
        raise OSError(failed, os.strerror(failed), place)


def plain(escaped: str) -> str:
    """A path from mountinfo (proc(5)) with its escapes decoded."""
    for octal, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        escaped = escaped.replace(octal, character)
    return escaped


def points_below(folder: str, mounts_file: str = MOUNTS_FILE) -> tuple[str, ...]:
    """The mount points below a folder, latest first; empty where the system does not report them."""
    try:
        with open(mounts_file, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except OSError:
        return ()
    points = [plain(words[POINT_FIELD]) for words in (line.split(" ") for line in lines) if len(words) > POINT_FIELD]
    return tuple(point for point in reversed(points) if point.startswith(f"{folder}/"))


def clear(folder: str, keep: Collection[str] = frozenset()) -> None:
    """Unmount `<folder>/<group>/<place>` and remove the empty places, except groups to keep.

    `keep` may grow meanwhile: it is asked after a group was seen, and a group is kept before anything is made for it.

    Mounts further below are removed only with their place (see `detach`). A folder is removed only when nothing
    is in it and nothing is mounted over it, so that no content can go with it.
    """
    for point in points_below(folder):
        group, *rest = point[len(folder) + 1 :].split("/")
        if len(rest) == 1 and group not in keep:
            with contextlib.suppress(OSError):
                detach(point)
    with contextlib.suppress(OSError):
        for group in os.listdir(folder):
            if group not in keep:
                clear_group(f"{folder}/{group}")
        os.rmdir(folder)


def clear_group(group: str) -> None:
    """Unmount the places of a group and remove the empty files and folders."""
    with contextlib.suppress(OSError):
        for name in os.listdir(group):
            place = f"{group}/{name}"
            with contextlib.suppress(OSError):
                detach(place)
            remove_place(place)
        os.rmdir(group)


def drop(folder: str, group: str) -> None:
    """Unmount a group, and remove the folder with the last of them."""
    clear_group(f"{folder}/{group}")
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def remove_place(place: str) -> None:
    """Remove an empty file or folder of ours; one with a mount over it is busy and stays."""
    with contextlib.suppress(OSError):
        if os.path.isdir(place):
            os.rmdir(place)
        elif os.path.getsize(place) == 0:
            os.unlink(place)


if __name__ == "__main__":
    if sys.argv[2:]:
        drop(sys.argv[1], sys.argv[2])
    else:
        clear(sys.argv[1])
