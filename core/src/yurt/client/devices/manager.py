"""What the device plugins of this client offer, and what a task needs to see the devices that it was given.

The manager follows every plugin apart: one that fails leaves its devices as they were, unhealthy, and is asked again.
Which instances a task gets is the servers' choice; here it is only checked that they are still there and well. An
unhealthy device is given to no further start: the task fails with the reason, and its group's policy moves it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

from yurt.client.devices.wire import GroupKey, group_name, group_stats, key_of, node_group
from yurt.client.node.local_node import LocalNode
from yurt.client.waiting import wait_or_sleep
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
from yurt.sdk.value import Value, replace
from yurt.structs.node import Node
from yurt.structs.rpc import DeviceGroupStats

FIRST_FINGERPRINT_S = 10.0
"""How long a start waits for plugins that have not answered yet: a GPU's driver may take seconds to wake."""
ANSWER_LIMIT_S = 30.0
RETRY_S = 30.0
STATS_AGE_MAX_S = 1.0
ATTRIBUTE = "device."
ONLINE_NODES = Path("/sys/devices/system/node/online")

log = logging.getLogger(__name__)
T = TypeVar("T")


class HealthChange(Value):
    """An instance has become unhealthy, or well again."""

    group: GroupKey
    id: str
    is_healthy: bool
    reason: str = ""

    @property
    def text(self) -> str:
        """The change as an operator reads it."""
        state = "is healthy again" if self.is_healthy else f"is unhealthy: {self.reason}"
        return f"Device {group_name(self.group)}/{self.id} {state}"


class _Uses(NamedTuple):
    """The last figures, and when they were taken (monotonic seconds)."""

    at_s: float
    by_id: Mapping[str, DeviceUse]


class DeviceManager:
    """The devices of one client; `on_health` hears of every change of the health of one."""

    def __init__(
        self,
        plugins: Mapping[str, DevicePlugin],
        env: Env,
        *,
        node: LocalNode,
        group: asyncio.TaskGroup,
        on_health: Callable[[tuple[HealthChange, ...]], None],
    ) -> None:
        self.plugins = plugins
        self.reservations = 0
        """How often a task has been given devices."""
        self._env = env
        self._node = node
        self._group = group
        self._on_health = on_health
        self._found: dict[str, DeviceFingerprint] = {}
        self._owners: dict[GroupKey, str] = {}
        self._first = {name: asyncio.Event() for name in plugins}
        self._uses: dict[str, _Uses] = {}
        self._measuring = asyncio.Lock()
        self._has_begun = False

    # What is there.

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
        async for found in self.plugins[name].fingerprint():
            self._take(name, found)

    def _broke(self, name: str, error: Exception) -> None:
        """The plugin failed: what it offered is given to nobody, and it is asked again later."""
        reason = f"the device plugin {name} failed: {type(error).__name__}: {error}"
        known = self._found.get(name, DeviceFingerprint())
        groups = tuple(
            replace(group, instances=tuple(replace(each, is_healthy=False, reason=reason) for each in group.instances))
            for group in known.groups
        )
        self._take(name, replace(known, groups=groups, description=reason, fix="its traceback is in the agent's log"))
        self._begin_following(name, RETRY_S)

    def _take(self, name: str, found: DeviceFingerprint) -> None:
        before = self._health(name)
        if not found.groups and found.description != self._found.get(name, DeviceFingerprint()).description:
            log.warning("device plugin %s offers nothing: %s", name, summary(found)[1])
        self._found[name] = replace(found, groups=tuple(self._own(name, found.groups)))
        self._first[name].set()
        changes = tuple(
            HealthChange(group=group, id=device, is_healthy=not reason, reason=reason)
            for (group, device), reason in self._health(name).items()
            if (group, device) in before and before[group, device] != reason
        )
        for change in changes:
            log.log(logging.INFO if change.is_healthy else logging.WARNING, "%s", change.text)
        self._node.change(self.applied)
        self._on_health(changes)

    def _own(self, name: str, groups: Iterable[DeviceGroup]) -> Iterable[DeviceGroup]:
        """The groups that no other plugin offers: two plugins would give one device twice."""
        for group in groups:
            owner = self._owners.setdefault(key_of(group), name)
            if owner == name:
                yield group
            else:
                text = "plugin %s offers devices %s, which plugin %s has; remove one of the two"
                log.warning(text, name, group_name(key_of(group)), owner)

    def _health(self, name: str) -> dict[tuple[GroupKey, str], str]:
        """Why each instance is unhealthy; an empty text when it is not."""
        known = self._found.get(name, DeviceFingerprint())
        return {
            (key_of(group), each.id): "" if each.is_healthy else each.reason or "no reason given"
            for group in known.groups
            for each in group.instances
        }

    async def wait_first(self) -> None:
        """Give every plugin a moment, so that the node's first registration is whole."""
        limit = self._env.monotonic() + FIRST_FINGERPRINT_S
        for name, first in self._first.items():
            if not await wait_or_sleep(self._env, first, limit - self._env.monotonic()):
                log.warning("device plugin %s has not said yet what it offers", name)

    @property
    def groups(self) -> tuple[DeviceGroup, ...]:
        """All groups, in a fixed order."""
        return tuple(sorted((group for found in self._found.values() for group in found.groups), key=key_of))

    def applied(self, node: Node) -> Node:
        """The node with its devices, and with what the plugins say of themselves."""
        attributes = {name: value for name, value in node.attributes.items() if not name.startswith(ATTRIBUTE)}
        for name, found in self._found.items():
            attributes |= plugin_attributes(name, found)
        devices = tuple(node_group(group) for group in self.groups)
        return replace(node, attributes=attributes, node_resources=replace(node.node_resources, devices=devices))

    def lines(self) -> dict[str, tuple[bool, str]]:
        """For each plugin whether it offers something, and what, or why not."""
        return {name: summary(found) for name, found in sorted(self._found.items())}

    # What a task gets.

    async def reserve(self, claim: DeviceClaim) -> Reservation:
        """What the task needs to see its devices; raises DriverError, or RecoverableError when a retry may help."""
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
        """The plugin of some devices, which are there and healthy."""
        key = key_of(devices)
        owner = self._owners.get(key, "")
        health = self._health(owner)
        for device in devices.ids:
            reason = health.get((key, device))
            if reason is None:
                raise DriverError(
                    f"device {group_name(key)}/{device} is not on this node any more; the servers place the task anew "
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

    async def tell_held(self, claims: Iterable[DeviceClaim]) -> None:
        """Tell every plugin which claims there are on its devices, and on those that nobody offers just now."""
        wanted = tuple(claims)
        for name, plugin in self.plugins.items():
            mine = (replace(claim, devices=tuple(self._of(name, claim.devices))) for claim in wanted)
            await self._answer(name, plugin.held(tuple(claim for claim in mine if claim.devices)))

    def _of(self, name: str, claimed: Iterable[ClaimedDevices]) -> Iterator[ClaimedDevices]:
        yield from (each for each in claimed if self._owners.get(key_of(each), name) == name)

    def memory_nodes(self, claim: DeviceClaim) -> tuple[int, ...]:
        """The NUMA nodes of this machine that a task's devices are near to; none when one of them does not tell."""
        places = {
            (key_of(group), each.id): each.attributes.get("numa_node")
            for group in self.groups
            for each in group.instances
        }
        found = {places.get((key_of(devices), each)) for devices in claim.devices for each in devices.ids}
        nodes = sorted(node for node in found if isinstance(node, int))
        return tuple(nodes) if len(nodes) == len(found) and set(nodes) <= online_nodes() else ()

    # How much of it is used.

    async def uses(self) -> Mapping[str, DeviceUse]:
        """Use by instance, at most a second old; a plugin that cannot tell is left out."""
        async with self._measuring:
            for name, plugin in self.plugins.items():
                last = self._uses.get(name)
                if self._has_begun and (last is None or self._env.monotonic() - last.at_s >= STATS_AGE_MAX_S):
                    self._uses[name] = _Uses(self._env.monotonic(), {})
                    await asyncio.wait({supervised(self._group, f"figures of {name}", self._measure(name, plugin))})
        return self.last_uses

    @property
    def last_uses(self) -> Mapping[str, DeviceUse]:
        """What `uses` answered last."""
        return {device: use for uses in self._uses.values() for device, use in uses.by_id.items()}

    async def _measure(self, name: str, plugin: DevicePlugin) -> None:
        try:
            self._uses[name] = _Uses(self._env.monotonic(), await self._answer(name, plugin.stats()))
        except YurtError as error:
            log.debug("device plugin %s gives no figures: %s", name, error)

    async def stats(self) -> tuple[DeviceGroupStats, ...]:
        """Use of all devices in the shape of the API."""
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
    """What the node's attributes say of a plugin."""
    prefix = f"{ATTRIBUTE}{name}"
    works, text = summary(found)
    given = {f"{prefix}.{key}": value for key, value in found.attributes.items()}
    return given | ({prefix: "1"} if works else {f"{prefix}.reason": text})


def summary(found: DeviceFingerprint) -> tuple[bool, str]:
    """Whether a plugin offers something; what, or why not."""
    counts = [(group, sum(each.is_healthy for each in group.instances)) for group in found.groups]
    if not counts:
        text = found.description or "it found no device"
        return False, f"{text}; {found.fix}" if found.fix else text
    words = []
    for group, healthy in counts:
        ill = len(group.instances) - healthy
        words.append(f"{len(group.instances)} x {group.name}" + (f" ({ill} unhealthy)" if ill else ""))
    return True, ", ".join(words) + (f"; {found.description}" if found.description else "")


def merged(parts: list[Reservation]) -> Reservation:
    """Reservations of several plugins as one: a way to the devices stays when all that have any offer it."""
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
    )
