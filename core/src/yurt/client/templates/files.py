"""Reads and writes the files of templates without leaving the task's directories (invariant F3). Blocking.

A task may put any link, folder or FIFO into its directory at any time. A path is therefore walked one component after
the other, following no link, and the file is made under another name and renamed into place, which replaces any file
there and never opens it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import stat

from yurt.client.files.safe_files import Owners, open_inside
from yurt.sdk.driver import TaskDirs
from yurt.sdk.errors import Invalid, NotFound, YurtError

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
FOLDER_MODE = 0o777
SIZE_MAX = 16 * 1024 * 1024
SHARED = "alloc"
VISIBLE = ("/alloc/", "/local/", "/secrets/")
"""The paths of a task's directories in a file system of its own."""


def place(text: str, dirs: TaskDirs) -> tuple[str, str]:
    """Resolve a job's path to a folder, the task's own or the shared one, and the path in it.

    A path is taken from the task's directory; `/alloc/...` and the directories' own paths on the host work too.
    """
    if "\0" in text:
        raise Invalid("a path cannot hold a NUL character")
    path = posixpath.normpath(text) if text else "."
    for root in (dirs.task_dir, dirs.shared_dir):
        if path.startswith(f"{root}/"):
            return root, path[len(root) + 1 :]
    if path.startswith(f"/{SHARED}/"):
        return dirs.shared_dir, path[len(SHARED) + 2 :]
    relative = path.lstrip("/")
    if path.startswith(f"{dirs.alloc_dir}/") or relative == ".." or relative.startswith("../"):
        raise Invalid(f"path {text!r} leaves the task's directory")
    if relative in ("", "."):
        raise Invalid(f"path {text!r} names no file")
    return dirs.task_dir, relative


def read_file(text: str, dirs: TaskDirs, *, is_sandboxed: bool, owners: Owners = None) -> bytes:
    """Read the file that a template's `source` or `file` names; raises Invalid or NotFound."""
    if text.startswith("/") and not text.startswith((f"{dirs.alloc_dir}/", *VISIBLE)):
        if is_sandboxed:
            raise Invalid(f"{text!r} is outside of the task's directory (client.template.disable_file_sandbox)")
        descriptor = _open_host(text)
    else:
        root, path = place(text, dirs)
        descriptor = open_inside(root, path, owners=owners)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Invalid(f"{text!r} is not a plain file")
        body = file.read(SIZE_MAX + 1)
    if len(body) > SIZE_MAX:
        raise Invalid(f"{text!r} holds more than {SIZE_MAX} bytes")
    return body


def _open_host(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise NotFound(f"no file {path!r} on this node") from None
    except OSError as error:
        raise Invalid(f"{path!r} cannot be read: {error.strerror}") from None


def current(root: str, path: str) -> bytes | None:
    """The current contents of a rendered file; None when it is missing or not a plain file."""
    try:
        folder, name = _parent(root, path, is_made=False)
    except (OSError, YurtError):
        return None
    try:
        descriptor = os.open(name, READ_FLAGS, dir_fd=folder)
    except OSError:
        return None
    finally:
        os.close(folder)
    with os.fdopen(descriptor, "rb") as file:
        return file.read(SIZE_MAX + 1) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None


def write(root: str, path: str, body: bytes, *, mode: int, owner: tuple[int, int]) -> None:
    """Write a file atomically, making its folders; an owner of -1 is the agent."""
    try:
        folder, name = _parent(root, path, is_made=True)
    except OSError as error:
        raise Invalid(_explained(path, error)) from None
    temporary = f".{name[:100]}.{os.getpid()}.tmp"
    try:
        _make_file(folder, temporary, body, mode=mode, owner=owner)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise Invalid(_explained(path, error)) from None
    finally:
        os.close(folder)


def _make_file(folder: int, name: str, body: bytes, *, mode: int, owner: tuple[int, int]) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
    with os.fdopen(os.open(name, WRITE_FLAGS, 0o600, dir_fd=folder), "wb") as file:
        file.write(body)
        file.flush()
        if owner != (-1, -1):
            os.fchown(file.fileno(), *owner)
        os.fchmod(file.fileno(), mode)


def _parent(root: str, path: str, *, is_made: bool) -> tuple[int, str]:
    """A descriptor of the file's folder, and the file's name."""
    *parts, name = [part for part in path.split("/") if part]
    if ".." in parts or name == "..":
        raise Invalid(f"path {path!r} leaves the task's directory")
    folder = os.open(root, FOLDER_FLAGS)
    try:
        for part in parts:
            if is_made:
                _make(part, folder)
            inner = os.open(part, FOLDER_FLAGS, dir_fd=folder)
            os.close(folder)
            folder = inner
    except BaseException:
        os.close(folder)
        raise
    return folder, name


def _make(name: str, folder: int) -> None:
    try:
        os.mkdir(name, dir_fd=folder)
    except FileExistsError:
        return
    made = os.open(name, FOLDER_FLAGS, dir_fd=folder)
    try:
        os.fchmod(made, FOLDER_MODE)
    finally:
        os.close(made)


def _explained(path: str, error: OSError) -> str:
    match error.errno:
        case errno.ELOOP | errno.ENOTDIR:
            return f"its destination {path!r} passes a symlink or a file; a template is written into folders only"
        case errno.EISDIR | errno.EEXIST:
            return f"its destination {path!r} is a folder; name a file"
        case errno.ENOSPC | errno.EDQUOT:
            return f"its destination {path!r} has no space left; secrets are small (`resources.secrets`)"
    return f"its destination {path!r} cannot be written: {error.strerror}"
