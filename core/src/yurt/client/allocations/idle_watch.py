"""Watches allocations whose jobs have a policy on idle devices, and notifies the servers and the tasks.

The servers get a report when a time of the policy is reached and when the devices are used again, and none in between.
Tasks get an event, and the file `notice` in the allocation's directory, which is removed when the notice no longer
applies.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

from yurt.client.allocations.alloc_runner import AllocRunner
from yurt.client.allocations.alloc_table import AllocTable
from yurt.client.devices.claims import claim_of
from yurt.client.devices.idleness import CardSample, Idleness, advance, sample_of, times_of
from yurt.client.devices.manager import DeviceManager
from yurt.client.files.alloc_dir import write_notice
from yurt.lifecycle import events
from yurt.runtime.env import Env
from yurt.sdk.device import DeviceUse
from yurt.sdk.value import NANOSECONDS, Duration, duration_text
from yurt.structs.alloc import IdleState
from yurt.structs.commands import IdleReport
from yurt.structs.policies import IdlePolicy
from yurt.structs.queueing.idle import ALWAYS, NOTIFY, idle_policy_of, job_version_of
from yurt.structs.status import TASK_RUNNING

INTERVAL_MAX_S: Final = 10.0
INTERVAL_MIN_S: Final = 0.25
SAMPLES_OF_TIME: Final = 6
"""The smallest number of samples in the shortest time of a policy."""
GAP: Final = 3
"""The longest time between two samples, in intervals, that still counts; beyond it the use is unknown."""
GAP_MIN_S: Final = 3.0

log = logging.getLogger(__name__)


class SampledAlloc(NamedTuple):
    """An allocation with the policy that its sample is judged by, and the job version that it comes from."""

    runner: AllocRunner
    policy: IdlePolicy
    job_version: int


class IdleWatch:
    """Samples the devices of allocations with an idle policy, and reports idle times."""

    def __init__(self, devices: DeviceManager, allocs: AllocTable, env: Env) -> None:
        self._devices = devices
        self._allocs = allocs
        self._env = env
        self._idleness: dict[str, Idleness] = {}
        self._states: dict[str, IdleState | None] = {}
        """The servers' idle state of each allocation at its last sample."""

    async def run(self) -> None:
        """Take samples until cancelled; return at once when the client has no device plugins."""
        while self._devices.plugins:
            await self._env.sleep(await self.look())

    async def look(self) -> float:
        """Take one sample of each watched allocation; returns the seconds to the next."""
        watched = {
            runner.id: SampledAlloc(runner, policy, job_version_of(runner.alloc))
            for runner in tuple(self._allocs.live.values())
            if runner.is_live and (policy := idle_policy_of(runner.alloc)) is not None
        }
        for alloc_id in self._idleness.keys() - watched.keys():
            await self._forget(alloc_id)
        for alloc_id in self._states.keys() - watched.keys():
            del self._states[alloc_id]
        if not watched:
            return INTERVAL_MAX_S / SAMPLES_OF_TIME
        interval_s = min(interval_of(each.policy) for each in watched.values())
        gap_s = max(GAP_MIN_S, GAP * interval_s)
        uses = await self._uses(gap_s)
        for each in watched.values():
            if each.runner.is_live:
                await self._judge(each, uses, gap_s)
                await self._notify_decisions(each.runner)
        return interval_s

    async def _forget(self, alloc_id: str) -> None:
        """Stop watching an allocation, and withdraw the last report of a live one."""
        del self._idleness[alloc_id]
        runner = self._allocs.live.get(alloc_id)
        reported = runner.hooked.idle_report if runner is not None else None
        if runner is None or not runner.is_live or reported is None or not reported.idle_for:
            return
        runner.hooked.idle_report = IdleReport(job_version=job_version_of(runner.alloc))
        runner.on_change()
        await self._notify(runner, "The job no longer has a policy on idle devices", last=True)

    async def _uses(self, limit_s: float) -> Mapping[str, DeviceUse]:
        """The current usage figures; none when a plugin hangs, because missing figures do not count as idle."""
        try:
            async with self._env.timeout(limit_s):
                return await self._devices.uses()
        except TimeoutError:
            return {}

    async def _judge(self, sampled: SampledAlloc, uses: Mapping[str, DeviceUse], gap_s: float) -> None:
        runner, policy, version = sampled
        last = self._idleness.get(runner.id)
        starts, samples = _observed(runner, uses)
        now = advance(last, starts, samples, policy=policy, now_s=self._env.monotonic(), gap_s=gap_s)
        self._idleness[runner.id] = now
        # Compared with the last report, not the last sample: the count restarts when an allocation was not watched.
        reported = runner.hooked.idle_report or IdleReport()
        is_known = now.reached == reported.idle_for
        if is_known and (not now.reached or reported.job_version == version):
            return
        runner.hooked.idle_report = IdleReport(idle_for=now.reached, text=now.text, job_version=version)
        runner.on_change()
        if is_known:
            # The same policy in a newer job version: servers ignore a report of one before a policy in between.
            return
        if now.reached:
            await self._notify(runner, warning(policy, now))
        else:
            text = "The devices are in use again, or their use is unknown: the allocation is not stopped"
            await self._notify(runner, text, last=True)

    async def _notify_decisions(self, runner: AllocRunner) -> None:
        """Notify the tasks of a decision of the servers: an end is announced, withdrawn or postponed."""
        before, now = self._states.get(runner.id), runner.alloc.idle
        self._states[runner.id] = now
        if now is None or now == before:
            return
        if now.kept_until > (before.kept_until if before is not None else 0):
            await self._notify(runner, f"Kept until {clock(now.kept_until)}: not stopped for idleness until then")
        elif now.ends_at and now.ends_at != (before.ends_at if before is not None else 0):
            await self._notify(runner, f"Ends at {clock(now.ends_at)}: {now.reason}")
        elif before is not None and before.ends_at and not now.ends_at and now.idle_for:
            await self._notify(runner, "The announced end is withdrawn", last=True)

    async def _notify(self, runner: AllocRunner, text: str, *, last: bool = False) -> None:
        """Write a notice to the tasks and the log; `last` removes the file `notice`, which no longer applies."""
        log.info("idle devices: alloc_id=%s job_id=%s notice=%r", runner.id, runner.alloc.job_id, text)
        runner.hooked.note(events.idle(text))
        try:
            await self._env.in_thread(write_notice, runner.hooked.folder, "" if last else text)
        except OSError as error:  # tasks may change their directory at will
            log.warning("the notice could not be written: alloc_id=%s error=%s", runner.id, error)


def interval_of(policy: IdlePolicy) -> float:
    """The seconds between samples."""
    shortest_s = min(times_of(policy)) / NANOSECONDS
    return min(INTERVAL_MAX_S, max(INTERVAL_MIN_S, shortest_s / SAMPLES_OF_TIME))


def _observed(
    runner: AllocRunner, uses: Mapping[str, DeviceUse]
) -> tuple[tuple[int, ...], dict[str, CardSample | None]]:
    """The start times of the running tasks with devices, and a sample of each of their devices."""
    starts: list[int] = []
    samples: dict[str, CardSample | None] = {}
    for name, state in runner.states.items():
        claim = claim_of(runner.alloc, name)
        if not claim.devices or state.state != TASK_RUNNING or state.paused:
            continue
        starts.append(state.started_at)
        for device in claim.ids:
            samples[device] = sample_of(uses[device]) if device in uses else None
    return tuple(starts), samples


def warning(policy: IdlePolicy, idleness: Idleness) -> str:
    """The notice when a time of the policy is reached."""
    text = f"Idle for {duration_text(idleness.reached)}: {idleness.text}"
    if policy.action == NOTIFY:
        return text
    left = policy.window - idleness.reached
    after = f"after {duration_text(Duration(left))} more" if left > 0 else "soon"
    condition = "" if policy.when == ALWAYS else ", if another job waits for the devices"
    return f"{text}. It ends {after} without use{condition} (action {policy.action}); `yurt alloc keep` puts that off"


def clock(at: int) -> str:
    """A time (ns since 1970) for display, in UTC."""
    return datetime.fromtimestamp(at / NANOSECONDS, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
