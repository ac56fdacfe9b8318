"""Watches deployments whose health changed or whose deadline has passed."""

from __future__ import annotations

import asyncio
import heapq
import logging
from functools import partial
from typing import Final

from yurt.duties.deployments import SeenDeployment, health_of, is_only_placed, next_deadline, watch
from yurt.fsm.basis import expectation
from yurt.fsm.eval_triggers import Mint
from yurt.runtime.env import Env
from yurt.sdk.errors import Conflict, NotFound, Reason
from yurt.sdk.value import NANOSECONDS, UnixNano, replace
from yurt.server.log.log_writer import LogWriter, Stale
from yurt.server.log.state_waits import wait_for
from yurt.state import Changes, Snapshot, has_change_among
from yurt.structs.alloc import Allocation
from yurt.structs.commands import AnyCommand, SetDesiredTransitions
from yurt.structs.deployment import Deployment
from yurt.structs.predicates import is_deployment_active
from yurt.structs.status import CLIENT_FAILED

log = logging.getLogger(__name__)

SMALL: Final = 50
GATHER_S: Final = 0.25
"""After a look at a deployment of more than `SMALL` allocations, changes gather this long before the next."""

FOLLOWED: Final = frozenset({"allocs", "deployments"})

THREAD_COUNT: Final = 500
"""Deployments with more allocations than this are processed in a thread."""


UPGRADE_PAUSE_S: Final = 30.0
"""Between two tries of a step that waits for the upgrade of a server."""


class DeploymentWatcher:
    """The active deployments, and their health at the last evaluation of their jobs."""

    def __init__(self, *, env: Env, writer: LogWriter) -> None:
        self._env = env
        self._writer = writer
        self._seen: dict[str, SeenDeployment] = {}
        self._pending: set[str] = set()
        self._deadlines: dict[str, UnixNano] = {}
        self._heap: list[tuple[UnixNano, str]] = []
        self._changed = asyncio.Event()

    def restore(self, state: Snapshot) -> None:
        """Watch every active deployment."""
        for deployment in state.deployments.values():
            if is_deployment_active(deployment):
                self._seen[deployment.id] = SeenDeployment()
                self._pending.add(deployment.id)
                self._set_deadline(deployment)
        self._changed.set()

    def observe(self, changes: Changes) -> None:
        """Follow deployments and the health of their allocations."""
        if not has_change_among(changes, FOLLOWED):
            return
        for change in changes:
            if change.table == "deployments":
                self._observe_deployment(change.before, change.after)
            elif change.table == "allocs" and _has_other_health(change.before, change.after):
                self._pending.add(change.after.deployment_id)
        self._pending &= self._seen.keys()
        if self._pending:
            self._changed.set()

    def _observe_deployment(self, before: Deployment | None, after: Deployment | None) -> None:
        if after is None or not is_deployment_active(after):
            self._forget(before or after)
            return
        self._seen.setdefault(after.id, health_of(after))
        self._set_deadline(after)
        if before is not None and not is_only_placed(before, after):
            self._pending.add(after.id)

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            self._changed.clear()
            pending, self._pending = self._pending, set()
            for deployment_id in sorted(pending):
                await self._look(deployment_id)
            if self._pending:
                self._changed.set()
            if any(self._size(deployment_id) > SMALL for deployment_id in pending):
                await self._env.sleep(GATHER_S)
            await wait_for(self._env, self._changed, self._until_deadline())

    async def _look(self, deployment_id: str) -> None:
        deployment = self._writer.state.deployments.get(deployment_id)
        if deployment is None or deployment_id not in self._seen:
            return
        command = await self._decided(deployment, self._seen[deployment_id])
        if command is None:
            return
        try:
            await self._writer.propose(command)
        except Stale:
            self._pending.add(deployment_id)
            return
        except (NotFound, Conflict) as refused:
            if refused.reason is Reason.UPGRADE_UNFINISHED:
                log.warning("a step of a deployment waits: deployment_id=%s reason=%r", deployment_id, str(refused))
                self._look_later(deployment_id)
            return
        except Exception:
            self._pending.add(deployment_id)
            raise
        if deployment_id in self._seen:
            self._seen[deployment_id] = health_of(deployment)
        if isinstance(command, SetDesiredTransitions):
            self._pending.add(deployment_id)

    async def _decided(self, deployment: Deployment, seen: SeenDeployment) -> AnyCommand | None:
        """The command for a deployment; a large one is decided in a thread.

        The command is based on the job: a roll-back must not undo what somebody has just stored. Health changes all the
        time, so the deployment's row cannot be the basis; `apply` checks its status.
        """
        state, key = self._writer.state, (deployment.namespace, deployment.job_id)
        decide = partial(watch, state, deployment, seen, Mint(self._env.now(), self._env.uuid))
        is_small = self._size(deployment.id) <= THREAD_COUNT
        command = decide() if is_small else await self._env.in_thread(decide)
        if command is None:
            return None
        return replace(command, based_on=(expectation(state, "jobs", key),))

    def _size(self, deployment_id: str) -> int:
        return self._writer.state.allocs.count_where("deployment", deployment_id)

    def _set_deadline(self, deployment: Deployment) -> None:
        deadline = next_deadline(deployment)
        if deadline is None:
            self._deadlines.pop(deployment.id, None)
        elif self._deadlines.get(deployment.id) != deadline:
            self._deadlines[deployment.id] = deadline
            heapq.heappush(self._heap, (deadline, deployment.id))
            self._changed.set()

    def _forget(self, deployment: Deployment | None) -> None:
        if deployment is None:
            return
        self._seen.pop(deployment.id, None)
        self._deadlines.pop(deployment.id, None)

    def _look_later(self, deployment_id: str) -> None:
        due = UnixNano(self._env.now() + round(UPGRADE_PAUSE_S * NANOSECONDS))
        self._deadlines[deployment_id] = due
        heapq.heappush(self._heap, (due, deployment_id))

    def _until_deadline(self) -> float | None:
        """Seconds until the next deadline; overdue deployments are checked."""
        now = self._env.now()
        while self._heap and (self._heap[0][0] <= now or self._is_stale(self._heap[0])):
            entry = heapq.heappop(self._heap)
            if not self._is_stale(entry):
                del self._deadlines[entry[1]]
                self._pending.add(entry[1])
        if self._pending:
            return 0.0
        return (self._heap[0][0] - now) / 1e9 if self._heap else None

    def _is_stale(self, entry: tuple[UnixNano, str]) -> bool:
        return self._deadlines.get(entry[1]) != entry[0]


def _has_other_health(before: Allocation | None, after: Allocation | None) -> bool:
    """Whether an allocation's deployment must be checked: a healthy one may fail again."""
    if after is None or not after.deployment_id:
        return False
    if before is None:
        return after.deployment_status is not None
    has_failed = after.client_status == CLIENT_FAILED and before.client_status != CLIENT_FAILED
    return has_failed or before.deployment_status != after.deployment_status
