"""The pool of user ids for tasks without a `user`, if their driver supports dynamic users.

    take     an id of the pool belongs to the task, over all of its runs and over restarts of the agent
    restore  an earlier agent gave the id: it counts as taken before the first `take`
    release  the allocation's directory is gone, and with it all files of these ids

An id is released with the directory, not at the task's end: the task's files, secrets included, remain until then, and
the next task with that id could read them. Ids are taken in turn, so that each is reused as late as possible. Ids in
the host's tables of users and groups are left out, and so are ids of running processes, which may have outlived their
task or belong to another program's range. Blocking, and safe to call from several threads.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import threading
from collections.abc import Callable, Collection, Iterable
from itertools import chain
from typing import Final

from yurt.client.files.alloc_dir import alloc_path
from yurt.client.files.users import UserRange
from yurt.sdk.errors import RecoverableError
from yurt.storage.client_db import AllocRecord

OWNED_FOLDERS: Final = ("private", "secrets")
"""The folders of a task that belong to its user."""
ID_LINES: Final = (b"Uid:", b"Gid:", b"Groups:")


def is_of_host(uid: int) -> bool:
    """Whether the host's table of users or groups has an id; a task gets the id as its group, too."""
    for look_up in (pwd.getpwuid, grp.getgrgid):
        with contextlib.suppress(KeyError):
            look_up(uid)
            return True
    return False


def ids_of_processes(folder: str = "/proc") -> frozenset[int]:
    """The ids of users and groups that processes have; none where the system has no such folder."""
    found: set[int] = set()
    try:
        names = [name for name in os.listdir(folder) if name.isdigit()]
    except OSError:
        return frozenset()
    for name in names:
        # A process that ends meanwhile has no file, or one that fails to be read (ESRCH).
        with contextlib.suppress(OSError), open(f"{folder}/{name}/status", "rb") as file:
            found.update(int(text) for line in file if line.startswith(ID_LINES) for text in line.split()[1:])
    return frozenset(found)


class DynamicUsers:
    """Assigns each task a user id of its own."""

    def __init__(
        self, ids: UserRange, *, is_known: Callable[[int], bool] = is_of_host,
        in_use: Callable[[], Collection[int]] = ids_of_processes,
    ) -> None:  # fmt: skip
        """`is_known` says whether the host's tables have an id, `in_use` gives the ids of processes."""
        self._ids = ids
        self._is_known, self._in_use = is_known, in_use
        self._lock = threading.Lock()
        self._taken: dict[tuple[str, str], int] = {}
        self._next = ids.first

    def __len__(self) -> int:
        """The number of taken ids."""
        return len(self._taken)

    def uid_of(self, alloc_id: str, task: str) -> int:
        """The id of a task; 0 without one."""
        return self._taken.get((alloc_id, task), 0)

    def take(self, alloc_id: str, task: str) -> int:
        """The id of a task, a free one at its first run; raises RecoverableError when all are taken."""
        ids = self._ids
        with self._lock:
            assigned = self._taken.get((alloc_id, task))
            taken, start = set(self._taken.values()), self._next
        if assigned is not None:
            return assigned
        # The host's tables may be asked over a network (LDAP), so not under the lock.
        taken.update(self._in_use())
        for uid in chain(range(start, ids.last + 1), range(ids.first, start)):
            if uid not in taken and not self._is_known(uid) and (given := self._assign(alloc_id, task, uid)):
                return given
        raise RecoverableError(
            f"all user ids from {ids.first} to {ids.last} are taken, by tasks or processes "
            "(client users.dynamic_user_min, dynamic_user_max); "
            "`system gc` removes directories of ended allocations, which keep theirs"
        )

    def _assign(self, alloc_id: str, task: str, uid: int) -> int:
        """Assign an id to the task and return the task's id; 0 if another task has taken `uid` meanwhile."""
        with self._lock:
            assigned = self._taken.get((alloc_id, task))
            if assigned is not None:
                return assigned
            if uid in self._taken.values():
                return 0
            self._taken[alloc_id, task] = uid
            self._next = uid + 1 if uid < self._ids.last else self._ids.first
            return uid

    def restore(self, records: Iterable[AllocRecord], lost: Iterable[str], alloc_dir: str) -> None:
        """Take the ids again that an earlier agent assigned.

        Records name them. Of allocations whose record is `lost`, the owners of the tasks' folders do.
        """
        found = {
            (record.id, name): task.dynamic_uid
            for record in records
            for name, task in record.tasks.items()
            if task.dynamic_uid and os.path.isdir(alloc_path(alloc_dir, record.id))
        }
        for alloc_id in lost:
            found |= self._found_in(alloc_id, alloc_dir)
        with self._lock:
            self._taken |= found
            mine = [uid for uid in found.values() if self._ids.first <= uid < self._ids.last]
            self._next = max(mine, default=self._ids.first - 1) + 1

    def _found_in(self, alloc_id: str, alloc_dir: str) -> dict[tuple[str, str], int]:
        found = {}
        try:
            tasks = os.listdir(alloc_path(alloc_dir, alloc_id))
        except OSError:
            return {}
        for task in tasks:
            for folder in OWNED_FOLDERS:
                try:
                    owner = os.lstat(alloc_path(alloc_dir, alloc_id) / task / folder).st_uid
                except OSError:
                    continue
                if self._ids.first <= owner <= self._ids.last:
                    found[alloc_id, task] = owner
        return found

    def release(self, alloc_id: str) -> None:
        """Free the ids of an allocation whose directory is removed."""
        with self._lock:
            for key in [key for key in self._taken if key[0] == alloc_id]:
                del self._taken[key]
