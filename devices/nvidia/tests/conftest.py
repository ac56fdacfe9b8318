"""A machine of fake GPUs for each test, below the real `pynvml`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from yurt.sdk.driver import AgentPaths, PluginContext
from yurt.testing.device_suite import DeviceBench
from yurt_device_nvidia import fake, plugin
from yurt_device_nvidia.nvml import Nvml

from .mig_bench import MakeBench, gpu

MakeNvml = Callable[..., Nvml]


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """The file of a machine; tests write it."""
    return tmp_path / "machine.json"


@pytest.fixture
def nvml(machine: Path) -> Iterator[MakeNvml]:
    """Opens NVML on a layout, changed as the test wants."""
    opened: list[Nvml] = []

    def open_on(name: str, clock: Callable[[], float] = time.monotonic, **changes: object) -> Nvml:
        fake.write(machine, {**fake.layout(name), **changes})
        found = Nvml(f"fake:{machine}", clock)
        opened.append(found)
        found.open()
        return found

    yield open_on
    for each in opened:
        each.close()
    fake.uninstall()


@pytest.fixture
async def make_bench(machine: Path, tmp_path: Path) -> AsyncIterator[MakeBench]:
    """Makes the plugin on a machine of this layout; it may split the first card."""
    made: list[tuple[DeviceBench, asyncio.Future[None]]] = []

    def make(layout: str = "h100x8", cards: int = 2, **changes: Any) -> DeviceBench:
        state = fake.layout(layout)
        state["gpus"] = state["gpus"][:cards]
        state["gpus"][0].update(changes)
        fake.write(machine, state)
        periods = {"health_period": "50ms", "fingerprint_period": "50ms"}
        config = {"library": f"fake:{machine}", "mig_gpu_ids": [gpu(0)], "sharing": ["slice"], **periods}
        paths = AgentPaths(state_dir=str(tmp_path), run_dir=str(tmp_path / "run"))
        bench = DeviceBench(plugin.yurt_device_plugins(PluginContext(dev=True, config=config, paths=paths))[0])
        made.append((bench, asyncio.ensure_future(bench.follow())))
        return bench

    yield make
    for bench, following in made:
        await bench.plugin.close()
        following.cancel()
        await asyncio.wait({following})
    fake.uninstall()
