"""The pool of user ids for tasks without a `user`, whose driver supports that.

    take     an id of the pool belongs to the task, over all of its runs and over restarts of the agent
    restore  an earlier agent gave the id: it counts as taken before the first `take`
    release  the allocation's directory is gone, and with it all files of these ids

An id goes back with the directory and not with the task's end: its files, secrets among them, stay until then, and the
next task with that id could read them. Ids are taken in turn, so that one is used again as late as possible. An id that
the host's table of users has is left out. Blocking, and safe to call from several threads.
"""

from __future__ import annotations

import os
import pwd
import threading
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Final

from yurt.client.files.alloc_dir import alloc_path
from yurt.client.files.users import UserRange
from yurt.sdk.errors import RecoverableError
from yurt.storage.client_db import AllocRecord

OWNED_FOLDERS: Final = ("private", "secrets")
"""The folders of a task that belong to its user."""


def is_of_host(uid: int) -> bool:
    """Whether the host's table of users has an id."""
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


class DynamicUsers:
    """Gives each task an id of its own."""

    def __init__(self, ids: UserRange, *, is_known: Callable[[int], bool] = is_of_host) -> None:
        """`is_known` says which ids the host has for others."""
        self._ids = ids
        self._is_known = is_known
        self._lock = threading.Lock()
        self._taken: dict[tuple[str, str], int] = {}
        self._next = ids.first

    def __len__(self) -> int:
        """How many ids are taken."""
        return len(self._taken)

    def uid_of(self, alloc_id: str, task: str) -> int:
        """The id that a task has; 0 for none."""
        return self._taken.get((alloc_id, task), 0)

    def take(self, alloc_id: str, task: str) -> int:
        """The id of a task, a free one at its first run; raises RecoverableError when all are taken."""
        ids = self._ids
        with self._lock:
            known = self._taken.get((alloc_id, task))
            if known is not None:
                return known
            taken = set(self._taken.values())
            for uid in chain(range(self._next, ids.last + 1), range(ids.first, self._next)):
                if uid not in taken and not self._is_known(uid):
                    self._taken[alloc_id, task] = uid
                    self._next = uid + 1 if uid < ids.last else ids.first
                    return uid
        raise RecoverableError(
            f"all user ids from {ids.first} to {ids.last} are taken (client users.dynamic_user_min, dynamic_user_max); "
            "`system gc` removes directories of ended allocations, which keep theirs"
        )

    def restore(self, records: Iterable[AllocRecord], lost: Iterable[str], alloc_dir: str) -> None:
        """Count the ids as taken that an earlier agent gave.

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
        """An allocation's directory is gone: its ids are free."""
        with self._lock:
            for key in [key for key in self._taken if key[0] == alloc_id]:
                del self._taken[key]
