"""Shares pulls of images between tasks, and removes images that this client pulled some time after their last use.

Starts that need the same image with the same credentials share one pull. Only images that this client pulled or loaded
are ever removed; a file records them across restarts.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import json
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from yurt.sdk.containers.background import DriverTasks
from yurt.sdk.containers.engine import EngineDown
from yurt.sdk.driver import TaskDirs
from yurt.sdk.errors import Conflict, DriverError, NotFound
from yurt.sdk.opening import open_file

FIRST_REPORT_S, NEXT_REPORT_S = 10.0, 120.0
DENIED = ("denied", "unauthorized", "authentication required", "no basic auth")
REMOVE_TRIES = 8
"""The number of attempts to remove an image while it is in use or its engine is away; the pause doubles with each."""
REMOVE_PAUSE_S = 0.5
HOPELESS = ("not found", "manifest unknown", "invalid reference", *DENIED)


class PulledImages:
    """The images that this client pulled, with the tasks that use them."""

    def __init__(
        self,
        background: DriverTasks,
        file: Path,
        remove: Callable[[str], Awaitable[None]],
        *,
        delay_s: float,
        removes: bool,
    ) -> None:
        self._background = background
        self._file = file
        self._remove = remove
        self._delay_s = delay_s
        self._removes = removes
        self._users: dict[str, set[str]] = {}
        self._ours: set[str] | None = None
        self._going: dict[str, asyncio.Future[bool]] = {}

    def hold(self, image_id: str, task_id: str) -> None:
        """Count a task as a user of the image."""
        self._users.setdefault(image_id, set()).add(task_id)

    async def is_lost(self, image_id: str) -> bool:
        """Whether an image is being removed although it was just acquired: its removal had already begun."""
        going = self._going.get(image_id)
        return going is not None and await asyncio.shield(going)

    def release(self, image_id: str, task_id: str) -> None:
        """End a task's use; an unused image that this client pulled is removed after the delay."""
        users = self._users.get(image_id, set())
        users.discard(task_id)
        if users:
            return
        self._users.pop(image_id, None)
        if self._removes and image_id in self._owned():
            self._plan(image_id)

    def collect_left_over(self) -> None:
        """After the agent's start: schedule the removal of images that no recovered task uses."""
        if self._removes:
            for image_id in self._owned() - set(self._users):
                self._plan(image_id)

    def own(self, image_id: str) -> None:
        """Record that this client pulled the image."""
        self._owned().add(image_id)
        self._store()

    def _plan(self, image_id: str) -> None:
        work = functools.partial(self._remove_later, image_id)
        self._background.start(f"removal of image {image_id[:19]}", work)

    async def _remove_later(self, image_id: str) -> None:
        """Remove an unused image; try again later while a container still uses it."""
        pause_s = self._delay_s
        for _ in range(REMOVE_TRIES):
            await asyncio.sleep(pause_s)
            if image_id in self._users or image_id not in self._owned():
                return
            if await self._is_removed(image_id):
                self._owned().discard(image_id)
                self._store()
                return
            pause_s = max(2 * pause_s, REMOVE_PAUSE_S)

    async def _is_removed(self, image_id: str) -> bool:
        """Remove an image now; false when it is in use or the engine does not answer."""
        if image_id in self._going:
            return await asyncio.shield(self._going[image_id])
        is_removed, going = False, asyncio.get_running_loop().create_future()
        self._going[image_id] = going
        try:
            with suppress(NotFound):
                await self._remove(image_id)
            is_removed = True
        except (Conflict, EngineDown):
            pass
        finally:
            del self._going[image_id]
            going.set_result(is_removed)
        return is_removed

    def _owned(self) -> set[str]:
        """The recorded images of this client."""
        if self._ours is None:
            try:
                self._ours = set(json.loads(self._file.read_text()))
            except (OSError, ValueError):
                self._ours = set()
        return self._ours

    def _store(self) -> None:
        """Write the record atomically."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._file.with_suffix(".new")
        fresh.write_text(json.dumps(sorted(self._owned())))
        fresh.replace(self._file)


class PullReport:
    """Reports a pull at its start, shortly after, and then at intervals."""

    def __init__(self, publish: Callable[[str], None], state: Callable[[], str]) -> None:
        self._publish = publish
        self._state = state
        self._wait_s = FIRST_REPORT_S

    async def until(self, pull: asyncio.Future[str], image: str) -> None:
        """Report until the pull is over."""
        self._publish(f'Downloading image "{image}"')
        while not (await asyncio.wait({pull}, timeout=self._wait_s))[0]:
            self._publish(f'Downloading image "{image}": {self._state()}')
            self._wait_s = NEXT_REPORT_S


class SharedPulls:
    """Pulls in progress, by image and user."""

    def __init__(self, background: DriverTasks) -> None:
        self._background = background
        self._under_way: dict[tuple[str, str], asyncio.Future[str]] = {}

    async def pull(
        self, image: str, user: str, start: Callable[[], Coroutine[Any, Any, str]], *, report: PullReport | None = None
    ) -> str:
        """The id of the image from `start`, or from the pull already in progress."""
        key = (image, user)
        promise = self._under_way.get(key)
        if promise is None:
            promise = self._under_way[key] = asyncio.get_running_loop().create_future()
            promise.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._background.start(f"pull of {image}", lambda: self._for_all(key, start))
        if report:
            await report.until(promise, image)
        return await asyncio.shield(promise)

    async def _for_all(self, key: tuple[str, str], start: Callable[[], Coroutine[Any, Any, str]]) -> None:
        """Run one pull and give its result to all waiting tasks."""
        promise = self._under_way[key]
        try:
            promise.set_result(await start())
        except DriverError as error:
            promise.set_exception(error)
        finally:
            del self._under_way[key]
            promise.cancel()


def is_hopeless(reason: str) -> bool:
    """Whether a registry's error is permanent."""
    return any(word in reason.lower() for word in HOPELESS)


def is_denied(reason: str) -> bool:
    """Whether a registry rejected the credentials."""
    return any(word in reason.lower() for word in DENIED)


def auth_header(credentials: Mapping[str, Any]) -> dict[str, str]:
    """Credentials in the format of the engine's header."""
    return {"X-Registry-Auth": base64.urlsafe_b64encode(json.dumps(dict(credentials)).encode()).decode()}


def open_archive(name: str, dirs: TaskDirs, *, option: str) -> BinaryIO:
    """Open an image archive inside the allocation; a relative path starts at `local`, then at the task's directory.

    Its links are followed once, and what they led to is opened without any: a task may put one there meanwhile.
    Blocking; raises DriverError.
    """
    try:
        path = os.path.realpath(os.path.join(dirs.local_dir, name))
        if not os.path.exists(path):
            path = os.path.realpath(os.path.join(dirs.task_dir, name))
        alloc_dir = os.path.realpath(dirs.alloc_dir)
        if not path.startswith(alloc_dir + "/"):
            raise DriverError(f'{option} = "{name}" leads out of the allocation')
        return os.fdopen(open_file(alloc_dir, path[len(alloc_dir) + 1 :]), "rb")
    except (OSError, ValueError):
        raise DriverError(
            f'{option} = "{name}" is not a file in the task\'s local folder; an artifact can provide it'
        ) from None
