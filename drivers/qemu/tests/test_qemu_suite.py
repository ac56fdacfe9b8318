"""qemu does what every driver does, with real emulators and disks of one sector."""

from __future__ import annotations

import shutil
from pathlib import Path

import boot_sector
import pytest
from yurt.sdk.value import replace
from yurt.testing.driver_suite import Config, DriverCases, DriverFactory, DriverSuite
from yurt_driver_qemu.plugin import yurt_task_drivers

EMULATOR = shutil.which("qemu-system-x86_64")
pytestmark = pytest.mark.skipif(EMULATOR is None, reason="QEMU is not installed (apt install qemu-system-x86)")

HALVING = """#!/bin/sh
qemu-system-x86_64 "$@"
exit $(( ($? - 1) / 2 ))
"""
"""The debug exit device makes odd exit codes only, 2n+1 for n; and QEMU itself ends a stop by signal as a success."""
STUBBORN = """#!/bin/sh
trap '' TERM INT
qemu-system-x86_64 "$@" &
while true; do wait; done
"""


def script(path: Path, text: str) -> str:
    """A program."""
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


class TestQemu(DriverSuite):
    @pytest.fixture
    def halving(self, tmp_path: Path) -> str:
        """An emulator that ends with the code that the guest wrote."""
        return script(tmp_path / "halving", HALVING)

    @pytest.fixture
    def stubborn(self, tmp_path: Path) -> str:
        """An emulator that no signal reaches."""
        return script(tmp_path / "stubborn", STUBBORN)

    @pytest.fixture
    def make_driver(self, tmp_path: Path, halving: str, stubborn: str) -> DriverFactory:
        config = {
            "image_paths": [str(tmp_path / "images")],
            "args_allowlist": ["-device", "-nodefaults"],
            "emulators_allowlist": ["qemu-system-x86_64", halving, stubborn],
        }
        return lambda context: yurt_task_drivers(replace(context, config=config))[0]

    @pytest.fixture
    def cases(self, tmp_path: Path, halving: str, stubborn: str) -> DriverCases:
        images = tmp_path / "images"
        images.mkdir()

        def disk(name: str, code: bytes, **options: object) -> Config:
            path = images / name
            path.write_bytes(boot_sector.sector(code))
            return {"image_path": str(path), "args": list(boot_sector.EXIT_DEVICE), **options}

        return DriverCases(
            ends=lambda code: disk(f"ends-{code}", boot_sector.ends(code), emulator=halving),
            runs=disk("waits", boot_sector.waits(), emulator=halving),
            ignores_signals=disk("waits", boot_sector.waits(), emulator=stubborn),
            prints=lambda text: disk("prints", boot_sector.prints(text.encode())),
            floods=lambda size: disk("floods", boot_sector.prints(b"x" * 49 + b"\n", times=size // 50)),
            cannot_start={"image_path": str(images / "missing")},
            start_error="No such file or directory",
            many=10,
        )
