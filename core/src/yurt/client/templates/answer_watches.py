"""Watches the answers to the questions of a task's templates: at the servers, in a file or at a template provider.

A watch never ends by itself. When its source cannot be reached, the watch tries again after growing pauses, and the
last answer remains. Only a provider may end its answers. An unexpected exception of a provider fails the task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import aclosing

import msgspec

from yurt.client.templates.context import TemplateContext
from yurt.client.templates.files import read_file
from yurt.client.templates.render_protocol import Question, QuestionAnswer
from yurt.client.templates.render_target import TemplatePlace
from yurt.runtime.supervise import supervised
from yurt.sdk.errors import Invalid, NotFound, PermissionDenied, YurtError
from yurt.sdk.templates import ANSWER_MAX_BYTES, TemplateAnswer, TemplateAsk, by_function
from yurt.structs.rpc import TemplateQuery

FILE_POLL_S = 2.0


class AnswerWatches:
    """The watches of one task. `on_change` is called with the question of each new answer."""

    def __init__(
        self, context: TemplateContext, place: TemplatePlace, *, on_change: Callable[[Question], None]
    ) -> None:
        self.answers: dict[Question, QuestionAnswer] = {}
        """All answers so far."""
        self.failing: dict[Question, str] = {}
        self._context = context
        self._place = place
        self._on_change = on_change
        self._watches: dict[Question, asyncio.Task[None]] = {}

    def follow(self, questions: Collection[Question], group: asyncio.TaskGroup) -> None:
        """Watch these questions, and stop watching others."""
        for question in [each for each in self._watches if each not in questions]:
            self._watches.pop(question).cancel()
            self.answers.pop(question, None)
            self.failing.pop(question, None)
        for question in questions:
            if question not in self._watches:
                self._watches[question] = self._begin(question, group)

    def close(self) -> None:
        """Cancel all watches."""
        for watch in self._watches.values():
            watch.cancel()
        self._watches.clear()
        self._on_change = _ignore  # its owner refers to this object: the cycle would outlive both

    def _begin(self, question: Question, group: asyncio.TaskGroup) -> asyncio.Task[None]:
        name = f"watch of {question.shown}"
        match question.kind:
            case "file":
                return supervised(group, name, self._watch_file(question))
            case "provided":
                return supervised(
                    group, name, self._watch_provided(question), on_error=lambda error: self._broke(question, error)
                )
        return supervised(group, name, self._watch(question))

    async def _watch(self, question: Question) -> None:
        index, failures = 0, 0
        while True:
            try:
                found = await self._context.server.ask_for_template(self._query(question, index))
            except (PermissionDenied, Invalid) as error:
                self._publish(question, QuestionAnswer(exists=False, error=str(error)))
            except YurtError as error:
                self.failing[question] = str(error)
            else:
                failures = 0
                self.failing.pop(question, None)
                index = found.index if found.index >= index else 0
                self._publish(question, QuestionAnswer(exists=found.exists, data=found.data))
                continue
            await self._pause(failures)
            failures += 1
            self._give_up_after(failures, question)
            index = 0

    def _give_up_after(self, failures: int, question: Question) -> None:
        """Answer with the failure after the configured attempts; asking goes on, for a later rendering."""
        if question in self.failing and failures == self._context.settings.retry_attempts:
            text = f"no server answered {question.shown} in {failures} attempts: {self.failing[question]}"
            self._publish(question, QuestionAnswer(exists=False, error=text))

    async def _pause(self, failures: int) -> None:
        """Wait before another attempt, with exponential backoff."""
        settings = self._context.settings
        await self._context.env.sleep(min(settings.retry_first_s * 2.0 ** min(failures, 30), settings.retry_max_s))

    def _query(self, question: Question, index: int) -> TemplateQuery:
        return TemplateQuery(
            node_id=self._context.node().id,
            alloc_id=self._place.alloc_id,
            task=self._place.task,
            kind=question.kind,
            name=question.name,
            namespace=question.namespace,
            min_index=index,
            timeout_s=self._context.settings.query_wait_s,
        )

    async def _watch_file(self, question: Question) -> None:
        is_sandboxed = self._context.settings.is_sandboxed
        while True:
            try:
                body = await asyncio.to_thread(
                    read_file,
                    question.name,
                    self._place.dirs,
                    is_sandboxed=is_sandboxed,
                    owners=self._place.link_owners,
                )
            except NotFound:
                answer = QuestionAnswer(exists=False)
            except (Invalid, PermissionDenied) as error:
                answer = QuestionAnswer(exists=False, error=str(error))
            else:
                answer = QuestionAnswer(data=body)
            self._publish(question, answer)
            await self._context.env.sleep(FILE_POLL_S)

    async def _watch_provided(self, question: Question) -> None:
        """Take a provider's answers until it ends them; after a long attempt the backoff starts again."""
        env, failures = self._context.env, 0
        while True:
            began = env.monotonic()
            try:
                await self._take_answers(question)
                return
            except NotFound:
                self._publish(question, QuestionAnswer(exists=False))
            except (PermissionDenied, Invalid) as error:
                self._publish(question, QuestionAnswer(exists=False, error=str(error)))
            except YurtError as error:
                self.failing[question] = str(error)
            failures = failures if env.monotonic() - began < self._context.settings.retry_max_s else 0
            await self._pause(failures)
            failures += 1

    async def _take_answers(self, question: Question) -> None:
        """Take all answers of one call of the provider; raises Invalid when there is none."""
        provider = by_function(self._context.providers)[question.name]
        is_answered = False
        async with aclosing(provider.watch(self._ask(question))) as answers:
            async for answer in answers:
                is_answered = True
                self.failing.pop(question, None)
                self._publish(question, checked(answer))
        if not is_answered:
            raise Invalid(f"the provider {provider.name} gives no answer to {question.shown}")

    def _ask(self, question: Question) -> TemplateAsk:
        place = self._place
        return TemplateAsk(
            function=question.name,
            arguments=question.arguments,
            alloc_id=place.alloc_id,
            task_name=place.task,
            job_id=place.job_id,
            group_name=place.group,
            namespace=place.namespace,
        )

    def _broke(self, question: Question, error: Exception) -> None:
        """Handle an unexpected exception of a provider: the task fails, and its next start asks again."""
        self._publish(
            question, QuestionAnswer(exists=False, error=f"its provider failed: {type(error).__name__}: {error}")
        )

    def _publish(self, question: Question, answer: QuestionAnswer) -> None:
        if self.answers.get(question) != answer:
            self.answers[question] = answer
            self._on_change(question)


def checked(answer: TemplateAnswer) -> QuestionAnswer:
    """A provider's answer as one for templates; raises Invalid for data that is too large or not a plain value."""
    try:
        body = msgspec.msgpack.encode(answer.data)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Invalid(f"its provider's answer is not a plain value: {error}") from None
    if len(body) > ANSWER_MAX_BYTES:
        raise Invalid(f"its provider's answer takes {len(body)} bytes; the most are {ANSWER_MAX_BYTES}")
    return QuestionAnswer(exists=answer.exists, data=msgspec.msgpack.decode(body))


def _ignore(_: Question) -> None:
    """The default of callbacks after the last follower has left."""
