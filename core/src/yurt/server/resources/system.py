"""Cluster-wide operations: garbage collection and configuration."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from yurt.duties.gc import Cutoffs, Garbage, Step, collect, dead_jobs, orphan_steps
from yurt.sdk.errors import Invalid, NotFound
from yurt.sdk.value import UnixNano
from yurt.server.config import ServerConfig
from yurt.server.keys.root_key_gc import RootKeyCollector
from yurt.server.log.log_writer import Stale, error_of
from yurt.server.log.server_log import ServerLog
from yurt.server.resources.acl_tokens import AclTokens
from yurt.server.results import ConfigurationSet
from yurt.server.scheduling.replay import History
from yurt.state.usage import forget_usages
from yurt.structs.cluster import AutopilotConfiguration, SchedulerConfiguration
from yurt.structs.commands import DeleteJobs, Rejected, SetAutopilotConfiguration, SetSchedulerConfiguration

NANO = 1_000_000_000
STEPS_A_SLICE: Final = 500
"""Rows that garbage collection examines before the loop gets a turn: a few milliseconds."""


class System:
    """Cluster-wide operations."""

    def __init__(
        self,
        log: ServerLog,
        config: ServerConfig,
        *,
        history: History,
        root_keys: RootKeyCollector,
        acl_tokens: AclTokens,
    ) -> None:
        self._log = log
        self._replica = log.replica
        self._config = config
        self._history = history
        self._root_keys = root_keys
        self._acl_tokens = acl_tokens

    async def collect_garbage(self) -> int:
        """Delete everything that has ended, regardless of age.

        Returns the index of the last command; without one, that of the state in which nothing was found.
        """
        now, began = self._replica.env.now(), self._replica.state.index
        last = await self._collect(Cutoffs(eval=now, batch_eval=now, job=now, node=now, deployment=now), now)
        last = max(last, await self._root_keys.collect())
        last = max(last, await self._acl_tokens.collect(age_s=0.0))
        await self._release_rows()
        return last or began

    async def _release_rows(self) -> None:
        """Release deleted rows that old events and a dev agent's log still hold."""
        state = self._replica.state
        self._log.events.forget(state)
        if self._config.dev and not self._history.first:
            await self._log.command_log.trim(state.index, keep=0)

    async def run_garbage_collection(self) -> None:
        """Delete objects that ended long enough ago, at each interval, until cancelled."""
        thresholds = self._config.gc
        while True:
            await self._replica.env.sleep(thresholds.interval_s)
            now = self._replica.env.now()
            cutoffs = Cutoffs(
                eval=_before(now, thresholds.eval_s),
                batch_eval=_before(now, thresholds.batch_eval_s),
                job=_before(now, thresholds.job_s),
                node=_before(now, thresholds.node_s),
                deployment=_before(now, thresholds.deployment_s),
            )
            await self._collect(cutoffs, now)
            await self._acl_tokens.collect(age_s=thresholds.acl_token_s)

    async def set_scheduler_config(
        self, configuration: SchedulerConfiguration, *, check_index: int | None = None
    ) -> ConfigurationSet:
        """Set the scheduler configuration, unless its modify index is not `check_index`."""
        if configuration.scheduler_algorithm not in ("binpack", "spread"):
            raise Invalid(f'invalid scheduler algorithm "{configuration.scheduler_algorithm}": write binpack or spread')
        return await self._set(SetSchedulerConfiguration(configuration=configuration, check_index=check_index))

    async def set_autopilot_config(
        self, configuration: AutopilotConfiguration, *, check_index: int | None = None
    ) -> ConfigurationSet:
        """Set the autopilot configuration, unless its modify index is not `check_index`."""
        return await self._set(SetAutopilotConfiguration(configuration=configuration, check_index=check_index))

    async def _set(self, command: SetSchedulerConfiguration | SetAutopilotConfiguration) -> ConfigurationSet:
        committed = await self._replica.submit(command)
        if isinstance(committed.result, Rejected):
            if committed.result.kind != "conflict":
                raise error_of(committed.result)
            return ConfigurationSet(is_updated=False, index=committed.index)
        return ConfigurationSet(is_updated=True, index=committed.index)

    async def _collect(self, cutoffs: Cutoffs, now: UnixNano) -> int:
        """Collect jobs first, because their remains are collectable only after them; the index of the last command."""
        last = await self._forget(dead_jobs(self._replica.state, cutoffs, now), Garbage(cutoffs, now))
        last = max(last, await self._forget(collect(self._replica.state, cutoffs, now), Garbage(cutoffs, now)))
        self._replica.state.release_changes()
        forget_usages()
        self._history.forget(self._replica.state)
        return last

    async def _forget(self, steps: Iterator[Step], garbage: Garbage) -> int:
        """Delete what the steps find, in small batches as they are found; the index of the last command, or 0."""
        last = 0
        async for part in self._replica.turns.slices(steps, STEPS_A_SLICE):
            for row in part:
                if garbage.add(row):
                    last = max(last, await self._delete(garbage))
        return max(last, await self._delete(garbage))

    async def _delete(self, garbage: Garbage) -> int:
        last = 0
        for command in tuple(garbage.commands(self._replica.state)):
            with suppress(Stale, NotFound):
                last = (await self._replica.propose(command)).index
            await self._replica.turns.next()
            if isinstance(command, DeleteJobs):
                steps = orphan_steps(self._replica.state, command.keys)
                last = max(last, await self._forget(steps, garbage.of_left_behind()))
        return last


def _before(now: UnixNano, age_s: float) -> UnixNano:
    return UnixNano(now - round(age_s * NANO))
