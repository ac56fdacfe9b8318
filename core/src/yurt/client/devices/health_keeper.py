"""Keeps the health of this node's devices: feeds the life cycle (`lifecycle.device_health`) and makes self-tests.

Records survive a restart of the agent: a device that was out of use is out of use again as soon as its plugin offers
it, and returns as if the agent had not restarted. A self-test begins when no task holds the device; at most one runs
for each device.

Changes are stored before they are published: the servers delete a mark once it is acknowledged and move jobs away from
a failed device, and the next agent must know of both. A store that fails or hangs delays no change for more than
`SAVE_LIMIT_S`. On this node changes hold at once: no task gets a device that its plugin has just reported as failed.
The first report of a plugin is published at once, so that the node registers with its devices.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from yurt.client.devices.wire import GroupKey, device_key, group_name, key_of
from yurt.client.timed_waits import wait_or_sleep
from yurt.lifecycle.device_health import (
    DeviceEvent,
    DeviceHealthSettings,
    DeviceRecord,
    Enabled,
    NotTested,
    Reported,
    Suspected,
    Tested,
    TimePassed,
    is_at_rest,
    restored,
    step,
)
from yurt.runtime.env import Env
from yurt.runtime.supervise import contained, outcome_of, supervised
from yurt.sdk.device import DeviceGroup, DevicePlugin, SelfTest, SelfTestingPlugin
from yurt.sdk.errors import RecoverableError, YurtError
from yurt.sdk.value import Value, replace
from yurt.structs.node import PLACEABLE_STATES, DeviceHealth, DeviceMark, DeviceState, unhealthy_reason

LOOK_S: Final = 1.0
"""The interval at which unhealthy devices are examined."""
RECORDS_MAX: Final = 1024
"""The largest number of stored records; the devices that changed last are kept."""
SAVE_AGAIN_S: Final = 2.0
SAVE_AGAIN_MAX_S: Final = 60.0
"""The pause after a failed save doubles from `SAVE_AGAIN_S` to this."""
SAVE_LIMIT_S: Final = 10.0
NO_TEST: Final = "its plugin has no self-test"
WORDS: Final[Mapping[DeviceState, str]] = {
    "healthy": "is healthy again",
    "suspect": "is suspect",
    "degraded": "is degraded",
    "failed": "has failed",
    "probation": "is on probation",
}

log = logging.getLogger(__name__)


class HealthChange(Value):
    """A device's new state or reason."""

    group: GroupKey
    id: str
    state: DeviceState
    reason: str = ""

    @property
    def text(self) -> str:
        """The change as an operator reads it."""
        return f"Device {device_key(self.group, self.id)} {WORDS[self.state]}" + (self.reason and f": {self.reason}")

    def text_of(self, count: int) -> str:
        """The same change of several devices of the group."""
        return f"{count} devices of {group_name(self.group)}: {self.state}" + (self.reason and f": {self.reason}")


class HealthStore(Protocol):
    """Stores device health across restarts of the agent."""

    async def device_health(self) -> Mapping[str, DeviceRecord]:
        """The records by device."""
        ...

    async def put_device_health(self, records: Mapping[str, DeviceRecord]) -> None:
        """Store the records."""
        ...


class HolderWatch(Protocol):
    """Knows the tasks that hold devices."""

    def is_free(self, group: GroupKey, device: str) -> bool:
        """Whether no task has a device or a share of it."""
        ...

    def report(self, changes: Sequence[HealthChange]) -> None:
        """Tell the servers and the devices' holders of changes that came at once."""
        ...


class _Device(Value):
    group: GroupKey
    id: str
    plugin: str


class DeviceHealthKeeper:
    """The records of this node's devices; `on_change` is called when one that the node publishes has changed."""

    def __init__(
        self,
        settings: DeviceHealthSettings,
        env: Env,
        *,
        plugins: Mapping[str, DevicePlugin],
        store: HealthStore,
        watch: HolderWatch,
        on_change: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._env = env
        self._plugins = plugins
        self._store = store
        self._watch = watch
        self._on_change = on_change
        self._records: dict[str, DeviceRecord] = {}
        self._offered: dict[str, _Device] = {}
        self._stored: Mapping[str, DeviceRecord] = {}
        self._tests: dict[str, asyncio.Task[None]] = {}
        """The self-tests that have not returned, by device."""
        self._changes: list[HealthChange] = []
        self._published: dict[str, DeviceHealth] = {}
        """What the node may show of devices: the health at the last save."""
        self._save_again_s = 0.0
        """The pause before the next save in seconds; 0 when the last save succeeded."""
        self._save_at_s = 0.0
        self._wake = asyncio.Event()

    async def load(self) -> None:
        """Read the records of the agent's last run."""
        if self._plugins:
            self._stored = await self._store.device_health()
            self._records = {key: restored(record) for key, record in self._stored.items()}

    def of(self, key: str) -> DeviceHealth:
        """The current health of a device."""
        record = self._records.get(key)
        return record.health if record is not None else DeviceHealth()

    def published(self, key: str) -> DeviceHealth:
        """A device's health as the node shows it; of one that was never saved the present one."""
        return self._published.get(key) or self.of(key)

    @property
    def is_publishable(self) -> bool:
        """Whether everything that has changed is stored."""
        unknown = DeviceHealth()
        return all(self.of(key) == self._published.get(key, unknown) for key in self._offered)

    def effective(self, group: DeviceGroup) -> DeviceGroup:
        """The group with each instance's health by its record: healthy where work may be placed on it."""
        key = key_of(group)
        reasons = [(each, unhealthy_reason(self.of(device_key(key, each.id)))) for each in group.instances]
        instances = (replace(each, is_healthy=not reason, reason=reason or each.reason) for each, reason in reasons)
        return replace(group, instances=tuple(instances))

    # Events.

    def report(self, plugin: str, groups: Iterable[DeviceGroup]) -> None:
        """Take a plugin's report; devices that it no longer offers keep their records, and their self-tests end."""
        reported = {
            device_key(key_of(group), each.id): (_Device(group=key_of(group), id=each.id, plugin=plugin), each)
            for group in groups
            for each in group.instances
        }
        for key in [key for key, device in self._offered.items() if device.plugin == plugin and key not in reported]:
            del self._offered[key]
            self._records[key] = restored(self._records[key])
            self._cancel_test(key)
        for key, (device, each) in reported.items():
            self._offered[key] = device
            self._step(key, Reported(severity=each.reported, reason=each.reason))
        self._report_changes()

    def take_marks(self, marks: Mapping[str, DeviceMark]) -> None:
        """Take the servers' marks; one that was taken before changes nothing."""
        for key, mark in marks.items():
            if key not in self._offered:
                continue
            if mark.kind == "suspected":
                self._step(key, Suspected(mark=mark.key, reason=mark.reason))
            elif mark.kind == "enabled":
                self._step(key, Enabled(mark=mark.key))
        self._report_changes()

    def _step(self, key: str, event: DeviceEvent) -> None:
        before = self._records.get(key, DeviceRecord())
        after = step(before, event, now=self._env.now(), settings=self._settings)
        self._records[key] = after
        if after != before:
            self._wake.set()
        if before.is_testing and not after.is_testing:
            self._cancel_test(key)
        if after.health == before.health:
            return
        # One step may pass through several states: report every new entry of the history, not only the last.
        last = before.health.history[-1:]
        new = after.health.history[_position(after.health, last[0]) :] if last else after.health.history
        device = self._offered[key]
        for each in new:
            change = HealthChange(group=device.group, id=device.id, state=each.state, reason=each.reason)
            log.log(
                logging.INFO if each.state in PLACEABLE_STATES else logging.WARNING,
                "device health changed: %s",
                change.text,
            )
            self._changes.append(change)

    def _report_changes(self) -> None:
        changes, self._changes = self._changes, []
        if changes:
            self._watch.report(changes)

    # Time and tests.

    async def run(self, group: asyncio.TaskGroup) -> None:
        """Examine unhealthy devices and store changes, until cancelled."""
        while self._plugins:
            self._wake.clear()
            self._look(group)
            health = {key: record.health for key, record in self._records.items()}
            await self._save()
            if health != self._published:
                self._published = health
                self._on_change()
            if self._save_again_s or not all(is_at_rest(self._records[key]) for key in self._offered):
                await wait_or_sleep(self._env, self._wake, LOOK_S)
            else:
                await self._wake.wait()

    def _look(self, group: asyncio.TaskGroup) -> None:
        for key, device in tuple(self._offered.items()):
            if is_at_rest(before := self._records[key]):
                continue
            is_free = key not in self._tests and self._watch.is_free(device.group, device.id)
            self._step(key, TimePassed(is_free=is_free))
            if self._records[key].is_testing and not before.is_testing:
                self._begin_test(key, device, group)
        self._report_changes()

    def _begin_test(self, key: str, device: _Device, group: asyncio.TaskGroup) -> None:
        def broke(error: Exception) -> None:
            self._end_test(key, Tested(problem=f"{type(error).__name__}: {error}"))

        ended = asyncio.Event()

        def forget(test: asyncio.Task[None]) -> None:
            del self._tests[key]
            ended.set()
            self._wake.set()

        test = self._tests[key] = supervised(group, f"self-test of {key}", self._test(key, device), on_error=broke)
        test.add_done_callback(forget)
        supervised(group, f"time limit of the self-test of {key}", self._limit(key, test, ended))

    async def _test(self, key: str, device: _Device) -> None:
        try:
            result = await contained(self._answer(device))
        except RecoverableError as error:
            return self._end_test(key, NotTested(reason=str(error)))
        except YurtError as error:
            return self._end_test(key, Tested(problem=str(error)))
        self._end_test(key, Tested(problem=result.problem, detail=result.detail))

    async def _limit(self, key: str, test: asyncio.Task[None], ended: asyncio.Event) -> None:
        """End a test at its time limit: the record fails even where the plugin's call never returns."""
        limit_s = self._settings.self_test_s
        if not await wait_or_sleep(self._env, ended, limit_s) and self._tests.get(key) is test:
            self._end_test(key, Tested(problem=f"it did not end within {limit_s:g} s"))

    def _end_test(self, key: str, result: Tested | NotTested) -> None:
        """Take a result; one that comes after the test was ended changes nothing."""
        if key in self._offered:
            self._step(key, result)
            self._report_changes()

    def _cancel_test(self, key: str) -> None:
        """Cancel the test of a device, unless that test is the caller."""
        test = self._tests.get(key)
        if test is not None and test is not asyncio.current_task():
            test.cancel()

    async def _answer(self, device: _Device) -> SelfTest:
        plugin = self._plugins[device.plugin]
        if not isinstance(plugin, SelfTestingPlugin):
            return SelfTest(detail=NO_TEST)
        return await plugin.self_test(device.id)

    async def _save(self) -> None:
        """Store changed records; a failure is logged once, and the next attempts wait for a growing pause."""
        changed = {key: record for key, record in self._records.items() if record.health != DeviceHealth()}
        if len(changed) > RECORDS_MAX:
            newest = sorted(changed, key=lambda key: changed[key].health.since)[-RECORDS_MAX:]
            changed = {key: changed[key] for key in newest}
        if changed == self._stored or (self._save_again_s and self._env.monotonic() < self._save_at_s):
            return
        stored = await outcome_of(self._put(changed))
        if not isinstance(stored, Exception):
            self._stored, self._save_again_s = changed, 0.0
            return
        if not self._save_again_s:
            log.error("storing the health of devices failed and is tried again: error=%s", stored)
        self._save_again_s = min(max(SAVE_AGAIN_S, 2 * self._save_again_s), SAVE_AGAIN_MAX_S)
        self._save_at_s = self._env.monotonic() + self._save_again_s

    async def _put(self, records: Mapping[str, DeviceRecord]) -> None:
        async with self._env.timeout(SAVE_LIMIT_S):
            await self._store.put_device_health(records)


def _position(health: DeviceHealth, change: object) -> int:
    """The position after `change` in a history; 0 where the history no longer has it."""
    return next((at + 1 for at in reversed(range(len(health.history))) if health.history[at] == change), 0)
