"""The gang hook: delays the start of the main task until all members of its gang are set up (rendezvous).

It is the last step before a start, so that artifacts and templates are ready and only an image may be missing. During a
run the hook waits for the end of its generation, then restarts the task, so that all members meet again.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from yurt.client.ports import ServerPort
from yurt.client.tasks.client_task import ClientTask, SetupProblem
from yurt.client.templates.files import write
from yurt.client.timed_waits import finish_unless
from yurt.lifecycle import events
from yurt.runtime.env import Env
from yurt.sdk.driver import ExitResult, TaskHandle
from yurt.sdk.errors import Invalid, PermissionDenied, YurtError
from yurt.sdk.hooks import Additions, TaskHookOf
from yurt.sdk.value import NANOSECONDS, duration_text
from yurt.structs.policies import Rendezvous
from yurt.structs.queueing.gang import FORMED, LATEST, OVER, GangAnswer, GangQuery, GangRoster

CALL_S: Final = 25.0
"""The longest wait of one call to the servers, in seconds."""
FIRST_S: Final = 0.1
RETRY_S: Final = 1.0
"""The pause after a call that no server answered."""
NAMES_MAX: Final = 8
"""The largest number of members that an event names."""
FILE_MODE: Final = 0o644


class GangHook(TaskHookOf[ClientTask]):
    """Lets the main tasks of a group with a `gang` block start together."""

    name = "gang"

    def __init__(self, server: ServerPort, env: Env) -> None:
        self._server = server
        self._env = env
        self._generations: dict[tuple[str, str], int] = {}
        """The last generation of each task that this agent started."""
        self._watched: dict[tuple[str, str], asyncio.Task[None]] = {}

    async def prepare(self, task: ClientTask) -> Additions | None:
        """Wait for the other members; fails the task when that takes longer than the barrier."""
        rendezvous = _rendezvous_of(task)
        if rendezvous is None:
            return None
        from yurt.client.hooks.gang_variables import HOSTFILE, hostfile_text, variables

        found: list[GangRoster] = []

        async def meet() -> None:
            found.append(await self._meet(task, rendezvous))

        await finish_unless(task.killed, meet())
        if not found:
            return None  # The task is killed.
        roster, rank = found[0], found[0].rank_of(task.spec.alloc.id)
        self._generations[task.key] = roster.generation
        task.note(f"Gang generation {roster.generation} formed: rank {rank} of {len(roster.members)}")
        try:
            body = hostfile_text(roster).encode()
            path = f"local/{HOSTFILE}"
            await self._env.in_thread(write, task.dirs.task_dir, path, body, mode=FILE_MODE, owner=(-1, -1))
        except Invalid as error:
            raise SetupProblem(events.setup_failure(f"the hostfile of the gang cannot be written: {error}")) from None
        return Additions(env=variables(roster, rank, rendezvous, f"{task.env['NOMAD_TASK_DIR']}/{HOSTFILE}"))

    async def started(self, task: ClientTask, handle: TaskHandle) -> None:
        """Watch for the end of the generation."""
        self._watch(task)

    async def recover(self, task: ClientTask) -> None:
        """Watch for the end of the allocation's generation at the servers."""
        if _rendezvous_of(task) is not None:
            self._watch(task)

    async def exited(self, task: ClientTask, result: ExitResult) -> None:
        """Stop watching: the run has ended before its generation."""
        self._stop(task)

    def finish(self, task: ClientTask) -> None:
        """Forget the task."""
        self._stop(task)
        self._generations.pop(task.key, None)

    def _watch(self, task: ClientTask) -> None:
        if _rendezvous_of(task) is None:
            return
        self._stop(task)
        self._watched[task.key] = task.spawn(self._restart_at_end(task), partial(_note_failure, task))

    def _stop(self, task: ClientTask) -> None:
        watch = self._watched.pop(task.key, None)
        if watch is not None:
            watch.cancel()

    async def _restart_at_end(self, task: ClientTask) -> None:
        """Wait for the generation's end, then restart the task, which meets the other members again."""
        generation = self._generations.get(task.key, LATEST)
        while True:
            answer = await self._ask(task, generation, is_running=True)
            if answer is not None and answer.status == OVER:
                task.restart(f"Gang generation is over: {answer.reason}")
                return
            generation = answer.generation if answer is not None else generation

    async def _meet(self, task: ClientTask, rendezvous: Rendezvous) -> GangRoster:
        """Wait for the roster of the next generation; raises SetupProblem when the barrier's time is over."""
        last = self._generations.get(task.key)
        generation = last if last is not None else 0 if task.run == 0 else LATEST
        seen, began = "", self._env.monotonic()
        while True:
            left_s = rendezvous.barrier / NANOSECONDS - (self._env.monotonic() - began)
            answer = await self._ask(task, generation, timeout_s=min(CALL_S, max(left_s, FIRST_S)))
            if answer is not None and answer.status == FORMED and answer.roster is not None:
                return answer.roster
            text = _waiting_text(answer)
            if answer is not None:
                generation = answer.generation
            if answer is None or answer.is_busy:
                began = self._env.monotonic()  # Nobody is late: servers do not answer, or the others are at work.
            elif left_s <= 0:
                limit = duration_text(rendezvous.barrier)
                raise SetupProblem(events.setup_failure(f"the gang did not meet within its barrier of {limit}: {text}"))
            if text != seen:
                seen = text
                task.note(f"Gang: {text}")

    async def _ask(
        self, task: ClientTask, generation: int, *, is_running: bool = False, timeout_s: float = CALL_S
    ) -> GangAnswer | None:
        """The servers' answer; None after a failed call and a pause. Raises SetupProblem for a refusal."""
        alloc = task.spec.alloc
        query = GangQuery(
            node_id=alloc.node_id,
            alloc_id=alloc.id,
            generation=generation,
            is_running=is_running,
            timeout_s=timeout_s,
        )
        try:
            return await self._server.follow_gang(query)
        except (Invalid, PermissionDenied) as error:
            raise SetupProblem(events.setup_failure(f"the gang cannot meet: {error}")) from None
        except YurtError:
            await self._env.sleep(RETRY_S)
            return None


def _rendezvous_of(task: ClientTask) -> Rendezvous | None:
    """The rendezvous of a main task's group."""
    gang = task.spec.group.gang
    return gang.rendezvous if gang is not None and task.spec.task.lifecycle is None else None


def _waiting_text(answer: GangAnswer | None) -> str:
    """The condition that the task waits for, as text."""
    if answer is None:
        return "no server answers"
    if answer.is_busy:
        return "waits for the end of the generation that runs"
    parts = []
    if answer.missing:
        more = len(answer.missing) - NAMES_MAX
        names = ", ".join(answer.missing[:NAMES_MAX]) + (f" and {more} more" if more > 0 else "")
        parts.append(f"waits for {names} to be set up")
    if answer.unplaced:
        parts.append(f"{answer.unplaced} more {'member is' if answer.unplaced == 1 else 'members are'} not placed")
    return "; ".join(parts) or "waits for its members"


def _note_failure(task: ClientTask, error: Exception) -> None:
    task.note(events.hook_failed(f"gang: {error}"))
