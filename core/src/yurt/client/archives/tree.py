"""Writes the entries of an archive beneath an open folder, which no entry can leave.

As long as no other process writes in the folder, these rules suffice for any names and links in the archive:

- A name has a bounded length and depth and no `..`. A leading `/` is left out where the archive format allows one.
- Every step goes from an open folder to the next by one component, and follows no link.
- Symbolic links are recorded and made last, so that none exists that a write could follow; a name that goes through a
  recorded link is refused.
- A link's target stays inside (see `links`), unless the caller accepts any target.
- A hard link leads only to a regular file that this extraction has written. Nothing else can be read through one.
- Files are always new (O_EXCL). A later entry of the same name replaces the file and never writes into it.
- Devices and pipes are not made, and set-user-id, set-group-id and sticky bits are cleared.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from yurt.client.archives.links import Parts, leads_inside
from yurt.sdk.errors import Invalid
from yurt.sdk.opening import descend

FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
READ_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
CHUNK_BYTES: Final = 256 * 1024
NAME_BYTES_MAX: Final = 255
PATH_BYTES_MAX: Final = 2048
DEPTH_MAX: Final = 128
MODE_BITS: Final = 0o777
SHOWN_CHARACTERS: Final = 80


class Attributes(NamedTuple):
    """The attributes that an entry keeps; `owner` is omitted when it is that of the process."""

    mode: int
    mtime: int | None = None
    owner: tuple[int, int] | None = None


class EntryBudget(Protocol):
    """Bounds bytes and entries; raises Invalid beyond the bounds."""

    def add(self, size: int) -> None:
        """Count more bytes."""

    def add_folder(self) -> None:
        """Count one more folder."""


def parts_of_member(name: str) -> Parts:
    """The components of an entry's name, without a leading `/`; raises Invalid for one that could leave the folder."""
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if ".." in parts or "\0" in name:
        raise Invalid(f"the archive holds {shown(name)}, which leads out of it")
    if len(parts) > DEPTH_MAX or len(os.fsencode(name)) > PATH_BYTES_MAX:
        raise Invalid(
            f"the archive holds {shown(name)}, a path of more than {DEPTH_MAX} folders or {PATH_BYTES_MAX} bytes"
        )
    if any(len(os.fsencode(part)) > NAME_BYTES_MAX for part in parts):
        raise Invalid(f"the archive holds {shown(name)}, which has a name of more than {NAME_BYTES_MAX} bytes")
    return parts


def shown(name: str) -> str:
    """A name in the form for error messages."""
    return repr(name if len(name) <= SHOWN_CHARACTERS else f"{name[:SHOWN_CHARACTERS]}...")


class TreeWriter:
    """Writes entries beneath the folder `top`, which the caller keeps open; `finish` completes the tree."""

    def __init__(self, top: int, budget: EntryBudget, *, takes_any_link: bool = False) -> None:
        self._top = top
        self._budget = budget
        self._takes_any_link = takes_any_link
        self._folders: set[Parts] = {()}
        self._files: set[Parts] = set()
        self._links: dict[Parts, tuple[str, tuple[int, int] | None]] = {}
        self._attributes: dict[Parts, Attributes] = {}

    def folder(self, name: str, attributes: Attributes | None = None) -> None:
        """Make a folder; `finish` sets its attributes, when nothing more is written into it."""
        parts = parts_of_member(name)
        os.close(self._open(parts, name))
        if attributes is not None and parts:
            self._attributes[parts] = attributes

    def file(self, name: str, chunks: Iterable[bytes], attributes: Attributes) -> None:
        """Write a regular file."""
        parts, folder = self._parent_of_new(name)
        try:
            descriptor = _created(parts[-1], folder, name)
            with os.fdopen(descriptor, "wb") as file:
                for chunk in chunks:
                    file.write(chunk)
                file.flush()
                _set_attributes(descriptor, attributes)
        finally:
            os.close(folder)
        self._files.add(parts)

    def hard_link(self, name: str, target: str) -> None:
        """Add a hard link to a file written before."""
        source = parts_of_member(target)
        if source not in self._files:
            raise Invalid(
                f"the archive holds {shown(name)} as a hard link to {shown(target)}, which is not a file that comes "
                "before it in the archive"
            )
        if parts_of_member(name) == source:
            return
        parts, folder = self._parent_of_new(name)
        try:
            origin = self._open(source[:-1], target)
            try:
                self._second_name(origin, source[-1], folder, parts[-1])
            finally:
                os.close(origin)
        finally:
            os.close(folder)
        self._files.add(parts)

    def link(self, name: str, target: str, owner: tuple[int, int] | None = None) -> None:
        """Record a symbolic link, which `finish` makes."""
        parts, folder = self._parent_of_new(name)
        os.close(folder)
        self._links[parts] = (target, owner)

    def finish(self) -> None:
        """Make the links, then give the folders their attributes, the deepest first; nothing is written after this."""
        for parts in self._links:
            os.close(self._open(parts[:-1], "/".join(parts)))
        for parts, (target, owner) in self._links.items():
            self._make_link(parts, target, owner)
        for parts, attributes in sorted(self._attributes.items(), key=lambda item: -len(item[0])):
            descriptor = self._open(parts, "/".join(parts))
            try:
                _set_attributes(descriptor, attributes)
            finally:
                os.close(descriptor)

    def _make_link(self, parts: Parts, target: str, owner: tuple[int, int] | None) -> None:
        name = "/".join(parts)
        if not self._takes_any_link and not leads_inside(parts[:-1], target, self._folders):
            raise Invalid(f"the archive holds the link {shown(name)} to {shown(target)}, which leads out of it")
        folder = self._open(parts[:-1], name)
        try:
            os.symlink(target, parts[-1], dir_fd=folder)
            if owner:
                with contextlib.suppress(PermissionError):
                    os.chown(parts[-1], *owner, dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            raise _twice(name) from None
        finally:
            os.close(folder)

    def _parent_of_new(self, name: str) -> tuple[Parts, int]:
        """The parts of a new entry and its open folder, after removing a file or recorded link of that name."""
        parts = parts_of_member(name)
        if not parts:
            raise Invalid(f"the archive holds {shown(name)}, which is not a valid file name")
        folder = self._open(parts[:-1], name)
        self._links.pop(parts, None)
        if parts in self._files:
            os.unlink(parts[-1], dir_fd=folder)
            self._files.discard(parts)
        return parts, folder

    def _open(self, parts: Parts, name: str) -> int:
        """Open a folder beneath the top, making it when it is missing."""
        steps = (parts[:depth] for depth in range(1, len(parts) + 1))
        return descend(os.dup(self._top), steps, lambda folder, step: self._enter(folder, step, name))

    def _enter(self, folder: int, parts: Parts, name: str) -> int:
        if parts in self._links:
            raise Invalid(f"the archive holds {shown(name)} behind {shown('/'.join(parts))}, a link")
        if parts not in self._folders:
            with contextlib.suppress(FileExistsError):
                self._budget.add_folder()
                os.mkdir(parts[-1], 0o755, dir_fd=folder)
        try:
            found = os.open(parts[-1], FOLDER_FLAGS, dir_fd=folder)
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            raise Invalid(
                f"the archive holds {shown(name)} behind {shown('/'.join(parts))}, which is not a folder in it"
            ) from None
        self._folders.add(parts)
        return found

    def _second_name(self, origin: int, old: str, folder: int, new: str) -> None:
        """Make a hard link, or a copy where hard links are not supported or not permitted."""
        try:
            os.link(old, new, src_dir_fd=origin, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            raise _twice(new) from None
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP):
                raise
            self._copy(origin, old, folder, new)

    def _copy(self, origin: int, old: str, folder: int, new: str) -> None:
        with os.fdopen(os.open(old, READ_FLAGS, dir_fd=origin), "rb") as source:
            found = os.fstat(source.fileno())
            self._budget.add(found.st_size)
            descriptor = _created(new, folder, new)
            with os.fdopen(descriptor, "wb") as file:
                while piece := source.read(CHUNK_BYTES):
                    file.write(piece)
                file.flush()
                _set_attributes(descriptor, Attributes(found.st_mode, int(found.st_mtime)))


def _created(name: str, folder: int, shown_name: str) -> int:
    try:
        return os.open(name, FILE_FLAGS, 0o600, dir_fd=folder)
    except FileExistsError:
        raise _twice(shown_name) from None


def _twice(name: str) -> Invalid:
    return Invalid(f"the archive holds {shown(name)} twice, or in another spelling that means the same here")


def _set_attributes(descriptor: int, attributes: Attributes) -> None:
    """Set owner, then mode, then time: a change of owner clears mode bits."""
    if attributes.owner is not None:
        with contextlib.suppress(PermissionError, OverflowError):
            os.chown(descriptor, *attributes.owner)
    os.chmod(descriptor, attributes.mode & MODE_BITS)
    if attributes.mtime is not None:
        with contextlib.suppress(OSError, OverflowError):
            os.utime(descriptor, (attributes.mtime, attributes.mtime))
