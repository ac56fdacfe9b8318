"""One term of leadership: everything that only the leader runs, gone when the term ends (invariant A4)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from yurt.broker.rejections import Rejections
from yurt.runtime.supervise import keep_running, supervised
from yurt.sdk.value import seconds
from yurt.server.clients.heartbeats import Heartbeats
from yurt.server.keys.root_key_gc import RootKeyCollector
from yurt.server.resources.deployment_watcher import DeploymentWatcher
from yurt.server.resources.drain import Drainer
from yurt.server.resources.periodic import PeriodicDispatcher
from yurt.server.resources.region_replication import Replication
from yurt.server.scheduling.eval_queue import EvalQueue
from yurt.server.scheduling.plan_applier import PlanApplier
from yurt.server.scheduling.work_sources import BATCH, LeaderWork
from yurt.state import Changes

if TYPE_CHECKING:
    from yurt.server.server import Server

log = logging.getLogger(__name__)

DUTY_RETRY_S: Final = 1.0

Loop = Callable[[], Awaitable[None]]


class Term:
    """The leader's queues, workers, timers and duties."""

    def __init__(self, server: Server) -> None:
        env, writer = server.env, server.writer
        self.queue = EvalQueue(env=env, writer=writer, current=lambda: server.state, turns=writer.turns)
        self.applier = PlanApplier(env=env, writer=writer, metrics=server.metrics)
        self.applier.limits = server.limits
        if server.config.rejections.enabled:
            window = seconds(server.config.rejections.window_s)
            self.applier.rejections = Rejections(threshold=server.config.rejections.threshold, window=window)
        self.applier.history = server.history if server.config.dev else None
        self.heartbeats = Heartbeats(
            env=env, config=server.config, on_missed=server.node_service.missed, turns=writer.turns
        )
        self.deployments = DeploymentWatcher(env=env, writer=writer)
        self.drainer = Drainer(env=env, writer=writer)
        self.periodic = PeriodicDispatcher(env=env, writer=writer, launch=server.jobs.launch)
        self._server = server
        self.work = LeaderWork(env=env, queue=self.queue, applier=self.applier, writer=writer)
        self._workers = tuple(server.worker(self.work) for _ in range(max(0, server.config.num_schedulers)))
        self.work.spare = BATCH * len(self._workers)

    def restore(self) -> None:
        """Take over where the last leader stopped."""
        state = self._server.state
        self.queue.restore(state)
        self.heartbeats.restore(state)
        self.deployments.restore(state)
        self.drainer.restore(state)
        self.periodic.restore(state)
        self._server.variables.restore(state)
        self._server.node_service.heartbeats = self.heartbeats

    def observe(self, changes: Changes, *, index: int) -> None:
        """Follow what a command changed."""
        self.queue.observe(changes, index=index)
        self.deployments.observe(changes)
        self.drainer.observe(changes)
        self.periodic.observe(changes)
        self._server.variables.observe(changes)

    async def run(self) -> None:
        """Run until cancelled: the end of the term."""
        loops: dict[str, Loop] = {
            "broker timer": self.queue.run_timer,
            "evaluation reaper": self.queue.run_reaper,
            "failed evaluation reaper": self.queue.run_failed_reaper,
            "unblocking": self.queue.run_news,
            "unblocking of failed evaluations": self.queue.run_unblocker,
            "pruning of unblocks": self.queue.run_pruner,
            "plan applier": self.applier.run,
            "heartbeat timers": self.heartbeats.run,
            "client reports": self._server.node_service.run_reports,
            "deployment watcher": self.deployments.run,
            "drainer": self.drainer.run,
            "periodic dispatcher": self.periodic.run,
            "locks of variables": self._server.variables.run,
            "root keys": self._server.root_keys.run,
            "collection of root keys": RootKeyCollector(self._server).run,
            "garbage collection": self._server.system.run_garbage_collection,
        }
        if self._server.authority is not None:
            loops["copies of the authoritative region"] = Replication(self._server, self._server.authority).run
        loops.update({f"scheduler worker {number}": worker.run for number, worker in enumerate(self._workers)})
        try:
            async with asyncio.TaskGroup() as group:
                for name, loop in loops.items():
                    supervised(group, name, self._forever(name, loop))
        finally:
            self._server.node_service.heartbeats = None

    async def _forever(self, name: str, loop: Loop) -> None:
        """A duty that fails starts again after a moment; the others go on."""
        server = self._server
        await keep_running(name, loop, pause=lambda: server.env.sleep(DUTY_RETRY_S), is_told=lambda: server.is_leader)
