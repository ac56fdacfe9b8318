"""One term of leadership: all loops that only the leader runs, which end with the term (invariant A4)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from yurt.runtime.supervise import keep_running, supervised
from yurt.server.clients.heartbeats import Heartbeats
from yurt.server.clients.node_service import NodeService
from yurt.server.config import ServerConfig
from yurt.server.keys.keys import Keys
from yurt.server.log.replica import Replica
from yurt.server.resources.deployment_watcher import DeploymentWatcher
from yurt.server.resources.drain import Drainer
from yurt.server.resources.idle import IdleReclaimer
from yurt.server.resources.periodic import PeriodicDispatcher
from yurt.server.resources.resources import ServerResources
from yurt.server.scheduling.eval_queue import EvalQueue
from yurt.server.scheduling.plan_applier import PlanApplier
from yurt.server.scheduling.scheduling import LeaderScheduling, Scheduling
from yurt.server.scheduling.work_sources import LeaderWork
from yurt.state import Changes, without_plain_placements

log = logging.getLogger(__name__)

DUTY_RETRY_S: Final = 1.0

Loop = Callable[[], Awaitable[None]]


class Term:
    """The leader's queues, workers, timers and duties."""

    def __init__(
        self,
        replica: Replica,
        config: ServerConfig,
        *,
        scheduling: Scheduling,
        node_service: NodeService,
        resources: ServerResources,
        keys: Keys,
    ) -> None:
        env, writer = replica.env, replica.writer
        self.scheduling = LeaderScheduling(scheduling, replica)
        self.heartbeats = Heartbeats(env=env, config=config, on_missed=node_service.missed, turns=replica.turns)
        self.deployments = DeploymentWatcher(env=env, writer=writer)
        self.drainer = Drainer(env=env, writer=writer)
        self.periodic = PeriodicDispatcher(env=env, writer=writer, launch=resources.jobs.launch)
        self.idle = IdleReclaimer(env=env, writer=writer, metrics=scheduling.metrics, config=config)
        self._replica = replica
        self._node_service = node_service
        self._resources = resources
        self._keys = keys

    @property
    def queue(self) -> EvalQueue:
        """The evaluation queues."""
        return self.scheduling.queue

    @property
    def applier(self) -> PlanApplier:
        """The plan applier."""
        return self.scheduling.applier

    @property
    def work(self) -> LeaderWork:
        """The source of work for workers here and on other servers."""
        return self.scheduling.work

    def restore(self) -> None:
        """Restore the queues and timers from the state."""
        state = self._replica.state
        self.queue.restore(state)
        self.heartbeats.restore(state)
        self.deployments.restore(state)
        self.drainer.restore(state)
        self.idle.restore(state)
        self.periodic.restore(state)
        self._resources.variables.restore(state)
        # Last: from here on clients' heartbeats count, and every timer must know its node by then.
        self._node_service.begin_term(self.heartbeats)

    def observe(self, changes: Changes, *, index: int) -> None:
        """Follow the changes of a command."""
        notable = without_plain_placements(changes)
        self.scheduling.queue.observe(changes, index=index, notable=notable)
        self.deployments.observe(notable)
        self.drainer.observe(changes if self.drainer.follows_placements else notable)
        self.idle.observe(notable)
        self.periodic.observe(changes)
        self._resources.variables.observe(changes)

    async def run(self) -> None:
        """Run until cancelled at the end of the term."""
        resources, queue = self._resources, self.queue
        loops: dict[str, Loop] = {
            "broker timer": queue.run_timer,
            "evaluation reaper": queue.run_reaper,
            "failed evaluation reaper": queue.run_failed_reaper,
            "unblocking": queue.run_unblocking,
            "queues of node pools": queue.pools.run,
            "forecasts of starts": queue.pools.run_forecasts,
            "unblocking of failed evaluations": queue.run_unblocker,
            "pruning of unblocks": queue.run_pruner,
            "plan applier": self.applier.run,
            "heartbeat timers": self.heartbeats.run,
            "client reports": self._node_service.run_reports,
            "deployment watcher": self.deployments.run,
            "drainer": self.drainer.run,
            "idle allocations": self.idle.run,
            "periodic dispatcher": self.periodic.run,
            "locks of variables": resources.variables.run,
            "root keys": self._keys.root_keys.run,
            "collection of root keys": self._keys.collector.run,
            "garbage collection": resources.system.run_garbage_collection,
            "scheduler workers": self.scheduling.run_workers,
        }
        if resources.replication is not None:
            loops["copies of the authoritative region"] = resources.replication.run
        try:
            async with asyncio.TaskGroup() as group:
                for name, loop in loops.items():
                    supervised(group, name, self._forever(name, loop))
        finally:
            self._node_service.end_term()
            self._resources.gangs.end_term()

    async def _forever(self, name: str, loop: Loop) -> None:
        """Run a duty and restart it after a failure, independently of others. Failures at the end of a term are not
        logged."""
        env, writer = self._replica.env, self._replica.writer
        await keep_running(name, loop, pause=lambda: env.sleep(DUTY_RETRY_S), is_logged=lambda: writer.is_open)
