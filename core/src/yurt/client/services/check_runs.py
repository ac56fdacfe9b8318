"""Runs the checks of an allocation's services while their tasks run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from yurt.client.services.probe import probe
from yurt.client.timed_waits import wait_or_sleep
from yurt.lifecycle import checks, services
from yurt.lifecycle.checks import CheckRun, CheckSpec
from yurt.lifecycle.services import ServicePlan
from yurt.runtime.env import Env
from yurt.runtime.supervise import supervised
from yurt.sdk.value import NANOSECONDS
from yurt.structs.rpc import AllocCheckStatus


class CheckRuns:
    """The checks of one allocation. `on_change` gets each new status, `restart` the restarts that checks require."""

    def __init__(
        self,
        env: Env,
        group: asyncio.TaskGroup,
        *,
        on_change: Callable[[], None],
        restart: Callable[[CheckSpec], None],
    ) -> None:
        self._env = env
        self._group = group
        self._on_change = on_change
        self._restart = restart
        self._specs: dict[str, CheckSpec] = {}
        self._starts: Mapping[str, int] = {}
        self._runs: dict[str, CheckRun] = {}
        self._probes: dict[str, asyncio.Task[None]] = {}
        self._wakes: dict[str, asyncio.Event] = {}

    def follow(self, plan: ServicePlan, starts: Mapping[str, int]) -> None:
        """Set the checks to run, and the start times of their tasks."""
        self._specs = {spec.id: spec for each in plan.planned for spec in each.checks}
        now = self._env.now()
        due = {spec.id: spec for spec in services.checked(plan, starts)}
        for check_id in [each for each in self._probes if each not in due]:
            self._probes.pop(check_id).cancel()
        for check_id, spec in due.items():
            if check_id not in self._probes:
                self._runs[check_id] = checks.begin(spec, now=now)
                self._wakes[check_id] = asyncio.Event()
                self._probes[check_id] = supervised(self._group, f"check {spec.name}", self._run(check_id))
            elif _start_of(spec, starts) != _start_of(spec, self._starts):
                self._runs[check_id] = checks.restarted(spec, self._runs[check_id], now=now)
                self._wakes[check_id].set()
        self._starts = dict(starts)

    @property
    def all_pass(self) -> bool:
        """Whether every check that a deployment waits for has succeeded; a service without an address never has."""
        pending = CheckRun(next_at=self._env.now(), counts_from=self._env.now())
        return checks.all_pass((spec, self._runs.get(spec.id, pending)) for spec in self._specs.values())

    def statuses(self) -> tuple[AllocCheckStatus, ...]:
        """The status of all checks that run, or ran last."""
        runs = ((self._specs[each], run) for each, run in sorted(self._runs.items()) if each in self._specs)
        return tuple(checks.status_of(spec, run) for spec, run in runs)

    async def _run(self, check_id: str) -> None:
        env, wake = self._env, self._wakes[check_id]
        while (spec := self._specs.get(check_id)) is not None:
            left_s = (self._runs[check_id].next_at - env.now()) / NANOSECONDS
            if left_s > 0 and await wait_or_sleep(env, wake, left_s):
                wake.clear()
                continue
            asked = self._runs[check_id]
            outcome = await probe(spec)
            if self._runs[check_id] is not asked:
                continue
            step = checks.observed(spec, asked, outcome, now=env.now())
            self._runs[check_id] = step.run
            if step.run.status != asked.status:
                self._on_change()
            if step.is_restart:
                self._restart(spec)


def _start_of(spec: CheckSpec, starts: Mapping[str, int]) -> int:
    return starts.get(spec.task, 0) if spec.task else max(starts.values(), default=0)
