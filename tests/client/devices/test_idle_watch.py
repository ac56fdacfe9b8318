"""Reports on idle devices name the job version under whose policy they were measured."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from yurt.client.allocations.idle_watch import IdleWatch
from yurt.runtime.env import RealEnv
from yurt.sdk.device import GPU_UTILIZATION, DeviceUse, Stat
from yurt.sdk.value import Duration, UnixNano, replace, seconds
from yurt.structs.alloc import (
    AllocatedDeviceResource,
    AllocatedResources,
    AllocatedTaskResources,
    Allocation,
    TaskState,
)
from yurt.structs.commands import IdleReport
from yurt.structs.policies import IdlePolicy
from yurt.structs.resources import RequestedDevice, Resources
from yurt.testing import factories

POLICY = IdlePolicy(window=seconds(60), first=Duration(0), warn=())
QUIET = DeviceUse(
    at=UnixNano(1), summary=Stat(value=0, unit="MiB"), stats={GPU_UTILIZATION: Stat(value=0, unit="%", description="")}
)


class ClockEnv(RealEnv):
    """A clock that the test sets."""

    now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


def alloc_of(policy: IdlePolicy, version: int) -> Allocation:
    """An allocation with one card, by a job version with this policy."""
    device = RequestedDevice(name="nvidia/gpu", idle=policy)
    task = factories.task(resources=Resources(cpu=100, memory_mb=100, devices=(device,)))
    job = replace(factories.job(task_groups=(factories.group(tasks=(task,)),)), version=version)
    given = AllocatedDeviceResource(vendor="nvidia", type="gpu", name="H100", device_ids=("g0",))
    resources = AllocatedResources(tasks={task.name: AllocatedTaskResources(devices=(given,))})
    return replace(factories.alloc(job), allocated_resources=resources)


class Watched:
    """A watch of one allocation whose card does nothing, and its reports."""

    def __init__(self, folder: Path, alloc: Allocation) -> None:
        self.env = ClockEnv()
        (task,) = alloc.allocated_resources.tasks
        self.runner = SimpleNamespace(
            id=alloc.id,
            alloc=alloc,
            is_live=True,
            states={task: TaskState(state="running", started_at=UnixNano(1))},
            hooked=SimpleNamespace(idle_report=IdleReport(), folder=folder, note=lambda _: None),
            on_change=self._report,
        )
        self.reports: list[IdleReport] = []
        self.watch = IdleWatch(cast(Any, self), cast(Any, SimpleNamespace(live={alloc.id: self.runner})), self.env)
        self.update_during_sample: Allocation | None = None

    async def uses(self) -> dict[str, DeviceUse]:
        if self.update_during_sample is not None:
            self.runner.alloc = self.update_during_sample
        return {"g0": QUIET}

    def _report(self) -> None:
        self.reports.append(self.runner.hooked.idle_report)

    async def pass_time(self, duration_s: int) -> list[tuple[float, int | None]]:
        """Look every second; the reports meanwhile, as the idle seconds and the job version."""
        self.reports.clear()
        for _ in range(duration_s):
            self.env.now_s += 1
            await self.watch.look()
        return [(each.idle_for / seconds(1), each.job_version) for each in self.reports]


async def test_a_new_policy_restarts_the_count_and_its_reports_have_its_version(tmp_path: Path) -> None:
    watched = Watched(tmp_path, alloc_of(POLICY, 3))
    assert await watched.pass_time(65) == [(60, 3)]
    watched.runner.alloc = alloc_of(replace(POLICY, below=1), 4)
    assert await watched.pass_time(65) == [(0, 4), (60, 4)]


async def test_a_newer_version_with_the_same_policy_is_reported_with_what_was_measured(tmp_path: Path) -> None:
    """The servers may have had another policy in between, and know nothing of the idle time since."""
    watched = Watched(tmp_path, alloc_of(POLICY, 3))
    await watched.pass_time(65)
    watched.runner.alloc = alloc_of(POLICY, 5)
    assert await watched.pass_time(5) == [(60, 5)]


async def test_an_update_during_a_sample_does_not_give_it_the_new_version(tmp_path: Path) -> None:
    watched = Watched(tmp_path, alloc_of(POLICY, 3))
    await watched.pass_time(60)
    watched.update_during_sample = alloc_of(replace(POLICY, below=1), 4)
    assert (await watched.pass_time(1)) == [(60, 3)]
