"""A disk image is swapped for a link to the host, between the driver's look at it and the emulator's."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import boot_sector
import pytest
import pytest_asyncio
from test_qemu_machine import Machines, machines, write_disk
from yurt.sdk import mounting
from yurt.sdk.errors import DriverError, RecoverableError
from yurt.sdk.value import replace, seconds
from yurt.testing.faults.link_swaps import exchange
from yurt.testing.rights import may_mount
from yurt_driver_qemu.driver import QemuDriver
from yurt_driver_qemu.images import ImageSite, look_at

pytestmark = [
    pytest.mark.skipif(
        shutil.which("qemu-system-x86_64") is None, reason="QEMU is not installed (apt install qemu-system-x86)"
    ),
    pytest.mark.skipif(not may_mount(), reason="mounting takes root with CAP_SYS_ADMIN on Linux"),
]
LIMIT_S = 60.0
SCRIPT = "#!/bin/sh\nexec sleep 1000\n"


@pytest_asyncio.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Machines]:
    slow = tmp_path / "slow"
    slow.write_text(SCRIPT)
    slow.chmod(0o755)
    made = machines(tmp_path, {"emulators_allowlist": ["qemu-system-x86_64", str(slow)]})
    yield made
    await made.close()
    assert not mounting.points_below(driver_of(made)._places.folder)


def driver_of(bench: Machines) -> QemuDriver:
    assert isinstance(bench.driver, QemuDriver)
    return bench.driver


def laid_trap(bench: Machines) -> tuple[Path, Path]:
    """A disk of the allocation, and next to it a link to one of the host; each boots a machine that names its owner."""
    data, host = bench.folder / "alloc" / "alloc" / "data", bench.folder / "host"
    for folder, owner in ((data, b"ours"), (host, b"host")):
        folder.mkdir(parents=True)
        code = boot_sector.prints(owner, then=boot_sector.waits())
        (folder / "disk").write_bytes(boot_sector.sector(code).ljust(1 << 16, b"\0"))
    (data / "link").symlink_to(host / "disk")
    return data / "disk", data / "link"


def laid_over(disk: Path) -> str:
    """A qcow2 image over a raw disk in the same folder; its path from the task's directory."""
    command = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", disk.name, str(disk.parent / "top")]
    subprocess.run(command, check=True, timeout=LIMIT_S)
    return "../alloc/data/top"


def runs_before_start(bench: Machines, act: Callable[[], None]) -> None:
    """Let something happen after the driver's look at the disks and before the emulator's."""
    executor: Any = driver_of(bench)._processes._executor
    start = executor.start

    async def started(spec: Any) -> Any:
        act()
        return await start(spec)

    executor.start = started


def ours(bench: Machines) -> tuple[str, ...]:
    """The mounts for the machines of this driver."""
    return mounting.points_below(driver_of(bench)._places.folder)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, with a bound."""
    async with asyncio.timeout(LIMIT_S):
        while not condition():  # noqa: ASYNC110 - what happens is outside this process
            await asyncio.sleep(0.01)


async def test_what_was_checked_is_the_disk_though_its_name_leads_elsewhere_when_the_emulator_looks(
    bench: Machines,
) -> None:
    disk, link = laid_trap(bench)
    opened: list[str] = []

    def swap() -> None:
        exchange(disk, link)
        opened.extend(ours(bench))

    runs_before_start(bench, swap)
    await bench.start({"image_path": "../alloc/data/disk"})

    assert len(opened) == 1
    await bench.wait_printed("ours")
    await until(lambda: not ours(bench))


@pytest.mark.skipif(shutil.which("qemu-img") is None, reason="qemu-img is not installed (apt install qemu-utils)")
@pytest.mark.parametrize(("swapped", "args"), [("name", ["-snapshot"]), ("header", [])])
async def test_what_was_checked_is_below_the_disk_though_name_or_header_lead_elsewhere(
    bench: Machines, swapped: str, args: list[str]
) -> None:
    disk, link = laid_trap(bench)
    top = laid_over(disk)

    def swap() -> None:
        if swapped == "name":
            return exchange(disk, link)
        image = disk.parent / "top"
        image.write_bytes(image.read_bytes().replace(b"disk", b"link"))
        return None

    runs_before_start(bench, swap)
    await bench.start({"image_path": top, "args": args})
    await bench.wait_printed("ours")
    await until(lambda: not ours(bench))


async def test_a_machine_that_opens_nothing_keeps_its_disk_held_until_it_is_stopped(bench: Machines) -> None:
    laid_trap(bench)
    handle = await bench.start({"image_path": "../alloc/data/disk", "emulator": str(bench.folder / "slow")})
    assert len(ours(bench)) == 1
    await bench.driver.stop_task(handle.task_id, signal="SIGTERM", timeout=seconds(5))
    await until(lambda: not ours(bench))


async def test_a_start_that_fails_leaves_nothing_held(bench: Machines) -> None:
    laid_trap(bench)
    for options in ({"machine_type": "pc,x=y"}, {"args": ["-hda", "/dev/vda"]}):
        with pytest.raises(DriverError):
            await bench.start({"image_path": "../alloc/data/disk", **options})
        assert not ours(bench)

    def fail() -> None:
        assert len(ours(bench)) == 1
        raise DriverError("no")

    runs_before_start(bench, fail)
    with pytest.raises(DriverError, match="no"):
        await bench.start({"image_path": "../alloc/data/disk"})
    await until(lambda: not os.path.exists(driver_of(bench)._places.folder))


async def test_what_a_killed_agent_left_held_goes_with_the_next_one(bench: Machines) -> None:
    disk, _ = laid_trap(bench)
    places = driver_of(bench)._places
    places.mount(os.open(disk, os.O_PATH), "left", 0)
    await anext(bench.driver.fingerprint())
    await until(lambda: not os.path.exists(places.folder))
    assert disk.exists()


async def test_a_machine_of_a_dev_agent_lets_its_disk_go_when_no_agent_is_left(bench: Machines) -> None:
    laid_trap(bench)
    bench.context = replace(bench.context, dev=True)
    await bench.throw_away()
    handle = await bench.start({"image_path": "../alloc/data/disk", "emulator": str(bench.folder / "slow")})
    driver_of(bench)._places.drop = lambda group: None  # type: ignore[method-assign]
    assert len(ours(bench)) == 1
    os.kill(handle.pid, 9)
    await until(lambda: not ours(bench))


def test_a_link_that_was_put_on_an_images_way_after_it_was_followed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "alloc").mkdir()
    write_disk(tmp_path / "host", boot_sector.waits())
    (tmp_path / "alloc" / "disk").symlink_to(tmp_path / "host")
    with pytest.raises(RecoverableError, match="changed while it was read"):
        look_at(str(tmp_path / "alloc" / "disk"), ImageSite(str(tmp_path / "alloc"), (), "vm"), shown="disk")


def test_another_tasks_secrets_are_no_disk(tmp_path: Path) -> None:
    secrets = tmp_path / "other" / "secrets"
    secrets.mkdir(parents=True)
    (secrets / "token").touch()
    with pytest.raises(DriverError, match='private to the task "other"'):
        look_at(str(secrets / "token"), ImageSite(str(tmp_path), (), "vm"), shown="../other/secrets/token")
