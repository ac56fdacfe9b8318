"""What a running exec task can see and do, read back from the task itself; and that nothing of it is left."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Mapping
from typing import Any

import psutil
import pytest
from yurt.sdk.errors import DriverError, NotFound
from yurt.sdk.exec import StreamsExec
from yurt.sdk.value import replace, seconds

from .conftest import Cell

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="isolation needs Linux"),
    pytest.mark.skipif(os.geteuid() != 0, reason="isolation takes root"),
    pytest.mark.skipif(shutil.which("runc") is None, reason="runc is not installed (apt install runc)"),
]


async def test_a_task_is_nobody_and_sees_itself_as_the_first_process(cell: Cell) -> None:
    said = await cell.said("id -un; echo $$; ls /proc | grep -c '^[0-9]'")
    name, pid, processes = said.split()
    assert (name, pid) == ("nobody", "1")
    assert int(processes) < 6


async def test_the_file_system_holds_the_tasks_folders_and_the_systems(cell: Cell) -> None:
    names = set((await cell.said("ls /")).split())
    assert {"alloc", "local", "secrets", "tmp", "dev", "proc", "bin", "etc", "usr"} <= names
    assert not names & {"root", "home", "work", "var"}


async def test_the_tasks_folders_are_writable_and_the_hosts_are_not(cell: Cell) -> None:
    script = (
        "for d in /alloc /local /secrets /tmp; do echo hi > $d/x || exit 1; done; echo no > /etc/x && exit 2; exit 0"
    )
    cell.request({"command": "x"})
    for path in ("alloc/alloc", "alloc/web/local"):
        (cell.folder / path).chmod(0o777)
    assert (await cell.script(script)).exit_code == 0, cell.printed("stderr")
    assert (cell.folder / "alloc" / "alloc" / "x").read_text() == "hi\n"
    assert "x" not in os.listdir("/etc")


async def test_the_hosts_password_hashes_cannot_be_read(cell: Cell) -> None:
    assert await cell.said("cat /etc/shadow; true") == ""


async def test_setuid_gives_nothing(cell: Cell) -> None:
    assert "NoNewPrivs:\t1" in await cell.said("grep NoNewPrivs /proc/self/status")


async def test_a_device_made_by_the_task_cannot_be_opened(generous: Cell) -> None:
    script = "mknod /local/disk b 7 0 && mknod /local/null c 1 3; head -c1 /local/disk && exit 1; head -c1 /local/null"
    assert (await generous.script(script, user="root")).exit_code == 0, generous.printed("stderr")


@pytest.mark.parametrize(
    "config", [{"pid_mode": "host"}, {"ipc_mode": "host"}, {"cap_add": ["sys_admin"]}, {"seccomp": "unconfined"}]
)
async def test_what_is_not_allowed_does_not_start(cell: Cell, config: Mapping[str, Any]) -> None:
    with pytest.raises(DriverError, match="allow"):
        await cell.begin("true", **config)


@pytest.mark.parametrize("user", ["root", "0"])
async def test_root_is_denied(cell: Cell, user: str) -> None:
    with pytest.raises(DriverError, match="denies root"):
        await cell.begin("true", user=user)


async def test_root_is_root_where_the_agent_allows_it_but_not_over_the_host(generous: Cell) -> None:
    assert await generous.said("id -u; echo 1 > /proc/sys/kernel/panic || echo refused", user="root") == "0\nrefused\n"


async def test_namespaces_of_the_host_are_shared_where_the_agent_allows_it(generous: Cell) -> None:
    mine = {kind: os.readlink(f"/proc/self/ns/{kind}") for kind in ("pid", "ipc", "uts", "mnt", "net")}
    script = "for n in pid ipc uts mnt net; do readlink /proc/self/ns/$n; done"
    pid, ipc, uts, mnt, net = (await generous.said(script, pid_mode="host", ipc_mode="host", user="root")).split()
    assert (pid, ipc, net) == (mine["pid"], mine["ipc"], mine["net"])
    assert uts != mine["uts"]
    assert mnt != mine["mnt"]


async def first_output(cell: Cell) -> str:
    """What the task prints first."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[str] = loop.create_future()

    def look() -> None:
        if text := cell.printed("stdout"):
            arrived.set_result(text)
        else:
            loop.call_later(0.01, look)

    look()
    return await arrived


async def test_children_die_with_a_task_that_shares_the_hosts_pids(generous: Cell) -> None:
    await generous.begin("setsid sleep 987 & echo $!; wait", pid_mode="host")
    async with asyncio.timeout(60):
        child = int(await first_output(generous))
    await generous.driver.destroy_task(generous.task_id)
    assert not psutil.pid_exists(child)


async def test_work_dir_is_inside(cell: Cell) -> None:
    assert await cell.said("pwd", work_dir="/local") == "/local\n"


async def test_a_missing_work_dir_is_explained(cell: Cell) -> None:
    with pytest.raises(DriverError, match=r"/usr/no/such.*work_dir"):
        await cell.begin("true", work_dir="/usr/no/such")


async def test_a_command_of_the_tasks_own_folder_is_found(cell: Cell) -> None:
    cell.request({"command": "x"})
    tool = cell.folder / "alloc" / "web" / "local" / "tool"
    tool.write_text("#!/bin/sh\necho own\n")
    tool.chmod(0o755)
    await cell.driver.start_task(cell.request({"command": "tool"}))
    cell.started.append(cell.task_id)
    await cell.wait(cell.task_id)
    assert cell.printed("stdout") == "own\n"


async def test_a_task_over_its_memory_is_killed_and_says_so(cell: Cell) -> None:
    script = "x=$(head -c 60000000 /dev/zero | tr '\\0' x); echo ${#x}"
    result = await cell.script(script, memory_mb=24)
    assert (result.oom_killed, result.is_success) == (True, False)


async def test_a_task_whose_helper_takes_too_much_memory_says_so_too(cell: Cell) -> None:
    result = await cell.script("head -c 60000000 /dev/zero | tail", memory_mb=24)
    assert (result.oom_killed, result.exit_code) == (True, 137)


async def test_a_command_runs_inside_with_the_tasks_user_and_rights(cell: Cell) -> None:
    await cell.begin("exec sleep 1000", cap_drop=["all"])
    result = await cell.driver.exec_task(
        cell.task_id, ("sh", "-c", "id -un; grep CapEff /proc/self/status; cat /proc/1/comm"), timeout=seconds(10)
    )
    assert result.stdout.split() == [b"nobody", b"CapEff:", b"0000000000000000", b"sleep"]


async def test_a_command_that_does_not_exist_inside_is_named(cell: Cell) -> None:
    await cell.begin("sleep 1000")
    with pytest.raises(DriverError, match="nonesuch"):
        await cell.driver.exec_task(cell.task_id, ("nonesuch",), timeout=seconds(10))


async def test_a_command_over_its_time_is_killed_inside(cell: Cell) -> None:
    await cell.begin("sleep 1000")
    with pytest.raises(DriverError, match="did not end within"):
        await cell.driver.exec_task(cell.task_id, ("sleep", "777"), timeout=seconds(0.5))
    listed = await cell.driver.exec_task(cell.task_id, ("sh", "-c", "cat /proc/[0-9]*/cmdline"), timeout=seconds(10))
    assert b"777" not in listed.stdout


async def test_a_command_is_not_taken_for_one_of_an_earlier_agent_with_the_same_pid(cell: Cell) -> None:
    await cell.begin("sleep 1000")
    assert isinstance(cell.driver, StreamsExec)
    await cell.driver.exec_stream(cell.task_id, ("sleep", "1000"), tty=False)
    (config,) = (cell.folder / "state" / "oci" / "bundles").glob("*/config.json")
    (left,) = config.parent.glob("exec-*.pid")
    await cell.throw_away()
    left.write_text(str(os.getpid()))  # as one leaves it that is killed
    await cell.driver.recover_task(cell.handle)

    assert isinstance(cell.driver, StreamsExec)
    session: Any = await cell.driver.exec_stream(cell.task_id, ("sleep", "1000"), tty=False)

    assert os.getpid() not in session._other_leaders()
    await session.close()


async def test_a_program_without_a_handler_ends_by_the_stop_signal_at_once(cell: Cell) -> None:
    await cell.begin("exec sleep 1000")
    loop = asyncio.get_running_loop()
    before = loop.time()
    await cell.driver.stop_task(cell.task_id, signal="SIGTERM", timeout=seconds(100))
    assert loop.time() - before < 50


async def test_nothing_is_left_when_the_shim_was_killed(cell: Cell) -> None:
    pid = await cell.begin("sleep 1000 & wait")
    task = psutil.Process(pid)
    os.kill(task.ppid(), signal.SIGKILL)
    await cell.driver.destroy_task(cell.task_id)
    assert not task.is_running() or task.status() == psutil.STATUS_ZOMBIE
    assert cell.left() == []


async def test_a_task_that_ended_by_itself_leaves_only_its_bundle_until_it_is_destroyed(cell: Cell) -> None:
    await cell.script("exit 0")
    await cell.driver.stop_task(cell.task_id, signal="SIGTERM", timeout=seconds(1))
    assert [path for path in cell.left() if "/sys/fs/cgroup" in path or "containers" in path] == []
    await cell.driver.destroy_task(cell.task_id)
    assert cell.left() == []


async def test_what_a_reboot_left_behind_is_cleared_when_the_task_is_not_found_again(cell: Cell) -> None:
    task = psutil.Process(await cell.begin("sleep 1000 & wait"))
    os.kill(task.ppid(), signal.SIGKILL)
    task.kill()
    await cell.driver.wait_task(cell.task_id)
    await cell.throw_away()
    assert any("containers" in path for path in cell.left())
    with pytest.raises(NotFound):
        await cell.driver.recover_task(cell.handle)
    assert cell.left() == []


async def test_a_directory_that_is_gone_is_no_defect(cell: Cell) -> None:
    request = cell.request({"command": "true"})
    gone = replace(request, dirs=replace(request.dirs, secrets_dir=str(cell.folder / "gone")))
    with pytest.raises(DriverError, match="gone"):
        await cell.driver.start_task(gone)


async def test_the_bundle_is_for_root_alone(cell: Cell) -> None:
    await cell.begin("sleep 1000")
    (config,) = (cell.folder / "state" / "oci" / "bundles").glob("*/config.json")
    assert config.stat().st_mode & 0o077 == 0
    assert config.parent.stat().st_mode & 0o077 == 0
