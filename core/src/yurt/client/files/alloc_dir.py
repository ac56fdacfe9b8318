"""The directory tree of an allocation on the host.

    <alloc_dir>/<alloc id>                           closed to other users of the machine
    <alloc_dir>/<alloc id>/alloc/{data,logs,tmp}     shared by its tasks
    <alloc_dir>/<alloc id>/<task>/{local,secrets,private,tmp}

Names come from jobs: every one is checked to be a single path component before it is used.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from yurt.client.files.secrets_dir import mount_secrets, unmount_secrets
from yurt.sdk.driver import TaskDirs
from yurt.sdk.dynamic_users import dynamic_uid
from yurt.sdk.errors import Invalid

SHARED = "alloc"
NOTICE = "notice"
"""The name of the file in the shared directory with notices for the tasks."""
OPEN_MODE = 0o777
PRIVATE_MODE = 0o700
NO_MOUNT = -1
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class _Part(NamedTuple):
    """A directory within a new one: its mode, and the task's user where it belongs to that one."""

    name: str
    mode: int
    user: str = ""


SHARED_PARTS = (_Part("data", OPEN_MODE), _Part("logs", OPEN_MODE), _Part("tmp", OPEN_MODE))


def component(name: str) -> str:
    """Check that `name` is a single path component, and return it; raises Invalid."""
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise Invalid(f"{name!r} cannot be the name of a directory; use a name without slashes")
    return name


def alloc_path(root: str, alloc_id: str) -> Path:
    """The directory of an allocation."""
    return Path(root) / component(alloc_id)


def task_dirs(root: str, alloc_id: str, task: str) -> TaskDirs:
    """The directories of a task on the host."""
    base = str(alloc_path(root, alloc_id))
    shared, own = f"{base}/{SHARED}", f"{base}/{component(task)}"
    return TaskDirs(
        alloc_dir=base,
        shared_dir=shared,
        task_dir=own,
        local_dir=f"{own}/local",
        secrets_dir=f"{own}/secrets",
        logs_dir=f"{shared}/logs",
    )


def _make_tree(top: str, parts: Iterable[_Part]) -> None:
    """Make an open directory with its parts; a symbolic link in place of one is refused, not followed.

    Only the agent's user can enter a new one until all its parts are made, so their modes can be set by their paths. By
    descriptors, as where tasks may have put something in their place, it takes twice as many system calls, and each
    costs a start two changes of threads.
    """
    try:
        os.mkdir(top, PRIVATE_MODE)
    except FileExistsError:
        _set(top, OPEN_MODE)
        for part in parts:
            with contextlib.suppress(FileExistsError):
                os.mkdir(f"{top}/{part.name}")
            _set(f"{top}/{part.name}", part.mode, user=part.user)
        return
    for part in parts:
        path = f"{top}/{part.name}"
        os.mkdir(path, part.mode)
        if part.mode != PRIVATE_MODE:  # the process's mask takes rights of other users away
            os.chmod(path, part.mode)
        if part.user and os.geteuid() == 0:
            os.chown(path, *_ids_of(part.user))
    os.chmod(top, OPEN_MODE)


def _set(path: str, mode: int, *, user: str = "") -> None:
    """Set mode and owner of a directory, not of what a link leads to."""
    descriptor = os.open(path, FOLDER_FLAGS)
    try:
        os.fchmod(descriptor, mode)
        if user and os.geteuid() == 0:
            os.fchown(descriptor, *_ids_of(user))
    finally:
        os.close(descriptor)


def _make_closed(path: Path) -> None:
    """Make a directory that only the agent's user can enter.

    Tasks may leave files in it that must not reach local users of the machine, for example a set-user-id program of
    root. A start of a task as a user of the host grants that user search permission (`yurt.sdk.search_permission`),
    which a change of the mode would revoke. So the mode of an existing directory is not changed.
    """
    try:
        path.mkdir(mode=PRIVATE_MODE)
    except FileExistsError:
        os.close(os.open(path, FOLDER_FLAGS))  # Raises OSError for a link.


def _ids_of(user: str) -> tuple[int, int]:
    dynamic = dynamic_uid(user)
    if dynamic is not None:
        return dynamic, dynamic
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        raise Invalid(f"the task's user {user!r} does not exist on this node; create it or choose another") from None
    return entry.pw_uid, entry.pw_gid


def build_alloc_dir(root: str, alloc_id: str) -> None:
    """Make the shared part of an allocation's tree; blocking."""
    base = alloc_path(root, alloc_id)
    try:
        _make_closed(base)
    except FileNotFoundError:
        base.parent.mkdir(parents=True, exist_ok=True)
        _make_closed(base)
    _make_tree(f"{base}/{SHARED}", SHARED_PARTS)


def build_task_dir(root: str, alloc_id: str, task: str, *, user: str = "", secrets_mb: int = NO_MOUNT) -> TaskDirs:
    """Make a task's own tree; secrets and private are readable by the task's user alone. Blocking.

    `secrets_mb`: how much memory secrets lie in, 0 for the usual, NO_MOUNT for a plain folder.
    """
    dirs = task_dirs(root, alloc_id, task)
    own = (_Part(part, PRIVATE_MODE, user) for part in ("secrets", "private"))
    _make_tree(dirs.task_dir, (_Part("local", OPEN_MODE), _Part("tmp", OPEN_MODE), *own))
    if secrets_mb != NO_MOUNT:
        mount_secrets(dirs.secrets_dir, secrets_mb)
    return dirs


def write_dispatch_payload(dirs: TaskDirs, name: str, payload: bytes) -> None:
    """Write a dispatched job's payload to `local/<name>`, never outside of it. Blocking.

    The file is always a new one: at a restart, what lies there is the task's, and may be a pipe, a device or a link.
    """
    parts = [part for part in name.split("/") if part]
    if not parts:
        raise Invalid("dispatch_payload needs a file name")
    parent = os.open(dirs.local_dir, FOLDER_FLAGS)
    try:
        for part in parts[:-1]:
            with contextlib.suppress(FileExistsError):
                os.mkdir(component(part), dir_fd=parent)
            inner = os.open(part, FOLDER_FLAGS, dir_fd=parent)
            os.close(parent)
            parent = inner
        with contextlib.suppress(FileNotFoundError):
            os.unlink(component(parts[-1]), dir_fd=parent)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(component(parts[-1]), flags, 0o644, dir_fd=parent), "wb") as file:
            file.write(payload)
    finally:
        os.close(parent)


def write_notice(folder: str, text: str) -> None:
    """Write a notice for the tasks of an allocation to `alloc/notice`, or remove the file for an empty text. Blocking.

    The directory belongs to the tasks: whatever has that name is replaced, and links are not followed. Raises OSError.
    """
    shared = os.open(Path(folder) / SHARED, FOLDER_FLAGS)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(NOTICE, dir_fd=shared)
        if text:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(NOTICE, flags, 0o644, dir_fd=shared), "w", encoding="utf-8") as file:
                file.write(f"{text}\n")
    finally:
        os.close(shared)


def carry_over(root: str, old_id: str, new_id: str, tasks: Iterable[str]) -> None:
    """Move the sticky data of an ended allocation, `alloc/data` and each task's `local`, to its successor. Blocking.

    Missing folders are left out; only folders are moved, never a link that a task has put in their place.
    """
    old, new = alloc_path(root, old_id), alloc_path(root, new_id)
    for folder, name in ((SHARED, "data"), *((component(task), "local") for task in tasks)):
        if folder != SHARED:
            _make_tree(f"{new}/{folder}", ())
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            _move_folder(old / folder, new / folder, name)


def _move_folder(old: Path, new: Path, name: str) -> None:
    """Move a folder to a path that is missing or an empty folder."""
    source = os.open(old, FOLDER_FLAGS)
    try:
        target = os.open(new, FOLDER_FLAGS)
        try:
            is_folder = stat.S_ISDIR(os.stat(name, dir_fd=source, follow_symlinks=False).st_mode)
            if is_folder:
                os.rename(name, name, src_dir_fd=source, dst_dir_fd=target)
        finally:
            os.close(target)
    finally:
        os.close(source)


def remove_alloc_dir(root: str, alloc_id: str) -> None:
    """Remove an allocation's tree; not an error when parts are missing. Blocking."""
    unmount_secrets(str(alloc_path(root, alloc_id)))
    shutil.rmtree(alloc_path(root, alloc_id), onerror=_pass_missing)


def _pass_missing(_function: object, _path: object, info: tuple[type[BaseException], BaseException, object]) -> None:
    if not isinstance(info[1], FileNotFoundError):
        raise info[1]
