"""Real emulators: power button, ports, version, and the agent's refusals."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import boot_sector
import pytest
import pytest_asyncio
from yurt.sdk.driver import HEALTHY, UNDETECTED, TaskHandle
from yurt.sdk.errors import DriverError
from yurt.sdk.value import replace, seconds
from yurt.testing.driver_suite import DriverBench
from yurt_driver_qemu.driver import QemuDriver

pytestmark = pytest.mark.skipif(
    shutil.which("qemu-system-x86_64") is None, reason="QEMU is not installed (apt install qemu-system-x86)"
)


class Machines(DriverBench):
    """Virtual machines with disks of one sector."""

    async def boot(self, code: bytes, **options: Any) -> TaskHandle:
        """Start a machine that runs the code."""
        request = self.request({"image_path": "local/disk.img", **options})
        write_disk(Path(request.dirs.local_dir, "disk.img"), code)
        self.started.append(request.task_id)
        return await self.driver.start_task(request)

    async def wait_printed(self, text: str, *, limit_s: float = 60) -> None:
        """Wait until the guest has printed something."""
        loop = asyncio.get_running_loop()
        arrived: asyncio.Future[None] = loop.create_future()

        def look() -> None:
            if any(text in path.read_text(errors="replace") for path in self.output()):
                arrived.set_result(None)
            else:
                loop.call_later(0.02, look)

        look()
        async with asyncio.timeout(limit_s):
            await arrived


def write_disk(path: Path, code: bytes) -> None:
    path.write_bytes(boot_sector.sector(code))


def machines(folder: Path, config: Mapping[str, Any]) -> Machines:
    return Machines(lambda context: QemuDriver(replace(context, config=config)), folder)


@pytest_asyncio.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Machines]:
    bench = machines(tmp_path, {})
    yield bench
    await bench.close()


async def test_the_version_of_the_emulator_is_an_attribute(bench: Machines) -> None:
    first = await anext(bench.driver.fingerprint())
    assert first.health == HEALTHY
    assert first.attributes["driver.qemu.version"][0].isdigit()


async def test_without_an_emulator_the_driver_is_undetected_and_says_how_to_install_one(
    bench: Machines, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    first = await anext(bench.driver.fingerprint())
    assert (first.health, first.fix) == (UNDETECTED, "apt install qemu-system-x86")


async def test_a_stop_by_signal_is_a_clean_end_of_the_emulator(bench: Machines) -> None:
    handle = await bench.boot(boot_sector.prints(b"up", then=boot_sector.waits()))
    await bench.wait_printed("up")
    await bench.driver.stop_task(handle.task_id, signal="SIGINT", timeout=seconds(10))
    assert (await bench.wait(handle.task_id)).is_success


async def test_the_power_button_shuts_a_guest_down(bench: Machines) -> None:
    guest = boot_sector.prints(b"up", then=boot_sector.ends_by_power_button())
    handle = await bench.boot(guest, graceful_shutdown=True)
    await bench.wait_printed("up")
    await bench.driver.stop_task(handle.task_id, signal="SIGINT", timeout=seconds(15))
    await bench.wait(handle.task_id)
    assert "bye" in bench.output()[0].read_text(errors="replace")


async def test_the_power_button_is_found_again_by_the_next_agent(bench: Machines) -> None:
    guest = boot_sector.prints(b"up", then=boot_sector.ends_by_power_button())
    handle = await bench.boot(guest, graceful_shutdown=True)
    await bench.wait_printed("up")
    await bench.throw_away()
    await bench.driver.recover_task(handle)
    await bench.driver.stop_task(handle.task_id, signal="SIGINT", timeout=seconds(15))
    assert "bye" in bench.output()[0].read_text(errors="replace")


async def test_a_guest_that_ignores_the_power_button_is_ended_after_the_timeout(bench: Machines) -> None:
    handle = await bench.boot(boot_sector.prints(b"up", then=boot_sector.waits()), graceful_shutdown=True)
    await bench.wait_printed("up")
    loop = asyncio.get_running_loop()
    before = loop.time()
    await bench.driver.stop_task(handle.task_id, signal="SIGINT", timeout=seconds(0.5))
    assert 0.5 <= loop.time() - before < 60


async def test_a_monitor_that_is_gone_does_not_keep_a_machine_from_stopping(bench: Machines) -> None:
    handle = await bench.boot(boot_sector.prints(b"up", then=boot_sector.waits()), graceful_shutdown=True)
    await bench.wait_printed("up")
    (bench.folder / "alloc" / "web" / "secrets" / "qmp.sock").unlink()
    await bench.driver.stop_task(handle.task_id, signal="SIGINT", timeout=seconds(5))
    assert (await bench.wait(handle.task_id)).is_success


async def test_the_guest_agents_socket_is_in_the_tasks_directory(bench: Machines) -> None:
    await bench.boot(boot_sector.prints(b"up", then=boot_sector.waits()), guest_agent=True)
    await bench.wait_printed("up")
    assert (bench.folder / "alloc" / "web" / "qa.sock").is_socket()


async def test_what_the_agent_does_not_allow_does_not_start(bench: Machines) -> None:
    for options in ({"args": ["-hda", "/dev/vda"]}, {"emulator": "sh"}, {"machine_type": "pc,dumpdtb=x"}):
        with pytest.raises(DriverError):
            await bench.boot(boot_sector.waits(), **options)
