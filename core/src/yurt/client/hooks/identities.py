"""The identities hook: gives a task the tokens of its workload identities and renews them."""

from __future__ import annotations

from yurt.client.context import ClientContext
from yurt.client.tasks.client_task import ClientTask, SetupProblem
from yurt.client.tasks.identities import TaskIdentities, handed_out, is_final
from yurt.lifecycle import events
from yurt.sdk.errors import YurtError
from yurt.sdk.hooks import Additions, TaskHookOf


class IdentitiesHook(TaskHookOf[ClientTask]):
    """Writes tokens before a start and renews them until the task ends."""

    name = "identities"

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._tasks: dict[tuple[str, str], TaskIdentities] = {}

    async def prepare(self, task: ClientTask) -> Additions | None:
        """Write the token files, and return the tokens for the task's environment."""
        if not handed_out(task.spec.task):
            return None
        try:
            env = await self._of(task).env_for_start(task.spec.alloc, task.spec.task, task.dirs)
        except YurtError as error:
            failure = events.setup_failure(f"cannot hand out the task's identity: {error}")
            raise SetupProblem(failure, is_recoverable=not is_final(error)) from None
        return Additions(env=env)

    async def recover(self, task: ClientTask) -> Additions | None:
        """Replace the run's tokens as soon as the servers can be reached."""
        if not handed_out(task.spec.task):
            return None
        return Additions(env=await self._of(task).env_again(task.spec.alloc, task.spec.task, task.dirs))

    def finish(self, task: ClientTask) -> None:
        """Stop renewing."""
        identities = self._tasks.pop(task.key, None)
        if identities is not None:
            identities.stop()

    def _of(self, task: ClientTask) -> TaskIdentities:
        if task.key not in self._tasks:
            self._tasks[task.key] = TaskIdentities(task.name, self._context, control=task, spawn=task.spawn)
        return self._tasks[task.key]
