"""Moves fetched files to their destination without leaving the allocation's directory (invariant F3).

Tasks of the allocation may write there meanwhile, and swap any folder for a link. Every step therefore goes from an
open folder to the next, following no link, and entries arrive by rename, which follows none either. The staging folder
belongs to the agent, so its contents do not change during the check.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from typing import Final

from yurt.client.archives.links import Parts, leads_inside
from yurt.sdk.errors import Invalid
from yurt.sdk.opening import descend, names_of

FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
FOLDER_MODE: Final = 0o755
DEPTH_MAX: Final = 128
PERMISSION_BITS: Final = 0o777

Owner = tuple[int, int] | None


class Arrivals:
    """Gives the entries of a fetched tree to their final owner, a file with several names in the tree once.

    An entry that the worker's user does not own is refused: it would be a hard link to a file of the host.
    """

    def __init__(self, written_by: int, owner: Owner) -> None:
        self.owner = owner
        self._written_by = written_by
        self._inodes: set[tuple[int, int]] = set()

    def give(self, name: str, folder: int) -> None:
        """Check and give one entry of a folder."""
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if (found.st_dev, found.st_ino) in self._inodes:
            return
        if found.st_uid != self._written_by:
            raise Invalid(f"the artifact holds {name[:200]!r}, which belongs to the user {found.st_uid} of this node")
        if self.owner:
            os.chown(name, *self.owner, dir_fd=folder, follow_symlinks=False)
        self._inodes.add((found.st_dev, found.st_ino))


def check_tree(tree: str) -> None:
    """Check a tree: raises Invalid for links that leave it and for special files; clears set-id bits.

    The tree is walked by open folders, so that no depth and no length of a path hides an entry.
    """
    folders: set[Parts] = {()}
    links: dict[Parts, str] = {}
    top = os.open(tree, FOLDER_FLAGS)
    try:
        _check_folder(top, (), folders, links)
    finally:
        os.close(top)
    for parts, target in links.items():
        if not leads_inside(parts[:-1], target, folders):
            raise Invalid(f"the artifact holds the link {'/'.join(parts)[:200]!r}, which leads out of it")


def _check_folder(folder: int, parts: Parts, folders: set[Parts], links: dict[Parts, str]) -> None:
    if len(parts) > DEPTH_MAX:
        raise Invalid(f"the artifact is more than {DEPTH_MAX} folders deep")
    for name in os.listdir(folder):
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            links[(*parts, name)] = os.readlink(name, dir_fd=folder)
            continue
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            shown = "/".join((*parts, name))[:200]
            raise Invalid(f"the artifact holds {shown!r}, which is neither a file, a folder nor a link")
        if mode & ~PERMISSION_BITS & 0o7777:
            os.chmod(name, mode & PERMISSION_BITS, dir_fd=folder)
        if stat.S_ISDIR(mode):
            folders.add((*parts, name))
            inner = os.open(name, FOLDER_FLAGS, dir_fd=folder)
            try:
                _check_folder(inner, (*parts, name), folders, links)
            finally:
                os.close(inner)


def inside(tree: str, path: str) -> str:
    """A folder or file inside a tree; raises Invalid when it is missing or outside."""
    try:
        found, top = os.path.realpath(os.path.join(tree, path), strict=True), os.path.realpath(tree)
    except FileNotFoundError:
        raise Invalid(f"the artifact holds no {path!r}; check the part of its source behind //") from None
    except OSError as error:
        raise Invalid(f"the artifact's {path[:200]!r} cannot be resolved: {error.strerror}") from None
    if found != top and not found.startswith(f"{top}/"):
        raise Invalid(f"{path!r} leads out of the artifact")
    return found


def only_file(tree: str) -> str:
    """The one file of a tree."""
    files = [os.path.join(folder, name) for folder, _, names in os.walk(tree) for name in names]
    if len(files) != 1:
        raise Invalid(f'mode = "file" needs an artifact of one file; this one holds {len(files)}')
    return files[0]


def place_tree(tree: str, root: str, destination: str, arrivals: Arrivals) -> None:
    """Move the contents of a tree into the folder `destination` of `root`."""
    target = open_folder(root, destination, arrivals.owner)
    source = os.open(tree, FOLDER_FLAGS)
    try:
        _merge(source, target, arrivals, depth=0)
    finally:
        os.close(source)
        os.close(target)


def place_file(path: str, root: str, destination: str, *, name: str, arrivals: Arrivals) -> None:
    """Move a file into the folder `destination` of `root`, under a name."""
    target = open_folder(root, destination, arrivals.owner)
    source = os.open(os.path.dirname(path), FOLDER_FLAGS)
    try:
        _move(source, os.path.basename(path), target, name=name, arrivals=arrivals)
    finally:
        os.close(source)
        os.close(target)


def open_folder(root: str, path: str, owner: Owner) -> int:
    """Open a folder beneath `root`, making it when it is missing; symbolic links are not followed."""
    root_fd = os.open(root, FOLDER_FLAGS)
    return descend(root_fd, names_of(path), lambda folder, part: _enter(folder, part, owner))


def _enter(folder: int, name: str, owner: Owner) -> int:
    if name == "..":
        raise Invalid("the artifact's destination leaves the allocation's directory")
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, FOLDER_MODE, dir_fd=folder)
        if owner:
            os.chown(name, *owner, dir_fd=folder, follow_symlinks=False)
    try:
        return os.open(name, FOLDER_FLAGS, dir_fd=folder)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        raise Invalid(
            f"the artifact's destination has {name!r} on its way, which is not a folder (links are not followed)"
        ) from None


def _merge(source: int, target: int, arrivals: Arrivals, *, depth: int) -> None:
    if depth > DEPTH_MAX:
        raise Invalid(f"the artifact is more than {DEPTH_MAX} folders deep")
    for name in os.listdir(source):
        if stat.S_ISDIR(os.stat(name, dir_fd=source, follow_symlinks=False).st_mode):
            inner, into = os.open(name, FOLDER_FLAGS, dir_fd=source), _enter(target, name, arrivals.owner)
            try:
                os.fchmod(into, stat.S_IMODE(os.fstat(inner).st_mode) & PERMISSION_BITS)
                _merge(inner, into, arrivals, depth=depth + 1)
            finally:
                os.close(inner)
                os.close(into)
        else:
            _move(source, name, target, name=name, arrivals=arrivals)


def _move(source: int, old: str, target: int, *, name: str, arrivals: Arrivals) -> None:
    arrivals.give(old, source)
    try:
        os.rename(old, name, src_dir_fd=source, dst_dir_fd=target)
    except IsADirectoryError:
        raise Invalid(f"the artifact cannot take the place of the folder {name!r}") from None
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy(source, old, target, name=name, owner=arrivals.owner)


def _copy(source: int, old: str, target: int, *, name: str, owner: Owner) -> None:
    """Move into another file system (a task's secrets): copy into the destination's folder, then rename."""
    found = os.stat(old, dir_fd=source, follow_symlinks=False)
    partial = f".{name[:200]}.part"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(partial, dir_fd=target)
    if stat.S_ISLNK(found.st_mode):
        os.symlink(os.readlink(old, dir_fd=source), partial, dir_fd=target)
    else:
        made = os.open(partial, FILE_FLAGS, stat.S_IMODE(found.st_mode), dir_fd=target)
        with (
            os.fdopen(os.open(old, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=source), "rb") as data,
            os.fdopen(made, "wb") as file,
        ):
            shutil.copyfileobj(data, file)
    if owner:
        os.chown(partial, *owner, dir_fd=target, follow_symlinks=False)
    os.rename(partial, name, src_dir_fd=target, dst_dir_fd=target)
