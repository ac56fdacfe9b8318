"""The loop that looks at deployments whose health changed or whose deadline has come."""

from __future__ import annotations

import asyncio

from yurt.duties.deployments import Seen, health_of, next_deadline, watch
from yurt.duties.evals import Mint
from yurt.runtime.env import Env
from yurt.sdk.errors import Conflict, NotFound
from yurt.server.log_writer import LogWriter
from yurt.server.waiting import wait_for
from yurt.state import Changes, Snapshot
from yurt.structs.alloc import Allocation
from yurt.structs.questions import is_deployment_active


class DeploymentWatcher:
    """Active deployments, and what of them was told to their jobs."""

    def __init__(self, *, env: Env, writer: LogWriter) -> None:
        self._env = env
        self._writer = writer
        self._seen: dict[str, Seen] = {}
        self._touched: set[str] = set()
        self._changed = asyncio.Event()

    def restore(self, state: Snapshot) -> None:
        """Watch every active deployment."""
        for deployment in state.deployments.values():
            if is_deployment_active(deployment):
                self._seen[deployment.id] = Seen()
                self._touched.add(deployment.id)
        self._changed.set()

    def observe(self, changes: Changes) -> None:
        """Follow deployments and the health of their allocations."""
        for change in changes:
            row = change.after
            if change.table == "deployments":
                if row is not None and is_deployment_active(row):
                    self._seen.setdefault(row.id, health_of(row))
                    self._touched.add(row.id)
                else:
                    self._seen.pop(change.key, None)  # type: ignore[call-overload]
            elif change.table == "allocs" and row is not None and _has_other_health(change.before, row):
                self._touched.add(row.deployment_id)
        self._touched &= self._seen.keys()
        if self._touched:
            self._changed.set()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            self._changed.clear()
            touched, self._touched = self._touched, set()
            for deployment_id in sorted(touched):
                await self._look(deployment_id)
            await wait_for(self._env, self._changed, self._until_deadline())

    async def _look(self, deployment_id: str) -> None:
        deployment = self._writer.state.deployments.get(deployment_id)
        if deployment is None or deployment_id not in self._seen:
            return
        mint = Mint(self._env.now(), self._env.uuid)
        command = watch(self._writer.state, deployment, self._seen[deployment_id], mint)
        if command is None:
            return
        try:
            await self._writer.propose(command)
        except (NotFound, Conflict):
            return
        except Exception:
            self._touched.add(deployment_id)
            raise
        if deployment_id in self._seen:
            self._seen[deployment_id] = health_of(deployment)

    def _until_deadline(self) -> float | None:
        if self._touched:
            return 0.0
        now = self._env.now()
        nearest: int | None = None
        for deployment_id in self._seen:
            deployment = self._writer.state.deployments.get(deployment_id)
            deadline = next_deadline(deployment) if deployment is not None else None
            if deadline is None:
                continue
            nearest = deadline if nearest is None else min(nearest, deadline)
            if deadline <= now:
                self._touched.add(deployment_id)
        return None if nearest is None else max(0.0, (nearest - now) / 1e9)


def _has_other_health(before: Allocation | None, after: Allocation) -> bool:
    return bool(after.deployment_id) and (before is None or before.deployment_status != after.deployment_status)
