"""Keeps the health of this node's devices: feeds the life cycle (`lifecycle.device_health`) and makes self-tests.

Records outlive the agent. A device that an earlier agent had out is out at once when the plugin offers it again, and
returns as if the agent had not been away. Tests begin when no task has the device, one at a time for each device.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from yurt.client.devices.wire import GroupKey, device_key, key_of, unhealthy_reason
from yurt.client.timed_waits import wait_or_sleep
from yurt.lifecycle.device_health import (
    DeviceEvent,
    DeviceHealthSettings,
    DeviceRecord,
    Enabled,
    Reported,
    Suspected,
    Tested,
    TimePassed,
    is_at_rest,
    restored,
    step,
)
from yurt.runtime.env import Env
from yurt.runtime.supervise import supervised
from yurt.sdk.device import DeviceGroup, DevicePlugin, SelfTest, SelfTestingPlugin
from yurt.sdk.errors import YurtError
from yurt.sdk.value import Value, replace
from yurt.structs.node import PLACEABLE_STATES, DeviceHealth, DeviceMark, DeviceState

LOOK_S: Final = 1.0
"""The interval at which devices that are not healthy are looked at."""
RECORDS_MAX: Final = 1024
"""Stored records; those of devices that changed last are kept."""
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


class HealthStore(Protocol):
    """Keeps records over the agent's end."""

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

    def report(self, change: HealthChange) -> None:
        """Tell the servers and the device's holders."""
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
        self._tests: dict[str, int] = {}
        """The number of self-tests that have begun, by device."""
        self._wake = asyncio.Event()

    async def load(self) -> None:
        """Read the records of the last agent."""
        if self._plugins:
            self._stored = await self._store.device_health()
            self._records = {key: restored(record) for key, record in self._stored.items()}

    def of(self, key: str) -> DeviceHealth:
        """A device's present health."""
        record = self._records.get(key)
        return record.health if record is not None else DeviceHealth()

    def effective(self, group: DeviceGroup) -> DeviceGroup:
        """A group whose instances are healthy where something may be placed on them."""
        key = key_of(group)
        reasons = [(each, unhealthy_reason(self.of(device_key(key, each.id)))) for each in group.instances]
        instances = (replace(each, is_healthy=not reason, reason=reason or each.reason) for each, reason in reasons)
        return replace(group, instances=tuple(instances))

    # Events.

    def report(self, plugin: str, groups: Iterable[DeviceGroup]) -> None:
        """Take what a plugin reports of its devices."""
        for group in groups:
            for each in group.instances:
                key = device_key(key_of(group), each.id)
                self._offered[key] = _Device(group=key_of(group), id=each.id, plugin=plugin)
                self._step(key, Reported(severity=each.reported, reason=each.reason))

    def take_marks(self, marks: Mapping[str, DeviceMark]) -> None:
        """Take the marks of the servers; those that are known change nothing."""
        is_changed = False
        for key, mark in marks.items():
            if key not in self._offered:
                continue
            if mark.kind == "suspected":
                is_changed |= self._step(key, Suspected(index=mark.index, reason=mark.reason))
            elif mark.kind == "enabled":
                is_changed |= self._step(key, Enabled(index=mark.index))
        if is_changed:
            self._on_change()

    def _step(self, key: str, event: DeviceEvent) -> bool:
        """Whether what the node publishes of the device has changed."""
        before = self._records.get(key, DeviceRecord())
        after = step(before, event, now=self._env.now(), settings=self._settings)
        self._records[key] = after
        if after != before:
            self._wake.set()
        if after.health == before.health:
            return False
        # A step may pass through a state at once: each change of the history is told.
        known = before.health.history[-1:]
        new = after.health.history[_position(after.health, known[0]) :] if known else after.health.history
        device = self._offered[key]
        for each in new:
            change = HealthChange(group=device.group, id=device.id, state=each.state, reason=each.reason)
            log.log(
                logging.INFO if each.state in PLACEABLE_STATES else logging.WARNING,
                "device health changed: %s",
                change.text,
            )
            self._watch.report(change)
        return True

    # Time and tests.

    async def run(self, group: asyncio.TaskGroup) -> None:
        """Look after devices that are not healthy, and store changes, until cancelled."""
        while self._plugins:
            self._wake.clear()
            self._look(group)
            await asyncio.wait({supervised(group, "storing the health of devices", self._save())})
            if all(is_at_rest(self._records[key]) for key in self._offered):
                await self._wake.wait()
            else:
                await wait_or_sleep(self._env, self._wake, LOOK_S)

    def _look(self, group: asyncio.TaskGroup) -> None:
        is_changed = False
        for key, device in tuple(self._offered.items()):
            if is_at_rest(before := self._records[key]):
                continue
            is_changed |= self._step(key, TimePassed(is_free=self._watch.is_free(device.group, device.id)))
            if self._records[key].is_testing and not before.is_testing:
                self._begin_test(key, device, group)
        if is_changed:
            self._on_change()

    def _begin_test(self, key: str, device: _Device, group: asyncio.TaskGroup) -> None:
        number = self._tests[key] = self._tests.get(key, 0) + 1

        def broke(error: Exception) -> None:
            self._end_test(key, number, SelfTest(problem=f"{type(error).__name__}: {error}"))

        test = supervised(group, f"self-test of {key}", self._test(key, number, device), on_error=broke)
        supervised(group, f"time limit of the self-test of {key}", self._limit(key, number, test))

    async def _test(self, key: str, number: int, device: _Device) -> None:
        try:
            result = await self._answer(device)
        except YurtError as error:
            result = SelfTest(problem=str(error))
        self._end_test(key, number, result)

    async def _limit(self, key: str, number: int, test: asyncio.Task[None]) -> None:
        """End a test at its time limit."""
        limit_s, ended = self._settings.self_test_s, asyncio.Event()
        test.add_done_callback(lambda _: ended.set())
        if not await wait_or_sleep(self._env, ended, limit_s):
            test.cancel()
            self._end_test(key, number, SelfTest(problem=f"it did not end within {limit_s:g} s"))

    def _end_test(self, key: str, number: int, result: SelfTest) -> None:
        """Take the result of the newest test; a fault that was reported meanwhile has ended an older one."""
        tested = Tested(problem=result.problem, detail=result.detail)
        if self._tests[key] == number and self._step(key, tested):
            self._on_change()

    async def _answer(self, device: _Device) -> SelfTest:
        plugin = self._plugins[device.plugin]
        if not isinstance(plugin, SelfTestingPlugin):
            return SelfTest(detail=NO_TEST)
        return await plugin.self_test(device.id)

    async def _save(self) -> None:
        changed = {key: record for key, record in self._records.items() if record.health != DeviceHealth()}
        if len(changed) > RECORDS_MAX:
            newest = sorted(changed, key=lambda key: changed[key].health.since)[-RECORDS_MAX:]
            changed = {key: changed[key] for key in newest}
        if changed != self._stored:
            await self._store.put_device_health(changed)
            self._stored = changed


def _position(health: DeviceHealth, change: object) -> int:
    """Behind a change in a history; the start where the history has lost it."""
    return next((at + 1 for at in reversed(range(len(health.history))) if health.history[at] == change), 0)
