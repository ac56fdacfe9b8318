"""Adapts a device binary of `plugin_dir` to Yurt's device plugin contract."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence

from yurt.goplugin.connection import CallSpec, Connection, PluginGone
from yurt.goplugin.convert import duration_fields, unix_nano
from yurt.goplugin.messages import DEVICE_SERVICE, Message
from yurt.goplugin.plugin import BinaryPlugin
from yurt.runtime.env import Env
from yurt.sdk.device import (
    WHOLE,
    AttributeValue,
    DeviceClaim,
    DeviceFingerprint,
    DeviceGroup,
    DeviceInstance,
    DeviceUse,
    Quantity,
    Reservation,
    Stat,
    device_of,
)
from yurt.sdk.driver import DeviceNode, Mount
from yurt.sdk.errors import DriverError, YurtError
from yurt.sdk.value import replace, seconds

STREAM_AGAIN_S = 5.0
STREAM_AGAIN_MAX_S = 300.0
"""The longest pause before a report is requested again; the pauses grow."""
STATS_INTERVAL_S = 1.0
STATS_LIMIT_S = 5.0
VANISHED = "the plugin does not show it any more"

FINGERPRINT = CallSpec(service=DEVICE_SERVICE, method="Fingerprint")
RESERVE = CallSpec(service=DEVICE_SERVICE, method="Reserve", limit_s=30.0)
STATS = CallSpec(service=DEVICE_SERVICE, method="Stats")


class BinaryDevice:
    """A device plugin of `plugin_dir`."""

    def __init__(self, plugin: BinaryPlugin, env: Env) -> None:
        self.name = plugin.facts.name
        self._plugin = plugin
        self._env = env
        self._groups: tuple[DeviceGroup, ...] = ()

    async def fingerprint(self) -> AsyncIterator[DeviceFingerprint]:
        """The devices that the plugin reports; unhealthy while its process is gone."""
        dead: Connection | None = None
        pause_s = STREAM_AGAIN_S
        while not self._plugin.closed.is_set():
            try:
                connection = await self._plugin.ready(limit_s=None, after=dead)
                dead, begun_s = None, self._env.monotonic()
                async for message in connection.stream(FINGERPRINT):
                    shown = tuple(group_of(group) for group in message.device_group)
                    self._groups = with_vanished(self._groups, shown)
                    yield self._found("the plugin shows no devices on this machine")
                reason = "the plugin ended its report"
                if self._env.monotonic() - begun_s > STREAM_AGAIN_MAX_S:
                    pause_s = STREAM_AGAIN_S
            except PluginGone as error:
                dead, reason = connection, str(error)
            except YurtError as error:
                reason = str(error)
            if self._plugin.closed.is_set():
                return
            self._groups = with_silence(self._groups, self._plugin.failure or reason)
            yield self._found(self._plugin.failure or reason)
            if dead is None:
                await self._env.sleep(pause_s)
                pause_s = min(2 * pause_s, STREAM_AGAIN_MAX_S)

    def _found(self, reason: str) -> DeviceFingerprint:
        if self._groups:
            return DeviceFingerprint(groups=self._groups)
        fix = f"see what the plugin {self._plugin.spec.name} needs, and the agent's log"
        return DeviceFingerprint(description=reason, fix=fix)

    async def reserve(self, claim: DeviceClaim) -> Reservation:
        """The environment, mounts and device nodes that the plugin returns for a task."""
        if any(devices.share != WHOLE for devices in claim.devices):
            raise DriverError(f"the device plugin {self.name} gives whole devices only, no shares")
        ids = [device_of(each) for each in claim.ids]
        answer = (await (await self._plugin.ready()).call(RESERVE, device_ids=ids)).container_res
        return Reservation(
            env=dict(answer.envs),
            nodes=tuple(
                DeviceNode(host_path=node.host_path, task_path=node.task_path, permissions=node.permissions or "rwm")
                for node in answer.devices
            ),
            mounts=tuple(
                Mount(host_path=mount.host_path, task_path=mount.task_path, is_read_only=mount.read_only)
                for mount in answer.mounts
            ),
        )

    async def update_claims(self, claims: Sequence[DeviceClaim]) -> None:
        """Does nothing: Nomad's protocol has no call for it."""

    async def stats(self) -> Mapping[str, DeviceUse]:
        """The plugin's next statistics; empty when none arrive in time."""
        connection = await self._plugin.ready()
        stream = connection.stream(STATS, collection_interval=duration_fields(seconds(STATS_INTERVAL_S)))
        with contextlib.suppress(TimeoutError):
            async with contextlib.aclosing(stream), asyncio.timeout(STATS_LIMIT_S):
                async for answer in stream:
                    return uses_of(answer)
        return {}

    async def close(self) -> None:
        """End the plugin; tasks go on with their devices."""
        await self._plugin.close(keeps_process=False)


def group_of(message: Message) -> DeviceGroup:
    """A device group from the plugin's message."""
    return DeviceGroup(
        vendor=message.vendor,
        type=message.device_type,
        name=message.device_name,
        instances=tuple(
            DeviceInstance(
                id=device.ID,
                is_healthy=device.healthy,
                reason=device.health_description,
                # Nomad's protocol has no severities: its "unhealthy" does not say that holders must leave.
                severity="" if device.healthy else "degraded",
                pci_bus_id=device.hw_locality.pci_bus_id,
            )
            for device in message.devices
        ),
        attributes={name: attribute_of(value) for name, value in sorted(message.attributes.items())},
    )


def attribute_of(message: Message) -> AttributeValue:
    """An attribute with its unit."""
    kind = message.WhichOneof("value") or "string_val"
    value: str | bool | int | float = getattr(message, kind)
    if message.unit and isinstance(value, int | float) and not isinstance(value, bool):
        return Quantity(value=value, unit=message.unit)
    return value


def with_vanished(before: tuple[DeviceGroup, ...], now: tuple[DeviceGroup, ...]) -> tuple[DeviceGroup, ...]:
    """The devices of a report, and as failed those of earlier reports that are missing now."""
    shown = {instance.id for group in now for instance in group.instances}
    found = {(group.vendor, group.type, group.name): group for group in now}
    for group in before:
        vanished = tuple(
            replace(each, is_healthy=False, severity="failed", reason=VANISHED)
            for each in group.instances
            if each.id not in shown
        )
        key = (group.vendor, group.type, group.name)
        if vanished:
            present = found.get(key, replace(group, instances=()))
            found[key] = replace(present, instances=(*present.instances, *vanished))
    return tuple(found[key] for key in sorted(found))


def with_silence(before: tuple[DeviceGroup, ...], reason: str) -> tuple[DeviceGroup, ...]:
    """The devices of a plugin that no longer reports: degraded, since their state is unknown. Tasks continue."""
    return tuple(
        replace(
            group,
            instances=tuple(
                replace(each, is_healthy=False, severity="degraded", reason=reason) for each in group.instances
            ),
        )
        for group in before
    )


def uses_of(answer: Message) -> dict[str, DeviceUse]:
    """Usage statistics by device instance."""
    found: dict[str, DeviceUse] = {}
    for group in answer.groups:
        for instance, figures in group.instance_stats.items():
            stats = {name: stat_of(value) for name, value in sorted(figures.stats.attributes.items())}
            at = unix_nano(figures.timestamp)
            found[instance] = DeviceUse(at=at, summary=stat_of(figures.summary), stats=stats)
    return found


def stat_of(message: Message) -> Stat:
    """One statistic."""
    names = ("int_numerator_val", "float_numerator_val", "string_val", "bool_val")
    name = next((each for each in names if message.HasField(each)), None)
    whole = next((each for each in ("int_denominator_val", "float_denominator_val") if message.HasField(each)), None)
    return Stat(
        value=getattr(message, name).value if name else 0,
        of=getattr(message, whole).value if whole else None,
        unit=message.unit,
        description=message.desc,
    )
