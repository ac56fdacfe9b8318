"""The artifacts hook: downloads a task's artifacts before its first start."""

from __future__ import annotations

from collections.abc import Mapping

from yurt.client.artifacts.fetch_request import ArtifactLimits
from yurt.client.tasks.client_task import ClientTask, SetupProblem
from yurt.client.timed_waits import finish_unless
from yurt.lifecycle import events
from yurt.runtime.env import Env
from yurt.sdk.artifacts import ArtifactGetter
from yurt.sdk.errors import Invalid, RecoverableError
from yurt.sdk.hooks import TaskHookOf


class ArtifactsHook(TaskHookOf[ClientTask]):
    """Downloads the task's missing artifacts; a kill of the task ends the download at once."""

    name = "artifacts"

    def __init__(self, limits: ArtifactLimits, added: Mapping[str, ArtifactGetter], env: Env) -> None:
        """`added` are the artifact getters of packages."""
        self._limits = limits
        self._added = added
        self._env = env

    async def prepare(self, task: ClientTask) -> None:
        """Download missing artifacts."""
        declared = task.spec.task
        if not declared.artifacts:
            return
        from yurt.client.artifacts import task_artifacts as artifacts

        place = artifacts.TaskPlace(
            task_name=task.name, dirs=task.dirs, user=declared.user, link_owners=await task.link_owners()
        )
        try:
            limits, added = self._limits, self._added
            fetches = artifacts.plan(declared.artifacts, place, lookup=task.lookup, limits=limits, added=added)
            missing = {digest: fetch for digest, fetch in fetches.items() if digest not in task.fetched}
            if missing:
                task.note(events.downloading_artifacts())
                progress = artifacts.ProgressReport(
                    self._env, lambda text: task.note(events.downloading_artifacts(text))
                )
                fetching = artifacts.fetch_all(missing, on_done=task.fetched.add, progress=progress)
                await finish_unless(task.killed, fetching)
        except (Invalid, RecoverableError) as error:
            failure = events.failed_artifact_download(str(error))
            raise SetupProblem(failure, is_recoverable=isinstance(error, RecoverableError)) from None
