"""The loop over the templates of a task: renders them before its first start, and again after changes.

One loop does everything in order: it renders all templates, waits until no answer is missing, writes the files, lets
the task start, and from then on waits for new answers. After a new answer it waits for more (`wait`), then writes the
changed files and notifies the task once (after `splay`: a restart, or signals and scripts). An unchanged text has no
effect. After a restart of the agent the first rendering is compared with the files that the earlier agent wrote.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from yurt.client.task_env import lookup_in
from yurt.client.templates.answer_watches import AnswerWatches
from yurt.client.templates.change_actions import ChangeActions, actions_for, first_scripts
from yurt.client.templates.change_notifications import ChangeNotifications
from yurt.client.templates.context import TemplateContext
from yurt.client.templates.render_protocol import Question, Rendered
from yurt.client.templates.render_target import TemplatePlace, targets
from yurt.client.templates.task_control import TaskControl
from yurt.client.templates.written_template import WrittenTemplate
from yurt.client.timed_waits import LightEvent, wait_or_sleep
from yurt.lifecycle import events
from yurt.sdk.errors import Invalid
from yurt.sdk.value import NANOSECONDS
from yurt.structs.task import ChangeScript, Template

ROUNDS_MAX = 1_000
UNREACHABLE_AFTER_S = 3.0


class TemplateLoop:
    """The loop over the templates of one task; `on_ready` is called when the task may start with them."""

    def __init__(
        self,
        place: TemplatePlace,
        context: TemplateContext,
        *,
        control: TaskControl,
        notices: ChangeNotifications,
        on_ready: Callable[[], None],
    ) -> None:
        self._env = context.env
        self._control = control
        self._notices = notices
        self._on_ready = on_ready
        self._woken = LightEvent()
        self._dirty: set[Question] = set()
        lookup = lookup_in(context.node(), context.region, place.env)
        self._all = [WrittenTemplate(each, place, context) for each in targets(place, context.settings, lookup=lookup)]
        self._watches = AnswerWatches(context, place, on_change=self._on_answer)
        self._reported_missing: tuple[Question, ...] = ()

    @property
    def env(self) -> dict[str, str]:
        """The environment variables from the templates."""
        return {name: value for each in self._all for name, value in each.env.items()}

    async def run(self, *, is_resumed: bool) -> None:
        """Render and follow until cancelled; raises Invalid when a template can never be rendered."""
        failure: Invalid | None = None
        async with asyncio.TaskGroup() as group:
            try:
                scripts = await self._resume(group) if is_resumed else await self._render_first(group)
                self._on_ready()
                if scripts:
                    await self._notices.run_first(scripts)
                await self._follow(group)
            except Invalid as error:
                failure = error
            finally:
                self._watches.close()
        if failure is not None:
            raise failure

    def _on_answer(self, question: Question) -> None:
        self._dirty.add(question)
        self._woken.set()

    # The first rendering.

    async def _render_first(self, group: asyncio.TaskGroup) -> tuple[ChangeScript, ...]:
        """Write all templates once no answer is missing; returns the scripts to run after the first start."""
        for _ in range(ROUNDS_MAX):
            self._woken.clear()
            rendered = [await each.render(self._watches.answers) for each in self._all]
            self._follow_questions(group)
            wrong = next((each.error for each in rendered if each.error), "")
            if wrong:
                raise Invalid(f"Template failed: {wrong}")
            missing = tuple(dict.fromkeys(question for each in rendered for question in each.missing))
            if not missing:
                await self._write_first(rendered)
                return first_scripts(each.target.template for each in self._all)
            await self._wait_answers(missing)
        raise Invalid(f"Template failed: what it asks for changed {ROUNDS_MAX} times before it could be rendered")

    async def _write_first(self, rendered: Sequence[Rendered]) -> None:
        for template, result in zip(self._all, rendered, strict=True):
            await template.write(result.output)
        self._dirty.clear()
        self._reported_missing = ()

    async def _wait_answers(self, missing: tuple[Question, ...]) -> None:
        """Wait for a new answer; report missing answers once they are certainly missing, or after a moment."""
        if self._woken.is_set():
            return
        answers = self._watches.answers
        is_answered = all(question in answers for question in missing)
        if is_answered or not await wait_or_sleep(self._env, self._woken, UNREACHABLE_AFTER_S):
            self._report_missing(missing)
            await self._woken.wait()

    def _report_missing(self, missing: tuple[Question, ...]) -> None:
        if missing == self._reported_missing:
            return
        self._reported_missing = missing
        shown = ", ".join(question.shown for question in missing[:10])
        more = f" and {len(missing) - 10} more" if len(missing) > 10 else ""
        failing = next((self._watches.failing[each] for each in missing if each in self._watches.failing), "")
        self._control.note(events.template(f"Missing: {shown}{more}" + (f" ({failing})" if failing else "")))

    async def _resume(self, group: asyncio.TaskGroup) -> tuple[ChangeScript, ...]:
        """Continue after an earlier agent, whose files the task has read."""
        for template in self._all:
            await template.read_back()
        for template in self._followed():
            await template.render(self._watches.answers)
        self._follow_questions(group)
        return ()

    # Following.

    def _followed(self) -> list[WrittenTemplate]:
        return [each for each in self._all if each.is_followed]

    def _follow_questions(self, group: asyncio.TaskGroup) -> None:
        self._watches.follow({question for each in self._followed() for question in each.questions}, group)

    async def _follow(self, group: asyncio.TaskGroup) -> None:
        """Render again after new answers, until cancelled; return at once when the templates cannot change."""
        pending: dict[int, Template] = {}
        while any(each.questions for each in self._followed()) or self._woken.is_set():
            if not pending:
                await self._woken.wait()
                await self._settle()
            pending |= await self._render_changed(group)
            actions = actions_for(pending.values())
            if actions == ChangeActions():
                pending.clear()
                continue
            splay_s = actions.splay / NANOSECONDS * self._env.random()
            await self._env.sleep(splay_s)
            if self._woken.is_set():
                continue
            await self._notices.notify(actions)
            pending.clear()

    async def _settle(self) -> None:
        """Wait until no new answer came for `wait.min`, at most for `wait.max`."""
        until = None
        while True:
            self._woken.clear()
            concerned = [each.target for each in self._followed() if self._dirty.intersection(each.questions)]
            quiet_s = max((each.wait_min_s for each in concerned), default=0.0)
            until = until or self._env.monotonic() + max((each.wait_max_s for each in concerned), default=0.0)
            left_s = min(quiet_s, until - self._env.monotonic())
            if left_s <= 0 or not await wait_or_sleep(self._env, self._woken, left_s):
                return

    async def _render_changed(self, group: asyncio.TaskGroup) -> dict[int, Template]:
        """Render and write the templates with new answers; returns the changed ones by their position in the job."""
        self._woken.clear()
        self._dirty.clear()
        changed = {}
        for at, template in enumerate(self._all):
            if template.is_followed and await self._is_changed(template):
                changed[at] = template.target.template
        self._follow_questions(group)
        if changed:
            self._notices.changed()
        return changed

    async def _is_changed(self, template: WrittenTemplate) -> bool:
        """Render one template again; returns whether a different text was written."""
        result = await template.render(self._watches.answers)
        if result.error or result.missing:
            self._complain(template, result)
            return False
        template.complaint = ""
        if not template.differs(result.output):
            return False
        try:
            await template.write(result.output)
        except Invalid as error:
            self._complain(template, Rendered(error=str(error)))
            return False
        return True

    def _complain(self, template: WrittenTemplate, result: Rendered) -> None:
        """Report a failed rendering; the file keeps its last text."""
        if not result.error and any(question not in self._watches.answers for question in result.missing):
            return
        text = result.error or f"Missing: {', '.join(question.shown for question in result.missing[:10])}"
        if text != template.complaint:
            template.complaint = text
            message = f"Template {template.target.name} is not rendered again, its last text stays: {text}"
            self._control.note(events.template(message))
