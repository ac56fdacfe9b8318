"""The plugin on a machine whose first card it may split, and what tests ask of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from yurt.sdk.device import MIG, ClaimedDevices, DeviceClaim, DeviceFingerprint, DeviceInstance, Reservation
from yurt.sdk.driver import AgentPaths, PluginContext
from yurt.sdk.mig import MIG_PROFILES
from yurt.testing.device_suite import DeviceBench
from yurt_device_nvidia import plugin

RECORD = "nvidia-mig.json"
MakeBench = Callable[..., DeviceBench]
SMALL, HALF, ALL = (9856, 14), (40448, 42), (81008, 100)


@asynccontextmanager
async def restarted(machine: Path, cards: list[str]) -> AsyncIterator[tuple[DeviceBench, DeviceFingerprint]]:
    """The plugin of an agent that starts again with these `mig_gpu_ids`, and its first answer."""
    config = {"library": f"fake:{machine}", "mig_gpu_ids": cards, "fingerprint_period": "50ms", "health_period": "50ms"}
    paths = AgentPaths(state_dir=str(machine.parent), run_dir=str(machine.parent / "run"))
    bench = DeviceBench(plugin.yurt_device_plugins(PluginContext(config=config, paths=paths))[0])
    following = asyncio.ensure_future(bench.follow())
    try:
        yield bench, await bench.first()
    finally:
        await bench.plugin.close()
        following.cancel()
        await asyncio.wait({following})


async def left_behind(
    make_bench: MakeBench, machine: Path, *claims: DeviceClaim, is_record_lost: bool = False
) -> list[Reservation]:
    """What tasks got of an agent that has ended since."""
    bench = make_bench()
    await ready(bench)
    given = [await bench.plugin.reserve(each) for each in claims]
    await bench.plugin.close()
    if is_record_lost:
        (machine.parent / RECORD).unlink()
    return given


def gpu(number: int) -> str:
    return f"GPU-00000001-{number:04x}-4a5b-8c6d-{number:012x}"


def claim(task: str, amounts: tuple[int, int], *starts: int, share: str = MIG) -> DeviceClaim:
    """A claim on instances of the first card, or on the card without places."""
    devices = ClaimedDevices(
        vendor="nvidia", type="gpu", name="H100", ids=(gpu(0),) * max(1, len(starts)), share=share,
        memory_mb=amounts[0], compute=amounts[1], numbers=tuple(map(str, starts)),
    )  # fmt: skip
    return DeviceClaim(alloc_id="a", task_name=task, devices=(devices,))


def card(machine: Path) -> dict[str, Any]:
    """The first card as its file has it."""
    found: dict[str, Any] = json.loads(machine.read_text())["gpus"][0]
    return found


def instances(machine: Path) -> list[tuple[int, int]]:
    """First slice and size of each instance that exists."""
    return sorted((each["start"], each["size"]) for each in card(machine).get("gis", ()))


def offered(found: DeviceFingerprint, device: str) -> DeviceInstance:
    return next(each for group in found.groups for each in group.instances if each.id == device)


def has_severity(found: DeviceFingerprint, device: str, severity: str) -> bool:
    """Whether a device is offered with this severity; before the first report its instances may be offered instead."""
    all_of = (each for group in found.groups for each in group.instances)
    return any(each.id == device and each.severity == severity for each in all_of)


async def ready(bench: DeviceBench, *claims: DeviceClaim) -> DeviceFingerprint:
    """Report claims, and wait until the plugin offers the first card's profiles."""
    await bench.first()
    await bench.plugin.update_claims(claims)
    return await bench.wait_for(lambda found: MIG_PROFILES in offered(found, gpu(0)).attributes)
