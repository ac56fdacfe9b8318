"""Watches allocations whose jobs have a policy on idle devices: tells the servers, and the tasks.

Servers are told when a time of the policy is reached and when the devices are used again, and nothing in between.
Tasks are told by an event, and by the file `notice` in the directory of the allocation, which is removed when there is
nothing to say any more.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from yurt.client.allocations.alloc_runner import AllocRunner
from yurt.client.allocations.alloc_table import AllocTable
from yurt.client.devices.claims import claim_of
from yurt.client.devices.idleness import CardSample, Idleness, advance, sample_of, times_of
from yurt.client.devices.manager import DeviceManager
from yurt.client.files.alloc_dir import write_notice
from yurt.lifecycle import events
from yurt.lifecycle.durations import duration_text
from yurt.runtime.env import Env
from yurt.sdk.device import DeviceUse
from yurt.sdk.value import NANOSECONDS, Duration
from yurt.structs.alloc import IdleState
from yurt.structs.commands import IdleReport
from yurt.structs.policies import IdlePolicy
from yurt.structs.queueing.idle import ALWAYS, NOTIFY, idle_policy_of
from yurt.structs.status import TASK_RUNNING

INTERVAL_MAX_S: Final = 10.0
INTERVAL_MIN_S: Final = 0.25
SAMPLES_OF_TIME: Final = 6
"""How many samples the shortest time of a policy has at least."""
GAP: Final = 3
"""Intervals without a sample after which nothing is known of the time between."""
GAP_MIN_S: Final = 3.0

log = logging.getLogger(__name__)


class IdleWatch:
    """Samples the devices of the allocations whose policy asks for it."""

    def __init__(self, devices: DeviceManager, allocs: AllocTable, env: Env) -> None:
        self._devices = devices
        self._allocs = allocs
        self._env = env
        self._known: dict[str, Idleness] = {}
        self._states: dict[str, IdleState | None] = {}
        """What the servers said when an allocation was looked at last."""

    async def run(self) -> None:
        """Look until cancelled; a client without device plugins has nothing to do."""
        while self._devices.plugins:
            await self._env.sleep(await self.look())

    async def look(self) -> float:
        """Sample once; returns the seconds to the next look."""
        watched = {
            runner.id: (runner, policy)
            for runner in tuple(self._allocs.live.values())
            if runner.is_live and (policy := idle_policy_of(runner.alloc)) is not None
        }
        for alloc_id in self._known.keys() - watched.keys():
            await self._forget(alloc_id)
        for alloc_id in self._states.keys() - watched.keys():
            del self._states[alloc_id]
        if not watched:
            return INTERVAL_MAX_S / SAMPLES_OF_TIME
        interval_s = min(interval_of(policy) for _, policy in watched.values())
        gap_s = max(GAP_MIN_S, GAP * interval_s)
        uses = await self._uses(gap_s)
        for runner, policy in watched.values():
            if runner.is_live:
                await self._judge(runner, policy, uses, gap_s)
                await self._tell_news(runner)
        return interval_s

    async def _forget(self, alloc_id: str) -> None:
        """Nothing is measured of an allocation any more; what was reported of a live one does not stand."""
        del self._known[alloc_id]
        runner = self._allocs.live.get(alloc_id)
        told = runner.hooked.idle_report if runner is not None else None
        if runner is None or not runner.is_live or told is None or not told.idle_for:
            return
        runner.hooked.idle_report = IdleReport()
        runner.on_change()
        await self._tell(runner, "Its job has no policy on idle devices any more", last=True)

    async def _uses(self, limit_s: float) -> Mapping[str, DeviceUse]:
        """The present figures; none when a driver hangs, which shall not pass for idleness."""
        try:
            async with self._env.timeout(limit_s):
                return await self._devices.uses()
        except TimeoutError:
            return {}

    async def _judge(
        self, runner: AllocRunner, policy: IdlePolicy, uses: Mapping[str, DeviceUse], gap_s: float
    ) -> None:
        known = self._known.get(runner.id)
        starts, samples = _observed(runner, uses)
        now = advance(known, starts, samples, policy=policy, now_s=self._env.monotonic(), gap_s=gap_s)
        self._known[runner.id] = now
        # By what the servers know: the count of an allocation that was not watched for a while begins anew.
        told = runner.hooked.idle_report
        if now.reached == (told.idle_for if told is not None else Duration(0)):
            return
        runner.hooked.idle_report = IdleReport(idle_for=now.reached, text=now.text)
        runner.on_change()
        if now.reached:
            await self._tell(runner, warning(policy, now))
        else:
            await self._tell(
                runner, "The devices are in use again, or nothing is known of their use: nothing ends", last=True
            )

    async def _tell_news(self, runner: AllocRunner) -> None:
        """Tell what the servers have decided: that an end is announced, withdrawn or put off."""
        before, now = self._states.get(runner.id), runner.alloc.idle
        self._states[runner.id] = now
        if now is None or now == before:
            return
        if now.kept_until > (before.kept_until if before is not None else 0):
            await self._tell(runner, f"Kept until {clock(now.kept_until)}: until then it does not end for being idle")
        elif now.ends_at and now.ends_at != (before.ends_at if before is not None else 0):
            await self._tell(runner, f"Ends at {clock(now.ends_at)}: {now.reason}")
        elif before is not None and before.ends_at and not now.ends_at and now.idle_for:
            await self._tell(runner, "The announced end is withdrawn", last=True)

    async def _tell(self, runner: AllocRunner, text: str, *, last: bool = False) -> None:
        """Tell the tasks and the log; with `last` there is nothing to say afterwards."""
        log.info("idle devices: alloc_id=%s job_id=%s notice=%r", runner.id, runner.alloc.job_id, text)
        runner.note(events.idle(text))
        try:
            await self._env.in_thread(write_notice, runner.hooked.folder, "" if last else text)
        except OSError as error:  # what tasks have made of the directory is theirs
            log.warning("the notice could not be written: alloc_id=%s error=%s", runner.id, error)


def interval_of(policy: IdlePolicy) -> float:
    """The seconds between samples."""
    shortest_s = min(times_of(policy)) / NANOSECONDS
    return min(INTERVAL_MAX_S, max(INTERVAL_MIN_S, shortest_s / SAMPLES_OF_TIME))


def _observed(
    runner: AllocRunner, uses: Mapping[str, DeviceUse]
) -> tuple[tuple[int, ...], dict[str, CardSample | None]]:
    """When the running tasks with devices started, and a sample of each of their devices."""
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
    """The notice at a time that was reached."""
    text = f"Idle for {duration_text(idleness.reached)}: {idleness.text}"
    if policy.action == NOTIFY:
        return text
    left = policy.window - idleness.reached
    after = f"after {duration_text(Duration(left))} more" if left > 0 else "soon"
    condition = "" if policy.when == ALWAYS else ", if another job waits for the devices"
    return f"{text}. It ends {after} without use{condition} (action {policy.action}); `yurt alloc keep` puts that off"


def clock(at: int) -> str:
    """A time as a reader knows it."""
    return datetime.fromtimestamp(at / NANOSECONDS, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
