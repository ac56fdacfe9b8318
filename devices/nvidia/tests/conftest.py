"""A machine of fake GPUs for each test, below the real `pynvml`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from yurt_device_nvidia import fake
from yurt_device_nvidia.nvml import Nvml

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
