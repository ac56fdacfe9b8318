"""The templates of one task over its starts: rendered before the first one, followed while it runs."""

from __future__ import annotations

import asyncio

from yurt.client.templates.change_notifications import ChangeNotifications
from yurt.client.templates.context import TemplateContext
from yurt.client.templates.control import Spawn, TaskControl
from yurt.client.templates.follower import TemplateFollower
from yurt.client.templates.targets import TemplatePlace
from yurt.client.timed_waits import LightEvent
from yurt.sdk.errors import Invalid


class TaskTemplates:
    """The templates of one task as its starts need them, and the loop that renders them."""

    def __init__(
        self, task: str, context: TemplateContext, *, control: TaskControl, spawn: Spawn, running: asyncio.Event
    ) -> None:
        """`running` is set while the task runs: only then is it notified of changes."""
        self.task = task
        self._spawn = spawn
        self._loop: asyncio.Task[None] | None = None
        self._follower: TemplateFollower | None = None
        self._failure = ""
        self._context = context
        self._control = control
        self._ready = LightEvent()
        self._notices = ChangeNotifications(control, running=running)

    @property
    def env(self) -> dict[str, str]:
        """The variables that the templates give."""
        return self._follower.env if self._follower is not None else {}

    async def rendered_env(self, place: TemplatePlace) -> dict[str, str]:
        """Render before a start, unless that was done for an earlier one; the variables for it. Raises Invalid."""
        if not self._ready.is_set() or place.is_rendered_each_start:
            self.stop()
            self._begin(place, is_resumed=False)
        await self._ready.wait()
        if self._failure:
            failure, self._failure = self._failure, ""
            self._ready.clear()
            raise Invalid(failure)
        self._notices.started()
        return self.env

    async def resumed_env(self, place: TemplatePlace) -> dict[str, str]:
        """Follow on for a task that an earlier agent started; the variables that its files give."""
        self._begin(place, is_resumed=True)
        await self._ready.wait()
        return self.env

    def stop(self) -> None:
        """Stop watching because the task ends."""
        if self._loop is not None:
            self._loop.cancel()
            self._loop = None
        self._ready.clear()

    def _begin(self, place: TemplatePlace, *, is_resumed: bool) -> None:
        self._failure = ""
        self._loop = self._spawn(self._run(place, is_resumed=is_resumed), self._broke)

    async def _run(self, place: TemplatePlace, *, is_resumed: bool) -> None:
        self._follower = TemplateFollower(
            place, self._context, control=self._control, notices=self._notices, on_ready=self._ready.set
        )
        await self._follower.run(is_resumed=is_resumed)

    def _broke(self, error: Exception) -> None:
        self._failure = (
            str(error) if isinstance(error, Invalid) else f"Template failed: {type(error).__name__}: {error}"
        )
        self._ready.set()
