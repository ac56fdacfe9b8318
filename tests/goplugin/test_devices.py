"""A device plugin in a binary: what it shows, reserves and counts."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from yurt.goplugin.device import BinaryDevice, with_silence, with_vanished
from yurt.goplugin.host import BinarySettings, load_binaries
from yurt.runtime.env import RealEnv
from yurt.sdk.device import (
    MPS,
    ClaimedDevices,
    DeviceClaim,
    DeviceFingerprint,
    DeviceGroup,
    DeviceInstance,
    DevicePlugin,
    Quantity,
    Stat,
)
from yurt.sdk.driver import DeviceNode, Mount
from yurt.sdk.errors import DriverError

LIMIT_S = 60.0
GROUPS = (DeviceGroup(vendor="v", type="t", name="n", instances=(DeviceInstance(id="x"),)),)
PROGRAM = Path(__file__).with_name("device_plugin.py")


@pytest.fixture
async def device(make_script: Callable[[str, str], str], tmp_path: Path) -> AsyncIterator[BinaryDevice]:
    body = f'#!/bin/sh\nexec {sys.executable} {PROGRAM} "$PLUGIN_UNIX_SOCKET_DIR/device.sock" "{tmp_path}/second"\n'
    make_script("acme", body)
    settings = BinarySettings(
        plugin_dir=str(tmp_path / "plugins"), state_dir=str(tmp_path / "state"), configs={"acme": {"ignored": ["x"]}}
    )
    [loaded] = await load_binaries(settings, RealEnv())
    assert loaded.device is not None, loaded.failure
    yield loaded.device
    await loaded.device.close()


def claim(*ids: str, share: str = "") -> DeviceClaim:
    held = ClaimedDevices(vendor="acme", type="gpu", name="Z1", ids=ids, share=share)
    return DeviceClaim(alloc_id="a", task_name="web", devices=(held,))


async def test_its_devices_are_shown_and_one_that_vanishes_is_unhealthy(device: BinaryDevice, tmp_path: Path) -> None:
    assert isinstance(device, DevicePlugin)
    answers = device.fingerprint()

    async def following() -> DeviceFingerprint:
        return await asyncio.wait_for(anext(answers), LIMIT_S)

    first = (await following()).groups[0]
    assert (first.vendor, first.type, first.name) == ("acme", "gpu", "Z1")
    assert first.attributes == {"memory": Quantity(value=80, unit="GiB"), "fast": True}
    assert first.instances == (DeviceInstance(id="one", pci_bus_id="0000:01:00.0"),)
    (tmp_path / "second").touch()
    assert [each.id for each in (await following()).groups[0].instances] == ["one", "two"]
    (tmp_path / "second").unlink()
    gone = (await following()).groups[0].instances[1]
    assert (gone.id, gone.is_healthy) == ("two", False)
    assert gone.reason


async def test_a_reservation_is_what_the_plugin_says(device: BinaryDevice) -> None:
    given = await device.reserve(claim("one", "two"))
    assert given.env == {"ACME_VISIBLE": "one,two"}
    assert given.nodes == (DeviceNode(host_path="/dev/null", task_path="/dev/acme0", permissions="rw"),)
    assert given.mounts == (Mount(host_path="/opt/acme", task_path="/opt/acme", is_read_only=True),)


async def test_shares_are_refused(device: BinaryDevice) -> None:
    with pytest.raises(DriverError, match="no shares"):
        await device.reserve(claim("one", share=MPS))


async def test_figures_come_by_instance(device: BinaryDevice) -> None:
    use = (await device.stats())["one"]
    assert use.at == 7_000_000_000
    assert use.summary == Stat(value=3, of=80, unit="GiB")
    assert use.stats == {"power": Stat(value=12.5)}


def test_a_device_that_a_report_no_longer_shows_has_failed() -> None:
    [found] = with_vanished(GROUPS, ())
    assert found.instances[0].reported == "failed"
    assert with_vanished(GROUPS, GROUPS) == GROUPS


def test_the_devices_of_a_plugin_that_is_gone_are_degraded_so_that_their_holders_stay() -> None:
    [found] = with_silence(GROUPS, "the plugin has ended")
    assert [(each.reported, each.reason) for each in found.instances] == [("degraded", "the plugin has ended")]


def test_unhealthy_in_nomads_protocol_is_degraded() -> None:
    assert DeviceInstance(id="x", is_healthy=False).reported == "degraded"
