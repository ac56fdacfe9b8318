"""Operations on the cluster as a whole: garbage collection and the scheduler's configuration."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from yurt.duties.gc import Cutoffs, collect, dead_jobs, delete_jobs, left_behind
from yurt.sdk.errors import Invalid
from yurt.sdk.value import UnixNano
from yurt.structs.cluster import AutopilotConfiguration, SchedulerConfiguration
from yurt.structs.commands import AnyCommand, SetAutopilotConfiguration, SetSchedulerConfiguration

if TYPE_CHECKING:
    from yurt.server.server import Server

NANO = 1_000_000_000


class System:
    """Operations on the cluster as a whole."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def collect_garbage(self) -> int:
        """Forget everything that is over, however young; how many commands that took."""
        now = self._server.env.now()
        return await self._collect(Cutoffs(eval=now, batch_eval=now, job=now, node=now, deployment=now), now)

    async def run_garbage_collection(self) -> None:
        """Forget what is over and old enough, each interval, until cancelled."""
        thresholds = self._server.config.gc
        while True:
            await self._server.env.sleep(thresholds.interval_s)
            now = self._server.env.now()
            cutoffs = Cutoffs(
                eval=_before(now, thresholds.eval_s),
                batch_eval=_before(now, thresholds.batch_eval_s),
                job=_before(now, thresholds.job_s),
                node=_before(now, thresholds.node_s),
                deployment=_before(now, thresholds.deployment_s),
            )
            await self._collect(cutoffs, now)

    async def set_scheduler_config(
        self, configuration: SchedulerConfiguration, *, check_index: int | None = None
    ) -> int:
        """Replace the scheduler's configuration; Conflict when its last change is not `check_index`."""
        if configuration.scheduler_algorithm not in ("binpack", "spread"):
            raise Invalid(f'invalid scheduler algorithm "{configuration.scheduler_algorithm}": write binpack or spread')
        command = SetSchedulerConfiguration(configuration=configuration, check_index=check_index)
        return (await self._server.propose(command)).index

    async def set_autopilot_config(
        self, configuration: AutopilotConfiguration, *, check_index: int | None = None
    ) -> int:
        """Replace how servers mind themselves; Conflict when its last change is not `check_index`."""
        command = SetAutopilotConfiguration(configuration=configuration, check_index=check_index)
        return (await self._server.propose(command)).index

    async def _collect(self, cutoffs: Cutoffs, now: UnixNano) -> int:
        """Jobs first: what they leave behind goes when they are gone."""
        jobs = dead_jobs(self._server.state, cutoffs, now)
        count = await self._propose(delete_jobs(jobs))
        count += await self._propose(left_behind(self._server.state, jobs))
        return count + await self._propose(collect(self._server.state, cutoffs, now))

    async def _propose(self, commands: Iterable[AnyCommand]) -> int:
        count = 0
        for command in tuple(commands):
            await self._server.propose(command)
            count += 1
        return count


def _before(now: UnixNano, age_s: float) -> UnixNano:
    return UnixNano(now - round(age_s * NANO))
