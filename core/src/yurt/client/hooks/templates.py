"""The templates hook: renders a task's templates before its first start and watches their sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from yurt.client.tasks.client_task import ClientTask, SetupProblem
from yurt.client.templates.context import TemplateContext
from yurt.client.timed_waits import finish_unless
from yurt.lifecycle import events
from yurt.sdk.errors import Invalid
from yurt.sdk.hooks import Additions, TaskHookOf

if TYPE_CHECKING:
    from yurt.client.templates.render_target import TemplatePlace
    from yurt.client.templates.task_templates import TaskTemplates


class TemplatesHook(TaskHookOf[ClientTask]):
    """Runs the template loop of each task that has templates."""

    name = "templates"

    def __init__(self, context: TemplateContext) -> None:
        self._context = context
        self._tasks: dict[tuple[str, str], TaskTemplates] = {}

    async def prepare(self, task: ClientTask) -> Additions | None:
        """Write the templates once all of their sources are available; returns their variables."""
        if not task.spec.task.templates:
            return None
        env: dict[str, str] = {}

        async def render() -> None:
            place = await self._place(task)
            env.update(await self._of(task).rendered_env(place))

        try:
            await finish_unless(task.killed, render())
        except Invalid as error:
            raise SetupProblem(events.template(str(error), is_failure=True)) from None
        return Additions(env=env) if env else None

    async def recover(self, task: ClientTask) -> Additions | None:
        """Resume watching. The templates are rendered again for comparison, so they need the task's environment."""
        if not task.spec.task.templates or task.lacks_devices:
            return None
        env = await self._of(task).resumed_env(await self._place(task))
        return Additions(env=env) if env else None

    def finish(self, task: ClientTask) -> None:
        """Stop watching."""
        templates = self._tasks.pop(task.key, None)
        if templates is not None:
            templates.stop()

    def _of(self, task: ClientTask) -> TaskTemplates:
        from yurt.client.templates.task_templates import TaskTemplates

        if task.key not in self._tasks:
            self._tasks[task.key] = TaskTemplates(
                task.name, self._context, control=task, spawn=task.spawn, running=task.running
            )
        return self._tasks[task.key]

    async def _place(self, task: ClientTask) -> TemplatePlace:
        from yurt.client.templates.render_target import TemplatePlace

        spec = task.spec
        return TemplatePlace(
            alloc_id=spec.alloc.id,
            task=task.name,
            namespace=spec.alloc.namespace,
            dirs=task.dirs,
            env=task.env,
            templates=spec.task.templates,
            job_id=spec.job.id,
            group=spec.group.name,
            is_rendered_each_start=spec.task.restart_policy.render_templates,
            link_owners=await task.link_owners(),
        )
