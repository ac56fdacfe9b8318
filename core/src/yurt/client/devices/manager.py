"""Follows the device plugins of this client and reserves devices for tasks.

Each plugin is followed by a task of its own: when it fails, its devices become degraded, and it is followed again after
a pause. The scheduler chooses the instances of a task; the manager only checks that they still exist and are healthy. A
task whose device is unhealthy fails with the reason, and the policy of its group moves it to another node.
`health_keeper` derives each device's state from the plugins' reports.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from yurt.client.devices.health_keeper import DeviceHealthKeeper
from yurt.client.devices.wire import (
    GroupKey,
    device_key,
    group_name,
    group_stats,
    key_of,
    node_group,
)
from yurt.client.node.local_node import LocalNode
from yurt.client.timed_waits import wait_or_sleep
from yurt.runtime.env import Env
from yurt.runtime.supervise import supervised
from yurt.sdk.device import (
    ClaimedDevices,
    DeviceClaim,
    DeviceFingerprint,
    DeviceGroup,
    DevicePlugin,
    DeviceUse,
    Reservation,
)
from yurt.sdk.errors import DriverError, RecoverableError, YurtError
from yurt.sdk.value import replace
from yurt.structs.node import Node, unhealthy_reason
from yurt.structs.rpc import DeviceGroupStats

FIRST_FINGERPRINT_S = 10.0
"""The longest wait of a client's start for the plugins' first answers: a GPU driver may take seconds to initialize."""
ANSWER_LIMIT_S = 30.0
RETRY_S = 30.0
RETRY_MAX_S = 600.0
"""The pause before a failed plugin is followed again doubles from `RETRY_S` to this."""
STATS_AGE_MAX_S = 1.0
STATS_WAIT_S = 5.0
ATTRIBUTE = "device."
ONLINE_NODES = Path("/sys/devices/system/node/online")

log = logging.getLogger(__name__)
T = TypeVar("T")


class _Uses(msgspec.Struct, frozen=True):
    """The last usage figures of a plugin and their time in monotonic seconds."""

    at_s: float
    by_id: Mapping[str, DeviceUse]


class DeviceManager:
    """The devices of one client; `on_plugin` is called with a plugin and the problem to fix, when that changes."""

    def __init__(
        self,
        plugins: Mapping[str, DevicePlugin],
        env: Env,
        *,
        node: LocalNode,
        group: asyncio.TaskGroup,
        health: DeviceHealthKeeper,
        on_plugin: Callable[[str, str], None],
    ) -> None:
        self.plugins = plugins
        self.health = health
        self.reservations = 0
        """The number of reservations so far."""
        self._env = env
        self._node = node
        self._group = group
        self._on_plugin = on_plugin
        self._found: dict[str, DeviceFingerprint] = {}
        self._owners: dict[GroupKey, str] = {}
        self._followed: dict[str, tuple[float, float]] = {}
        """For each plugin the time of its last start in monotonic seconds, and the pause in seconds before it."""
        self._first = {name: asyncio.Event() for name in plugins}
        self._uses: dict[str, _Uses] = {}
        self._measurements: dict[str, asyncio.Task[None]] = {}
        self._measuring = asyncio.Lock()
        self._has_begun = False

    # Fingerprints.

    def begin(self) -> None:
        """Follow every plugin until the group is cancelled."""
        self._has_begun = True
        for name in self.plugins:
            self._begin_following(name)

    def _begin_following(self, name: str, delay_s: float = 0.0) -> None:
        following = self._follow(name, delay_s)
        supervised(self._group, f"devices of {name}", following, on_error=lambda error: self._broke(name, error))

    async def _follow(self, name: str, delay_s: float) -> None:
        await self._env.sleep(delay_s)
        self._followed[name] = (self._env.monotonic(), delay_s)
        async for found in self.plugins[name].fingerprint():
            self._take(name, found)

    def _broke(self, name: str, error: Exception) -> None:
        """Mark the devices of a failed plugin degraded, and follow it again after a pause."""
        reason = f"the device plugin {name} failed: {type(error).__name__}: {error}"
        last = self._found.get(name, DeviceFingerprint())
        groups = tuple(
            replace(
                group,
                instances=tuple(
                    replace(each, is_healthy=False, severity="degraded", reason=reason) for each in group.instances
                ),
            )
            for group in last.groups
        )
        self._take(name, replace(last, groups=groups, description=reason, fix="its traceback is in the agent's log"))
        begun_s, pause_s = self._followed.get(name, (0.0, 0.0))
        has_lasted = self._env.monotonic() - begun_s > RETRY_MAX_S
        self._begin_following(name, RETRY_S if has_lasted else min(max(RETRY_S, 2 * pause_s), RETRY_MAX_S))

    def _take(self, name: str, found: DeviceFingerprint) -> None:
        is_first, last = name not in self._found, self._found.get(name, DeviceFingerprint())
        if not found.groups and found.description != last.description:
            log.warning("device plugin offers no devices: plugin=%s reason=%s", name, summary(found)[1])
        self._found[name] = owned = replace(found, groups=tuple(self._own(name, found.groups)))
        self._first[name].set()
        self.health.report(name, owned.groups)
        if is_first or self.health.is_publishable:
            self._node.change(self.applied)
        if found.fix and (found.description, found.fix) != (last.description, last.fix):
            self._on_plugin(name, f"{found.description}; {found.fix}")

    def _own(self, name: str, groups: Iterable[DeviceGroup]) -> Iterable[DeviceGroup]:
        """The groups that no other plugin offers: two plugins could assign one device twice."""
        for group in groups:
            owner = self._owners.setdefault(key_of(group), name)
            if owner == name:
                yield group
            else:
                text = "plugin %s offers devices %s, which plugin %s has; remove one of the two"
                log.warning(text, name, group_name(key_of(group)), owner)

    def _health(self, name: str) -> dict[tuple[GroupKey, str], str]:
        """The reason why each device of a plugin is unhealthy; "" for a healthy device."""
        found = self._found.get(name, DeviceFingerprint())
        return {
            (key, each.id): unhealthy_reason(self.health.of(device_key(key, each.id)))
            for group in found.groups
            for key in (key_of(group),)
            for each in group.instances
        }

    async def wait_first(self) -> None:
        """Wait, within a bound, for the first answer of every plugin, so that the first registration is complete."""
        limit = self._env.monotonic() + FIRST_FINGERPRINT_S
        for name, first in self._first.items():
            if not await wait_or_sleep(self._env, first, limit - self._env.monotonic()):
                log.warning("device plugin has not answered yet: plugin=%s", name)

    @property
    def groups(self) -> tuple[DeviceGroup, ...]:
        """All device groups, sorted; instances are healthy where they may be used."""
        groups = (self.health.effective(group) for found in self._found.values() for group in found.groups)
        return tuple(sorted(groups, key=key_of))

    def applied(self, node: Node) -> Node:
        """The node with its devices and the attributes of device plugins."""
        attributes = {name: value for name, value in node.attributes.items() if not name.startswith(ATTRIBUTE)}
        for name, found in self._found.items():
            attributes |= plugin_attributes(name, self._effective(found))
        devices = tuple(node_group(group, self.health.published) for group in self.groups)
        return replace(node, attributes=attributes, node_resources=replace(node.node_resources, devices=devices))

    def lines(self) -> dict[str, tuple[bool, str]]:
        """For each plugin, whether it offers devices, and a summary of them or the reason why not."""
        return {name: summary(self._effective(found)) for name, found in sorted(self._found.items())}

    def _effective(self, found: DeviceFingerprint) -> DeviceFingerprint:
        return replace(found, groups=tuple(self.health.effective(group) for group in found.groups))

    # Reservations.

    async def reserve(self, claim: DeviceClaim) -> Reservation:
        """Reserve the devices of a claim; raises DriverError, or RecoverableError when a retry may help."""
        self.reservations += 1
        for name, first in self._first.items():
            if not await wait_or_sleep(self._env, first, FIRST_FINGERPRINT_S):
                raise RecoverableError(f"device plugin {name} has not said yet what it offers")
        by_plugin: dict[str, list[ClaimedDevices]] = {}
        for devices in claim.devices:
            by_plugin.setdefault(self._checked(devices), []).append(devices)
        parts = [
            await self._answer(name, self.plugins[name].reserve(replace(claim, devices=tuple(devices))))
            for name, devices in by_plugin.items()
        ]
        return merged(parts)

    def _checked(self, devices: ClaimedDevices) -> str:
        """The plugin of devices; raises DriverError when one is missing or unhealthy."""
        key = key_of(devices)
        owner = self._owners.get(key, "")
        health = self._health(owner)
        for device in devices.ids:
            reason = health.get((key, device))
            if reason is None:
                raise DriverError(
                    f"device {group_name(key)}/{device} is no longer on this node; the servers place the task again "
                    "when the job allows it (reschedule), or plan the job again"
                )
            if reason:
                raise DriverError(f"device {group_name(key)}/{device} is unhealthy: {reason}")
        return owner

    async def _answer(self, name: str, answer: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(ANSWER_LIMIT_S):
                return await answer
        except TimeoutError:
            raise RecoverableError(f"device plugin {name} did not answer within {ANSWER_LIMIT_S:g} s") from None

    async def report_claims(self, claims: Callable[[], Iterable[DeviceClaim]]) -> None:
        """Report to every plugin the claims on its devices and on devices that no plugin offers now.

        Each plugin is told on its own, so that one that fails or hangs withholds nothing from the others; then the
        first failure is raised. `claims` is asked in the same turn of the event loop as the plugin: a reservation that
        began before is in the report, unless its task has ended.
        """
        failures = list[Exception]()
        reports = [
            supervised(self._group, f"claims of {name}", self._report(name, claims, failures), on_error=failures.append)
            for name in self.plugins
        ]
        if reports:
            await asyncio.wait(reports)
        if failures:
            raise DriverError(str(failures[0]))

    async def _report(self, name: str, claims: Callable[[], Iterable[DeviceClaim]], failures: list[Exception]) -> None:
        mine = (
            replace(
                claim, devices=tuple(each for each in claim.devices if self._owners.get(key_of(each), name) == name)
            )
            for claim in claims()
        )
        reported = tuple(claim for claim in mine if claim.devices)
        try:
            await self._answer(name, self.plugins[name].update_claims(reported))
        except YurtError as error:
            failures.append(error)

    def memory_nodes(self, claim: DeviceClaim) -> tuple[int, ...]:
        """The NUMA nodes of a task's devices; empty when one of them is unknown."""
        places = {
            (key_of(group), each.id): each.attributes.get("numa_node")
            for group in self.groups
            for each in group.instances
        }
        found = {places.get((key_of(devices), each)) for devices in claim.devices for each in devices.ids}
        nodes = sorted(node for node in found if isinstance(node, int))
        return tuple(nodes) if len(nodes) == len(found) and set(nodes) <= online_nodes() else ()

    # Usage.

    async def uses(self) -> Mapping[str, DeviceUse]:
        """Usage by device id, at most 1 s old; plugins without usage figures are omitted.

        All plugins are asked at once. A plugin that hangs delays the callers once, by `STATS_WAIT_S`; its figures are
        missing until it answers.
        """
        async with self._measuring:
            begun = [self._begin_measuring(name) for name in self.plugins if self._has_begun and self._is_due(name)]
            if begun:
                await asyncio.wait(begun, timeout=STATS_WAIT_S)
        return self.last_uses

    def _is_due(self, name: str) -> bool:
        """Whether to ask a plugin: its figures are old, and no earlier request to it is unanswered."""
        running, last = self._measurements.get(name), self._uses.get(name)
        if running is not None and not running.done():
            return False
        return last is None or self._env.monotonic() - last.at_s >= STATS_AGE_MAX_S

    def _begin_measuring(self, name: str) -> asyncio.Task[None]:
        self._uses[name] = _Uses(self._env.monotonic(), {})
        measuring = supervised(self._group, f"figures of {name}", self._measure(name, self.plugins[name]))
        self._measurements[name] = measuring
        return measuring

    @property
    def last_uses(self) -> Mapping[str, DeviceUse]:
        """The last usage figures of all plugins by device id, of any age."""
        return {device: use for uses in self._uses.values() for device, use in uses.by_id.items()}

    async def _measure(self, name: str, plugin: DevicePlugin) -> None:
        try:
            self._uses[name] = _Uses(self._env.monotonic(), await self._answer(name, plugin.stats()))
        except YurtError as error:
            log.debug("device plugin gives no usage figures: plugin=%s error=%s", name, error)

    async def stats(self) -> tuple[DeviceGroupStats, ...]:
        """Usage of all devices in the form of the API."""
        if not self.plugins:
            return ()
        uses = await self.uses()
        found = (group_stats(group, uses) for group in self.groups)
        return tuple(each for each in found if each is not None)


def online_nodes(file: Path = ONLINE_NODES) -> frozenset[int]:
    """The NUMA nodes of this machine."""
    try:
        parts = [part.split("-") for part in file.read_text().strip().split(",") if part]
        return frozenset(node for part in parts for node in range(int(part[0]), int(part[-1]) + 1))
    except (OSError, ValueError):
        return frozenset()


def plugin_attributes(name: str, found: DeviceFingerprint) -> dict[str, str]:
    """The node attributes of a device plugin."""
    prefix = f"{ATTRIBUTE}{name}"
    works, text = summary(found)
    given = {f"{prefix}.{key}": value for key, value in found.attributes.items()}
    return given | ({prefix: "1"} if works else {f"{prefix}.reason": text})


def summary(found: DeviceFingerprint) -> tuple[bool, str]:
    """Whether a plugin offers devices, and a summary of them or the reason why not."""
    counts = [(group, sum(each.is_healthy for each in group.instances)) for group in found.groups]
    if not counts:
        text = found.description or "it found no device"
        return False, f"{text}; {found.fix}" if found.fix else text
    words = []
    for group, healthy in counts:
        unhealthy = len(group.instances) - healthy
        words.append(f"{len(group.instances)} x {group.name}" + (f" ({unhealthy} unhealthy)" if unhealthy else ""))
    return True, ", ".join(words) + (f"; {found.description}" if found.description else "")


def merged(parts: list[Reservation]) -> Reservation:
    """Merge reservations of several plugins; a way of access remains only when every plugin with devices offers it."""
    by_engine = [part for part in parts if part.cdi_devices or part.engine_devices or part.nodes]

    def common(of: Callable[[Reservation], tuple[T, ...]]) -> tuple[T, ...]:
        found = [of(part) for part in by_engine]
        return tuple(each for part in found for each in part) if all(found) else ()

    return Reservation(
        env={name: value for part in parts for name, value in part.env.items()},
        mounts=tuple(each for part in parts for each in part.mounts),
        nodes=common(lambda part: part.nodes),
        cdi_devices=common(lambda part: part.cdi_devices),
        engine_devices=common(lambda part: part.engine_devices),
        notes=tuple(each for part in parts for each in part.notes),
    )
