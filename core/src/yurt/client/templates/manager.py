"""The templates of one task: rendered before its first start, then again whenever what they are made from changes.

One loop does everything in turn: it renders all templates, waits until nothing is missing, writes them, lets the task
start, and from then on waits for new answers. An answer starts a time of quiet (`wait`); then what changed is written
and the task is told once (`splay`, then a restart, or signals and scripts). Text that comes out the same changes
nothing. `generation` counts changes: a start that came after a change has it already and is not told. After a restart
of the agent the first rendering is compared with the files that the earlier agent wrote.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Protocol

from yurt.client.context import ClientContext
from yurt.client.tasks.task_env import lookup_in, node_values
from yurt.client.templates import files
from yurt.client.templates.changes import RESTART_REASON, Consequences, consequences, first_scripts
from yurt.client.templates.envfile import read_env
from yurt.client.templates.questions import Question, Rendered, RenderRequest
from yurt.client.templates.sources import Sources
from yurt.client.templates.targets import RenderTarget, TemplatePlace, node_addresses, targets, text_of
from yurt.client.waiting import LightEvent, wait_or_sleep
from yurt.lifecycle import events
from yurt.sdk.driver import ExecResult
from yurt.sdk.errors import Invalid, YurtError
from yurt.sdk.templates import by_function
from yurt.sdk.value import NANOSECONDS, Duration
from yurt.structs.alloc import TaskEvent
from yurt.structs.task import ChangeScript, Template

ROUNDS_MAX = 1_000
UNREACHABLE_AFTER_S = 3.0
Spawn = Callable[[Coroutine[Any, Any, None], Callable[[Exception], None]], asyncio.Task[None]]
"""Begins supervised work of the task."""


class TaskControl(Protocol):
    """What templates may do to their task."""

    def note(self, event: TaskEvent) -> None:
        """Tell the user something."""
        ...

    def restart(self, reason: str) -> None:
        """End the run and start another."""
        ...

    async def signal(self, signal: str, reason: str = "") -> None:
        """Send a signal to the running task."""
        ...

    async def exec(self, command: tuple[str, ...], *, timeout: Duration) -> ExecResult:
        """Run a command inside the running task."""
        ...

    def fail(self, event: TaskEvent) -> None:
        """End the task for good, as failed."""
        ...


class _Progress:
    """What is known of one template."""

    def __init__(self, target: RenderTarget) -> None:
        self.target = target
        self.asked: tuple[Question, ...] = ()
        self.digest: bytes | None = None
        self.env: Mapping[str, str] = {}
        self.complaint = ""


class TaskTemplates:
    """The loop of one task, and what its starts need to know of it."""

    def __init__(self, task: str, context: ClientContext, *, control: TaskControl, spawn: Spawn) -> None:
        self.task = task
        self.generation = 0
        self._spawn = spawn
        self._loop: asyncio.Task[None] | None = None
        self._failure = ""
        self._started_generation = -1
        self._context = context
        self._control = control
        self._running = LightEvent()
        self._woken = LightEvent()
        self._ready = LightEvent()
        self._dirty: set[Question] = set()
        self._all: list[_Progress] = []
        self._sources: Sources | None = None
        self._place: TemplatePlace | None = None
        self._said_missing: tuple[Question, ...] = ()
        self._first: tuple[ChangeScript, ...] = ()

    @property
    def env(self) -> dict[str, str]:
        """The variables that the templates give."""
        return {name: value for each in self._all for name, value in each.env.items()}

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
        self._started_generation = self.generation
        return self.env

    def resume(self, place: TemplatePlace) -> None:
        """Follow on for a task that an earlier agent started."""
        self._begin(place, is_resumed=True)

    def set_running(self, is_running: bool) -> None:
        """Whether the task runs: only then is it told of changes."""
        if is_running:
            self._running.set()
        else:
            self._running.clear()

    def stop(self) -> None:
        """The task ends: nothing is followed any more."""
        if self._loop is not None:
            self._loop.cancel()
            self._loop = None
        self._ready.clear()

    def _begin(self, place: TemplatePlace, *, is_resumed: bool) -> None:
        self._failure = ""
        self._loop = self._spawn(self.run(place, is_resumed=is_resumed), self._broke)

    def _broke(self, error: Exception) -> None:
        self._failure = (
            str(error) if isinstance(error, Invalid) else f"Template failed: {type(error).__name__}: {error}"
        )
        self._ready.set()

    async def run(self, place: TemplatePlace, *, is_resumed: bool) -> None:
        """Render and follow until cancelled; raises Invalid when a template can never be rendered."""
        self._place = place
        lookup = lookup_in(self._context.node(), self._context.config.region, place.env)
        self._all = [_Progress(each) for each in targets(place, self._context.config.template, lookup=lookup)]
        self._sources = Sources(self._context, place, on_change=self._on_answer)
        failure: Invalid | None = None
        async with asyncio.TaskGroup() as group:
            try:
                await self._render_and_follow(group, is_resumed=is_resumed)
            except Invalid as error:
                failure = error
            finally:
                self._sources.close()
        if failure is not None:
            raise failure

    async def _render_and_follow(self, group: asyncio.TaskGroup, *, is_resumed: bool) -> None:
        if is_resumed:
            await self._resume(group)
        else:
            await self._render_first(group)
        self._ready.set()
        await self._tell_first()
        await self._follow(group)

    def _on_answer(self, question: Question) -> None:
        self._dirty.add(question)
        self._woken.set()

    # The first rendering.

    async def _render_first(self, group: asyncio.TaskGroup) -> None:
        for _ in range(ROUNDS_MAX):
            self._woken.clear()
            rendered = [await self._render(each) for each in self._all]
            self._follow_asked(group)
            wrong = next((each.error for each in rendered if each.error), "")
            if wrong:
                raise Invalid(f"Template failed: {wrong}")
            missing = tuple(dict.fromkeys(question for each in rendered for question in each.missing))
            if not missing:
                await self._write_first(rendered)
                return
            await self._wait_answers(missing)
        raise Invalid(f"Template failed: what it asks for changed {ROUNDS_MAX} times before it could be rendered")

    async def _wait_answers(self, missing: tuple[Question, ...]) -> None:
        """Wait for something new; say what is missing when that is known, or after a moment."""
        assert self._sources is not None
        if self._woken.is_set():
            return
        known = self._sources.answers
        is_known = all(question in known for question in missing)
        if is_known or not await wait_or_sleep(self._context.env, self._woken, UNREACHABLE_AFTER_S):
            self._say_missing(missing)
            await self._woken.wait()

    def _say_missing(self, missing: tuple[Question, ...]) -> None:
        if missing == self._said_missing:
            return
        self._said_missing = missing
        assert self._sources is not None
        shown = ", ".join(question.shown for question in missing[:10])
        more = f" and {len(missing) - 10} more" if len(missing) > 10 else ""
        failing = next((self._sources.failing[each] for each in missing if each in self._sources.failing), "")
        self._control.note(events.template(f"Missing: {shown}{more}" + (f" ({failing})" if failing else "")))

    async def _write_first(self, rendered: Sequence[Rendered]) -> None:
        for progress, result in zip(self._all, rendered, strict=True):
            await self._write(progress, result.output)
        self._dirty.clear()
        self._said_missing = ()
        self._first = first_scripts(each.target.template for each in self._all)

    async def _resume(self, group: asyncio.TaskGroup) -> None:
        """Continue behind an earlier agent: the files that it wrote are what the task has seen."""
        for progress in self._all:
            body = await asyncio.to_thread(files.current, progress.target.root, progress.target.path)
            if body is not None:
                progress.digest = _digest(body)
                progress.env = self._read_env_of(progress, body)
        for progress in self._following():
            await self._render(progress)
        self._follow_asked(group)

    def _read_env_of(self, progress: _Progress, body: bytes) -> Mapping[str, str]:
        try:
            return read_env(body) if progress.target.template.envvars else {}
        except Invalid:
            return {}

    # Following.

    def _following(self) -> list[_Progress]:
        return [each for each in self._all if not (each.target.template.once and each.digest is not None)]

    def _follow_asked(self, group: asyncio.TaskGroup) -> None:
        assert self._sources is not None
        self._sources.follow({question for each in self._following() for question in each.asked}, group)

    async def _follow(self, group: asyncio.TaskGroup) -> None:
        """Render again what has new answers, until cancelled; nothing to follow ends it at once."""
        pending: dict[int, Template] = {}
        while any(each.asked for each in self._following()) or self._woken.is_set():
            if not pending:
                await self._woken.wait()
                await self._settle()
            pending |= await self._render_changed(group)
            told = consequences(pending.values())
            if told == Consequences():
                pending.clear()
                continue
            splay_s = told.splay / NANOSECONDS * self._context.env.random()
            await self._context.env.sleep(splay_s)
            if self._woken.is_set():
                continue
            await self._tell(told)
            pending.clear()

    async def _settle(self) -> None:
        """Wait for quiet: no new answer for `wait.min`, at most `wait.max`."""
        env = self._context.env
        until = None
        while True:
            self._woken.clear()
            concerned = [each.target for each in self._following() if self._dirty.intersection(each.asked)]
            quiet_s = max((each.wait_min_s for each in concerned), default=0.0)
            until = until or env.monotonic() + max((each.wait_max_s for each in concerned), default=0.0)
            left_s = min(quiet_s, until - env.monotonic())
            if left_s <= 0 or not await wait_or_sleep(env, self._woken, left_s):
                return

    async def _render_changed(self, group: asyncio.TaskGroup) -> dict[int, Template]:
        """Render and write what differs; the templates that changed, by their place in the job."""
        self._woken.clear()
        self._dirty.clear()
        changed = {}
        for at, progress in enumerate(self._all):
            if progress not in self._following():
                continue
            result = await self._render(progress)
            if result.error or result.missing:
                self._complain(progress, result)
                continue
            progress.complaint = ""
            if _digest(result.output) != progress.digest:
                try:
                    await self._write(progress, result.output)
                except Invalid as error:
                    self._complain(progress, Rendered(error=str(error)))
                else:
                    changed[at] = progress.target.template
        self._follow_asked(group)
        self.generation += bool(changed)
        return changed

    def _complain(self, progress: _Progress, result: Rendered) -> None:
        """A task that runs keeps the last good text."""
        assert self._sources is not None
        if not result.error and any(question not in self._sources.answers for question in result.missing):
            return
        text = result.error or f"Missing: {', '.join(question.shown for question in result.missing[:10])}"
        if text != progress.complaint:
            progress.complaint = text
            kept = f"Template {progress.target.name} is not rendered again, its last text stays: {text}"
            self._control.note(events.template(kept))

    # One template.

    async def _render(self, progress: _Progress) -> Rendered:
        assert self._place is not None and self._sources is not None
        target, settings = progress.target, self._context.config.template
        try:
            text = await asyncio.to_thread(text_of, target, self._place, settings)
        except Invalid as error:
            return Rendered(error=str(error))
        known = self._sources.answers
        request = RenderRequest(
            name=target.name,
            text=text,
            left=target.template.left_delim or "{{",
            right=target.template.right_delim or "}}",
            env={**node_values(self._context.node(), self._context.config.region), **self._place.env},
            namespace=self._place.namespace,
            is_missing_key_error=target.template.err_missing_key,
            denied=settings.denied_functions,
            provided=tuple(by_function(self._context.config.template_providers)),
            answers=tuple((question, known[question]) for question in progress.asked if question in known),
            now=self._context.env.now(),
            addresses=await asyncio.to_thread(node_addresses) if b"sockaddr" in text else {},
        )
        rendered = await self._context.renderer.render(request)
        if not rendered.error:
            progress.asked = rendered.asked
        return rendered

    async def _write(self, progress: _Progress, body: bytes) -> None:
        target = progress.target
        try:
            env = read_env(body) if target.template.envvars else {}
            found = await asyncio.to_thread(files.current, target.root, target.path)
            if found != body:
                await asyncio.to_thread(
                    files.write, target.root, target.path, body, mode=target.mode, owner=target.owner
                )
        except Invalid as error:
            raise Invalid(f"Template failed: {target.name}: {error}") from None
        progress.env = env
        progress.digest = _digest(body)

    # Telling the task.

    async def _tell_first(self) -> None:
        """Scripts that run once the task runs with its first files."""
        if self._first:
            scripts, self._first = self._first, ()
            await self._running.wait()
            for script in scripts:
                await self._run_script(script)

    async def _tell(self, told: Consequences) -> None:
        generation = self.generation
        await self._running.wait()
        if self._started_generation >= generation:
            return
        self._started_generation = generation
        if told.restart:
            self._control.restart(RESTART_REASON)
            return
        for signal in told.signals:
            await self._attempt(self._control.signal(signal, "Template re-rendered"), f"signal {signal}")
        for script in told.scripts:
            await self._run_script(script)

    async def _attempt(self, work: Awaitable[None], what: str) -> None:
        try:
            await work
        except YurtError as error:
            self._control.note(events.template(f"Template re-rendered, but {what} failed: {error}"))

    async def _run_script(self, script: ChangeScript) -> None:
        shown = f"script {script.command} with arguments: [{' '.join(script.args)}]"
        timeout = script.timeout or Duration(5 * NANOSECONDS)
        try:
            result = await self._control.exec((script.command, *script.args), timeout=timeout)
            problem = f"exit code {result.exit_code}" if result.exit_code else ""
        except YurtError as error:
            problem = str(error)
        if not problem:
            self._control.note(events.template(f"Template successfully ran {shown}. Exit code: 0"))
            return
        failure = events.template(
            f"Template failed to run {shown} on change: {problem}", is_failure=script.fail_on_error
        )
        if script.fail_on_error:
            self._control.fail(failure)
        else:
            self._control.note(failure)


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=16).digest()
