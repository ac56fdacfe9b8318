"""The templates of one task across its runs: rendered before the first start, then watched."""

from __future__ import annotations

import asyncio

from yurt.client.templates.change_notifications import ChangeNotifications
from yurt.client.templates.context import TemplateContext
from yurt.client.templates.render_target import TemplatePlace
from yurt.client.templates.task_control import Spawn, TaskControl
from yurt.client.templates.template_loop import TemplateLoop
from yurt.client.timed_waits import LightEvent
from yurt.sdk.errors import Invalid


class TaskTemplates:
    """Renders the templates of one task before its first start, and runs the loop that watches them."""

    def __init__(
        self, task: str, context: TemplateContext, *, control: TaskControl, spawn: Spawn, running: asyncio.Event
    ) -> None:
        """`running` is set while the task runs: only then is it notified of changes."""
        self.task = task
        self._spawn = spawn
        self._loop: asyncio.Task[None] | None = None
        self._templates: TemplateLoop | None = None
        self._failure = ""
        self._context = context
        self._control = control
        self._ready = LightEvent()
        self._notices = ChangeNotifications(control, running=running)

    @property
    def env(self) -> dict[str, str]:
        """The environment variables from the templates."""
        return self._templates.env if self._templates is not None else {}

    async def rendered_env(self, place: TemplatePlace) -> dict[str, str]:
        """Render unless an earlier start did; returns the environment variables for a start. Raises Invalid."""
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
        """Continue for a task of an earlier agent; returns the environment variables from its files."""
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
        self._templates = TemplateLoop(
            place, self._context, control=self._control, notices=self._notices, on_ready=self._ready.set
        )
        await self._templates.run(is_resumed=is_resumed)

    def _broke(self, error: Exception) -> None:
        self._failure = (
            str(error) if isinstance(error, Invalid) else f"Template failed: {type(error).__name__}: {error}"
        )
        self._ready.set()
