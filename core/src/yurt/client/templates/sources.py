"""Answers to what a task's templates ask, kept up to date: one watch for each question, on the servers or on a file.

A watch never ends by itself. When the servers cannot be reached it tries again, ever more slowly; what is known stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping

from yurt.client.context import ClientContext
from yurt.client.templates.files import read_file
from yurt.client.templates.questions import FILE, Answer, Question
from yurt.runtime.supervise import supervised
from yurt.sdk.driver import TaskDirs
from yurt.sdk.errors import Invalid, NotFound, PermissionDenied, YurtError
from yurt.structs.rpc import TemplateQuery

FILE_POLL_S = 2.0


class Sources:
    """The watches of one task. `on_change` is told which answer is new."""

    def __init__(
        self,
        context: ClientContext,
        *,
        alloc_id: str,
        task: str,
        dirs: TaskDirs,
        on_change: Callable[[Question], None],
    ) -> None:
        self.answers: dict[Question, Answer] = {}
        self.failing: dict[Question, str] = {}
        self._context = context
        self._alloc_id = alloc_id
        self._task = task
        self._dirs = dirs
        self._on_change = on_change
        self._watches: dict[Question, asyncio.Task[None]] = {}

    def follow(self, wanted: Collection[Question], group: asyncio.TaskGroup) -> None:
        """Watch exactly these questions."""
        for question in [each for each in self._watches if each not in wanted]:
            self._watches.pop(question).cancel()
            self.answers.pop(question, None)
            self.failing.pop(question, None)
        for question in wanted:
            if question not in self._watches:
                watch = self._watch_file(question) if question.kind == FILE else self._watch(question)
                self._watches[question] = supervised(group, f"watch of {question.shown}", watch)

    def known(self) -> Mapping[Question, Answer]:
        """All answers so far."""
        return self.answers

    def close(self) -> None:
        """End all watches."""
        for watch in self._watches.values():
            watch.cancel()
        self._watches.clear()

    async def _watch(self, question: Question) -> None:
        settings = self._context.config.template
        index, failures = 0, 0
        while True:
            try:
                found = await self._context.server.ask_for_template(self._query(question, index))
            except (PermissionDenied, Invalid) as error:
                self._tell(question, Answer(exists=False, error=str(error)))
            except YurtError as error:
                self.failing[question] = str(error)
            else:
                failures = 0
                self.failing.pop(question, None)
                index = found.index if found.index >= index else 0
                self._tell(question, Answer(exists=found.exists, data=found.data))
                continue
            pause_s = min(settings.retry_first_s * 2.0**failures, settings.retry_max_s)
            failures = min(failures + 1, 30)
            index = 0
            await self._context.env.sleep(pause_s)

    def _query(self, question: Question, index: int) -> TemplateQuery:
        return TemplateQuery(
            node_id=self._context.node().id,
            alloc_id=self._alloc_id,
            task=self._task,
            kind=question.kind,
            name=question.name,
            namespace=question.namespace,
            min_index=index,
            timeout_s=self._context.config.template.query_wait_s,
        )

    async def _watch_file(self, question: Question) -> None:
        is_sandboxed = self._context.config.template.is_sandboxed
        while True:
            try:
                body = await asyncio.to_thread(read_file, question.name, self._dirs, is_sandboxed=is_sandboxed)
            except NotFound:
                answer = Answer(exists=False)
            except (Invalid, PermissionDenied) as error:
                answer = Answer(exists=False, error=str(error))
            else:
                answer = Answer(data=body)
            self._tell(question, answer)
            await self._context.env.sleep(FILE_POLL_S)

    def _tell(self, question: Question, answer: Answer) -> None:
        if self.answers.get(question) != answer:
            self.answers[question] = answer
            self._on_change(question)
