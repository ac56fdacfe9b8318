"""Conformance suite for device plugins: subclass `DeviceSuite` and provide a plugin and its cases.

    class TestMine(DeviceSuite):
        @pytest.fixture
        def make_plugin(self) -> DeviceFactory:
            return lambda context: yurt_device_plugins(context)[0]

        @pytest.fixture
        def cases(self) -> DeviceCases:
            return DeviceCases(breaks=..., mends=...)

A case that is left out is skipped, and the skip says what was not tested. The plugin needs at least one healthy device
here: where the hardware is missing, let it find a fake.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from yurt.sdk.device import (
    ClaimedDevices,
    DeviceClaim,
    DeviceFingerprint,
    DeviceGroup,
    DeviceInstance,
    DevicePlugin,
)
from yurt.sdk.driver import AgentPaths, PluginContext
from yurt.sdk.errors import YurtError
from yurt.sdk.value import UnixNano

WAIT_S = 60.0
NAME = re.compile(r"[^/\s](?:[^/]*[^/\s])?")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RIGHTS = frozenset("rwm")

DeviceFactory = Callable[[PluginContext], DevicePlugin]


@dataclass(frozen=True, kw_only=True)
class DeviceCases:
    """Callbacks with which the tests put the plugin's devices into a state.

    `breaks` and `mends` get the id of a device; `config` is the plugin's configuration block.
    """

    config: Mapping[str, Any] = field(default_factory=dict)
    breaks: Callable[[str], None] | None = None
    mends: Callable[[str], None] | None = None
    has_stats: bool = True


class DeviceBench:
    """A plugin whose fingerprints are collected."""

    def __init__(self, plugin: DevicePlugin) -> None:
        self.plugin = plugin
        self.found: list[DeviceFingerprint] = []
        self._changed = asyncio.Condition()

    async def follow(self) -> None:
        """Collect every fingerprint of the plugin."""
        async for found in self.plugin.fingerprint():
            async with self._changed:
                self.found.append(found)
                self._changed.notify_all()

    async def wait_for(self, holds: Callable[[DeviceFingerprint], bool]) -> DeviceFingerprint:
        """Wait until the latest fingerprint satisfies the condition, and return it."""
        async with asyncio.timeout(WAIT_S), self._changed:
            await self._changed.wait_for(lambda: bool(self.found) and holds(self.found[-1]))
            return self.found[-1]

    async def first(self) -> DeviceFingerprint:
        """The first fingerprint with devices."""
        return await self.wait_for(lambda found: True)

    async def device(self) -> tuple[DeviceGroup, DeviceInstance]:
        """A healthy device."""
        found = await self.first()
        healthy = [(group, each) for group in found.groups for each in group.instances if each.is_healthy]
        assert healthy, f"the suite needs a healthy device; the plugin says: {found.description or found.groups}"
        return healthy[0]


def claim(group: DeviceGroup, *ids: str) -> DeviceClaim:
    """A claim of a task for whole devices."""
    devices = ClaimedDevices(vendor=group.vendor, type=group.type, name=group.name, ids=ids)
    return DeviceClaim(alloc_id="11111111-2222-4333-8444-555555555555", task_name="task", devices=(devices,))


def instance(found: DeviceFingerprint, device: str) -> DeviceInstance | None:
    """The device with this id in a fingerprint."""
    return next((each for group in found.groups for each in group.instances if each.id == device), None)


class DeviceSuite:
    """The tests of the contract."""

    @pytest.fixture
    def make_plugin(self) -> DeviceFactory:
        """Makes the plugin for a context."""
        pytest.fail("a DeviceSuite needs a fixture `make_plugin`")

    @pytest.fixture
    def cases(self) -> DeviceCases:
        """How to put the plugin's devices into a state; a subclass overrides this."""
        return DeviceCases()

    @pytest.fixture
    async def bench(self, make_plugin: DeviceFactory, cases: DeviceCases, tmp_path: Path) -> AsyncIterator[DeviceBench]:
        """A plugin that is followed as a client follows it, and closed afterwards."""
        clock = asyncio.get_running_loop().time
        context = PluginContext(
            dev=True,
            config=cases.config,
            paths=AgentPaths(state_dir=str(tmp_path), run_dir=str(tmp_path)),
            now=lambda: UnixNano(round(clock() * 1_000_000_000)),
        )
        bench = DeviceBench(make_plugin(context))
        following = asyncio.ensure_future(bench.follow())
        try:
            yield bench
        finally:
            await bench.plugin.close()
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await following

    async def test_it_is_a_device_plugin(self, bench: DeviceBench) -> None:
        assert isinstance(bench.plugin, DevicePlugin)

    async def test_the_first_fingerprint_comes_soon_and_has_whole_names(self, bench: DeviceBench) -> None:
        found = await bench.first()

        for group in found.groups:
            parts = (group.vendor, group.type, group.name)
            assert all(NAME.fullmatch(each) for each in parts), f"{parts}: a name is not empty and has no slash"
            assert group.instances, f"{parts}: a group without instances is not offered"

    async def test_every_device_has_an_id_of_its_own(self, bench: DeviceBench) -> None:
        found = await bench.first()
        ids = [each.id for group in found.groups for each in group.instances]

        assert all(ids)
        assert not [each for each in ids if "::" in each], ":: parts the id of a device from that of a booking"
        assert len(ids) == len(set(ids))

    async def test_a_group_is_told_once(self, bench: DeviceBench) -> None:
        found = await bench.first()
        names = [(group.vendor, group.type, group.name) for group in found.groups]

        assert len(names) == len(set(names))

    async def test_an_unhealthy_device_has_a_reason(self, bench: DeviceBench) -> None:
        found = await bench.first()
        ill = [each for group in found.groups for each in group.instances if not each.is_healthy]

        assert all(each.reason for each in ill)

    async def test_a_reservation_names_what_it_needs_in_full(self, bench: DeviceBench) -> None:
        group, device = await bench.device()
        found = await bench.plugin.reserve(claim(group, device.id))

        assert all(VARIABLE.fullmatch(name) for name in found.env)
        for node in found.nodes:
            assert node.host_path.startswith("/"), node
            assert node.task_path == "" or node.task_path.startswith("/"), node
            assert node.permissions and set(node.permissions) <= RIGHTS, node
        assert all(each.host_path.startswith("/") and each.task_path.startswith("/") for each in found.mounts)
        assert all(re.fullmatch(r"[^/=\s]+/[^/=\s]+=\S+", each) for each in found.cdi_devices)
        assert found.env or found.nodes or found.cdi_devices or found.engine_devices, "the task would learn nothing"

    async def test_a_reservation_is_answered_alike_each_time(self, bench: DeviceBench) -> None:
        group, device = await bench.device()
        claimed = claim(group, device.id)

        assert await bench.plugin.reserve(claimed) == await bench.plugin.reserve(claimed)

    async def test_an_unknown_device_is_refused_with_its_id(self, bench: DeviceBench) -> None:
        group, _ = await bench.device()

        with pytest.raises(YurtError, match="no-such-device"):
            await bench.plugin.reserve(claim(group, "no-such-device"))

    async def test_holders_may_come_and_go_in_any_order(self, bench: DeviceBench) -> None:
        group, device = await bench.device()
        claimed = claim(group, device.id)
        for claims in ((), (claimed,), (claimed,), ()):
            await bench.plugin.update_claims(claims)

        assert await bench.plugin.reserve(claimed)

    async def test_figures_are_of_devices_that_are_there(self, bench: DeviceBench, cases: DeviceCases) -> None:
        found = await bench.first()
        uses = await bench.plugin.stats()

        assert uses.keys() <= {each.id for group in found.groups for each in group.instances}
        if cases.has_stats:
            _, device = await bench.device()
            assert uses[device.id].at > 0
            assert uses[device.id].summary is not None

    async def test_a_device_that_breaks_is_unhealthy_alone_and_recovers(
        self, bench: DeviceBench, cases: DeviceCases
    ) -> None:
        if cases.breaks is None or cases.mends is None:
            pytest.skip("no way is given to break a device and to mend it")
        _, device = await bench.device()
        others = [e for g in (await bench.first()).groups for e in g.instances if e.id != device.id and e.is_healthy]
        cases.breaks(device.id)
        found = await bench.wait_for(lambda found: not is_healthy(found, device.id))

        broken = instance(found, device.id)
        assert broken is not None, "a device that was seen once stays, as unhealthy"
        assert broken.reason
        assert all(is_healthy(found, each.id) for each in others)
        cases.mends(device.id)
        assert await bench.wait_for(lambda found: is_healthy(found, device.id))

    async def test_it_can_be_closed_twice(self, bench: DeviceBench) -> None:
        await bench.first()
        await bench.plugin.close()
        await bench.plugin.close()

        assert bench.found


def is_healthy(found: DeviceFingerprint, device: str) -> bool:
    """Whether a fingerprint contains the device and reports it as healthy."""
    seen = instance(found, device)
    return seen is not None and seen.is_healthy
