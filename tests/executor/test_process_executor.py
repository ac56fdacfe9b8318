"""Tasks as real processes: starting, failing to start, ending, killing, and never touching a stranger."""

from __future__ import annotations

import asyncio
import os
import pwd
import resource
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from yurt.executor import CgroupSpec, ProcessExecutor, ProcessSpec, cgroups, process_executor
from yurt.executor.process_identity import start_time
from yurt.executor.spec import DEFAULT_PATH
from yurt.executor.zygote_client import ZygoteClient
from yurt.sdk.errors import DriverError, NotFound, RecoverableError
from yurt.sdk.value import replace, seconds

IS_ROOT = os.geteuid() == 0
needs_root = pytest.mark.skipif(not IS_ROOT, reason="only root may change to another user")

LIBRARY_SIGNALS = 0b11 << 31
"""Signals 32 and 33 belong to the C library: a process can neither set nor reset them."""


def all_processes() -> list[psutil.Process]:
    """Every process that has a command line."""
    return [process for process in psutil.process_iter(["cmdline"]) if process.info["cmdline"]]


async def failure(workshop: Any, *argv: str, **changes: object) -> str:
    """The text with which a start fails."""
    with pytest.raises(DriverError) as caught:
        await workshop.executor.start(workshop.spec(*argv, **changes))
    return str(caught.value)


async def test_a_missing_command_is_named_with_the_path_that_was_searched(workshop: Any) -> None:
    text = await failure(workshop, "no-such-command", env={"PATH": "/bin:/usr/bin"})
    assert '"no-such-command"' in text
    assert "/bin:/usr/bin" in text


async def test_a_file_that_is_not_executable_is_named_with_the_remedy(workshop: Any, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    assert "chmod +x" in await failure(workshop, str(script))


async def test_a_script_without_its_first_line_is_explained(workshop: Any, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("echo hello\n")
    script.chmod(0o755)
    assert "#!/bin/sh" in await failure(workshop, str(script))


async def test_a_missing_folder_is_named(workshop: Any) -> None:
    assert "/no/such/folder" in await failure(workshop, "true", cwd="/no/such/folder")


async def test_an_unknown_user_is_named(workshop: Any) -> None:
    assert 'user "nobody-here" does not exist' in await failure(workshop, "true", user="nobody-here")


async def test_a_missing_logs_folder_is_named(workshop: Any) -> None:
    assert "/no/such/logs" in await failure(workshop, "true", logs_dir="/no/such/logs")


async def test_a_missing_cgroup_of_an_override_is_named(workshop: Any) -> None:
    if workshop.executor.cgroup_mode not in ("v2", "hybrid"):
        pytest.skip("no cgroup v2 that may be written to on this host")
    text = await failure(workshop, "true", cgroup=CgroupSpec(override_v2="no/such/group"))
    assert "no/such/group" in text


async def test_a_nul_in_an_argument_is_refused(workshop: Any) -> None:
    assert "NUL" in await failure(workshop, "echo", "a\0b")


async def test_a_failed_start_leaves_no_cgroup(workshop: Any) -> None:
    await failure(workshop, "no-such-command")
    assert [name for parent in workshop.executor.cgroup_parents for name in os.listdir(parent) if "web" in name] == []


async def test_the_environment_is_exactly_what_was_given(workshop: Any) -> None:
    spec = workshop.spec("/usr/bin/env", env={"ONLY": "this", "ÜMLAUT": "ä\nb"})
    await workshop.executor.start(spec)
    await workshop.executor.wait(spec.task_id)
    assert workshop.stdout() == "ONLY=this\nÜMLAUT=ä\nb\n"


async def test_a_large_environment_arrives_whole(workshop: Any) -> None:
    spec = workshop.spec("sh", "-c", "echo ${#BIG}", env={"BIG": "x" * 100_000, "PATH": DEFAULT_PATH})
    await workshop.executor.start(spec)
    await workshop.executor.wait(spec.task_id)
    assert workshop.stdout() == "100000\n"


async def test_a_command_in_the_search_folders_comes_before_path(workshop: Any, tmp_path: Path) -> None:
    script = tmp_path / "ls"
    script.write_text("#!/bin/sh\necho mine\n")
    script.chmod(0o755)
    spec = workshop.spec("ls", search=(str(tmp_path),))
    await workshop.executor.start(spec)
    await workshop.executor.wait(spec.task_id)
    assert workshop.stdout() == "mine\n"


async def test_a_task_ignores_no_signal_and_leads_its_session(workshop: Any) -> None:
    spec = workshop.spec("sh", "-c", "grep -E 'SigIgn|SigBlk' /proc/self/status; ps -o sid= -p $$; echo $$")
    await workshop.executor.start(spec)
    await workshop.executor.wait(spec.task_id)
    blocked, ignored, session, pid = [line.split()[-1] for line in workshop.stdout().splitlines()]
    assert int(blocked, 16) == 0
    assert int(ignored, 16) & ~LIBRARY_SIGNALS == 0
    assert session == pid


async def test_a_task_inherits_no_descriptor(workshop: Any) -> None:
    spec = workshop.spec("sh", "-c", "ls /proc/$$/fd")
    await workshop.executor.start(spec)
    await workshop.executor.wait(spec.task_id)
    assert workshop.stdout().split() == ["0", "1", "2"]


@needs_root
async def test_a_task_runs_as_its_user_with_that_users_groups(workshop: Any) -> None:
    ids = pwd.getpwnam("nobody")
    spec = workshop.spec("sh", "-c", "id -u; id -g; id -G", user="nobody")
    await workshop.executor.start(spec)
    await workshop.executor.wait(spec.task_id)
    uid, gid, groups = workshop.stdout().splitlines()
    assert (int(uid), int(gid)) == (ids.pw_uid, ids.pw_gid)
    assert "0" not in groups.split()


@pytest.fixture
def closed_alloc() -> Iterator[Path]:
    """The directory of an allocation as a client makes it, in one that all users can pass through."""
    with tempfile.TemporaryDirectory(prefix="yurt-alloc-") as folder:
        os.chmod(folder, 0o711)
        alloc = Path(folder) / "id"
        alloc.mkdir(mode=0o700)
        (alloc / "local").mkdir()
        (alloc / "local").chmod(0o777)
        yield alloc


def can_stranger_read(path: Path) -> bool:
    return subprocess.run(["cat", str(path)], check=False, user=54321, capture_output=True).returncode == 0


@needs_root
async def test_the_tasks_user_alone_passes_through_the_closed_directory_of_its_allocation(
    workshop: Any, closed_alloc: Path
) -> None:
    local = closed_alloc / "local"
    words = ("sh", "-c", "echo in > made && chmod 644 made && cat made")
    spec = workshop.spec(*words, user="nobody", cwd=str(local), alloc_dir=str(closed_alloc))
    await workshop.executor.start(spec)
    await workshop.executor.wait(spec.task_id)
    assert workshop.stdout() == "in\n"
    assert not can_stranger_read(local / "made")


@needs_root
async def test_exec_in_a_task_has_its_user_environment_and_folder(workshop: Any) -> None:
    spec = workshop.spec("sleep", "1000", user="nobody", cwd="/usr", env={"PATH": DEFAULT_PATH, "WHO": "me"})
    await workshop.executor.start(spec)
    result = await workshop.executor.exec(spec.task_id, ("sh", "-c", "id -un; echo $WHO; pwd"), timeout=seconds(5))
    assert result.stdout.decode().split() == ["nobody", "me", "/usr"]


async def test_exec_that_takes_too_long_is_killed(workshop: Any) -> None:
    spec = workshop.spec("sleep", "1000")
    await workshop.executor.start(spec)
    with pytest.raises(DriverError, match="did not end within"):
        await workshop.executor.exec(spec.task_id, ("sleep", "1000"), timeout=seconds(0.2))


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="descriptors are counted in /proc")
@pytest.mark.parametrize("spare", range(1, 12))
@pytest.mark.parametrize("tty", [False, True])
async def test_exec_without_descriptors_left_says_so_and_leaves_none(workshop: Any, spare: int, tty: bool) -> None:
    spec = workshop.spec("sleep", "1000")
    await workshop.executor.start(spec)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    before, lowest = len(os.listdir("/proc/self/fd")), os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + spare, limits[1]))
    try:
        session = await workshop.executor.exec_stream(spec.task_id, ("true",), tty=tty)
        await session.close()
    except RecoverableError as error:
        assert "out of processes, files or memory" in str(error)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert len(os.listdir("/proc/self/fd")) <= before


async def test_stop_kills_what_left_the_session_and_the_parent(workshop: Any, eventually: Any) -> None:
    script = "(setsid sh -c 'echo $$; exec sleep 1000' &) ; exec sleep 1000"
    spec = workshop.spec("sh", "-c", script)
    await workshop.executor.start(spec)
    await eventually(lambda: workshop.stdout().endswith("\n"))
    stray = int(workshop.stdout())
    await workshop.executor.stop(spec.task_id, signal_name="SIGTERM", timeout=seconds(5))
    assert not psutil.pid_exists(stray)


async def test_an_orphan_outlives_the_main_process_until_destroy(workshop: Any) -> None:
    spec = workshop.spec("sh", "-c", "setsid sleep 1000 & echo $!; exit 6")
    await workshop.executor.start(spec)
    assert (await workshop.executor.wait(spec.task_id)).exit_code == 6
    orphan = int(workshop.stdout())
    assert psutil.pid_exists(orphan)
    await workshop.executor.destroy(spec.task_id)
    assert not psutil.pid_exists(orphan)


async def test_a_tree_that_keeps_forking_is_killed(workshop: Any, eventually: Any) -> None:
    script = "sh -c 'while :; do setsid sleep 1000 & sleep 0.01; done' & echo up; wait"
    spec = workshop.spec("sh", "-c", script)
    handle = await workshop.executor.start(spec)
    await eventually(lambda: len(psutil.Process(handle.shim_pid).children(recursive=True)) > 5)
    tree = psutil.Process(handle.shim_pid).children(recursive=True)
    await workshop.executor.destroy(spec.task_id)
    assert [process for process in tree if start_time(process.pid)] == []


async def test_the_shim_ends_with_its_task(workshop: Any, eventually: Any) -> None:
    spec = workshop.spec("true")
    handle = await workshop.executor.start(spec)
    await workshop.executor.wait(spec.task_id)
    await eventually(lambda: not psutil.pid_exists(handle.shim_pid))
    await eventually(lambda: not any(map(os.path.exists, handle.cgroups)))


async def test_what_a_killed_shim_leaves_is_killed_by_its_cgroup(workshop: Any, eventually: Any) -> None:
    if workshop.executor.cgroup_mode == "none":
        pytest.skip("without a cgroup nothing ties a process that left the session to a shim that is dead")
    spec = workshop.spec("sh", "-c", "setsid sleep 1000 & exec sleep 1000")
    handle = await workshop.executor.start(spec)
    await eventually(lambda: len(psutil.Process(handle.shim_pid).children(recursive=True)) == 2)
    tree = psutil.Process(handle.shim_pid).children(recursive=True)
    os.kill(handle.shim_pid, signal.SIGKILL)
    await eventually(lambda: not psutil.pid_exists(handle.shim_pid))
    await workshop.executor.destroy(spec.task_id)
    assert [process for process in tree if start_time(process.pid)] == []


async def test_waiting_for_a_task_whose_shim_was_killed_ends_with_an_error(workshop: Any) -> None:
    spec = workshop.spec("sleep", "1000")
    handle = await workshop.executor.start(spec)
    os.kill(handle.shim_pid, signal.SIGKILL)
    await workshop.executor.stop(spec.task_id, signal_name="SIGTERM", timeout=seconds(5))
    assert "exit status is lost" in (await workshop.executor.wait(spec.task_id)).error


async def test_tasks_survive_the_zygote_and_the_next_start_makes_another(workshop: Any, eventually: Any) -> None:
    first, second = workshop.spec("sleep", "1000"), workshop.spec("sh", "-c", "exit 9")
    handle = await workshop.executor.start(first)
    zygote = workshop.executor.zygote_pid
    os.kill(zygote, signal.SIGKILL)
    await eventually(lambda: workshop.executor.zygote_pid == 0)
    assert psutil.pid_exists(handle.pid)
    await workshop.executor.start(second)
    assert (await workshop.executor.wait(second.task_id)).exit_code == 9
    await workshop.executor.stop(first.task_id, signal_name="SIGTERM", timeout=seconds(5))
    assert (await workshop.executor.wait(first.task_id)).signal == signal.SIGTERM


async def test_a_stranger_with_the_pid_is_never_signalled(workshop: Any) -> None:
    stranger = workshop.spec("sleep", "1000")
    theirs = await workshop.executor.start(stranger)
    ours = replace(theirs, task_id="other/web/1", start_time=theirs.start_time - 1, shim_start_time=1, cgroups=())
    with pytest.raises(NotFound):
        await workshop.executor.recover(ours)
    assert psutil.pid_exists(theirs.pid)


async def test_a_task_that_ended_cannot_be_signalled(workshop: Any) -> None:
    spec = workshop.spec("true")
    await workshop.executor.start(spec)
    await workshop.executor.wait(spec.task_id)
    with pytest.raises(DriverError, match="has ended"):
        await workshop.executor.signal(spec.task_id, "SIGHUP")


async def test_a_handle_of_another_boot_is_not_found(workshop: Any) -> None:
    spec = workshop.spec("sleep", "1000")
    handle = await workshop.executor.start(spec)
    with pytest.raises(NotFound, match="restarted"):
        await workshop.executor.recover(replace(handle, task_id="x/y/1", boot_id="another", exit_file="/no/file"))


@needs_root
async def test_a_task_that_uses_too_much_memory_is_reported_as_such(workshop: Any) -> None:
    if workshop.executor.cgroup_mode == "none":
        pytest.skip("no cgroup that may be written to on this host")
    grow = "x = b'x' * 200_000_000; print(len(x))"
    spec = workshop.spec("python3", "-I", "-S", "-c", grow, cgroup=CgroupSpec(memory_bytes=64 * 1024 * 1024))
    await workshop.executor.start(spec)
    result = await workshop.executor.wait(spec.task_id)
    assert (result.signal, result.oom_killed) == (signal.SIGKILL, True)


async def test_a_task_has_its_cgroups_although_another_agent_has_removed_their_folder(workshop: Any) -> None:
    if workshop.executor.cgroup_mode == "none":
        pytest.skip("no cgroup that may be written to on this host")
    for parent in workshop.executor.cgroup_parents:
        os.rmdir(f"{parent}/{cgroups.SHIMS}")
        os.rmdir(parent)
    spec = workshop.spec("sleep", "1000", cgroup=CgroupSpec(memory_bytes=64 * 1024 * 1024))
    handle = await workshop.executor.start(spec)
    assert [handle.pid in cgroups.processes((folder,)) for folder in handle.cgroups] == [True] * len(handle.cgroups)
    assert handle.cgroups


@pytest.mark.parametrize("dev", [False, True])
async def test_an_executor_that_closes_leaves_the_cgroups_of_a_task_that_another_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dev: bool
) -> None:
    ending, staying = (ProcessExecutor(state_dir=str(tmp_path / name), dev=dev) for name in ("ending", "staying"))
    if staying.cgroup_mode == "none":
        pytest.skip("no cgroup that may be written to on this host")
    await ending.open()
    request = ZygoteClient.request

    async def request_after_the_other_has_closed(*arguments: Any) -> Any:
        await ending.close()
        return await request(*arguments)

    monkeypatch.setattr(ZygoteClient, "request", request_after_the_other_has_closed)
    task = ProcessSpec(
        task_id=f"{uuid.uuid4()}/web/0", argv=("sleep", "1000"), env={"PATH": os.environ["PATH"]}, cwd="/",
        logs_dir=str(tmp_path), log_name="web",
    )  # fmt: skip

    handle = await staying.start(task)

    assert [handle.pid in cgroups.processes((folder,)) for folder in handle.cgroups] == [True] * len(handle.cgroups)
    await staying.destroy(task.task_id)
    await staying.close()
    assert not any(map(os.path.exists, handle.cgroups))


async def test_many_starts_at_once_all_succeed(workshop: Any) -> None:
    specs = [workshop.spec("sh", "-c", f"exit {code}") for code in range(40)]
    await asyncio.gather(*(workshop.executor.start(spec) for spec in specs))
    results = await asyncio.gather(*(workshop.executor.wait(spec.task_id) for spec in specs))
    assert [result.exit_code for result in results] == list(range(40))


async def test_a_start_that_was_cancelled_leaves_no_process(workshop: Any, eventually: Any) -> None:
    await workshop.executor.open()
    mark = f"{os.getpid()}.4321"
    async with asyncio.TaskGroup() as group:
        starts = [group.create_task(workshop.executor.start(workshop.spec("sleep", mark))) for _ in range(5)]
        await asyncio.sleep(0)
        for start in starts:
            start.cancel()
    assert all(start.cancelled() for start in starts)
    spec = workshop.spec("true")
    await workshop.executor.start(spec)
    await eventually(lambda: not any(mark in process.info["cmdline"] for process in all_processes()))


async def test_a_task_that_is_being_started_is_not_started_twice(workshop: Any) -> None:
    spec = workshop.spec("true")
    results = await asyncio.gather(workshop.executor.start(spec), workshop.executor.start(spec), return_exceptions=True)
    assert [type(result) for result in results].count(DriverError) == 1


async def ready_shim(workshop: Any, eventually: Any) -> psutil.Process:
    """The shim that waits for a task."""
    await workshop.executor.open()
    zygote = psutil.Process(workshop.executor.zygote_pid)
    await eventually(lambda: bool(zygote.children()))
    return zygote.children()[0]


async def test_a_shim_that_dies_before_it_has_a_task_is_replaced(workshop: Any, eventually: Any) -> None:
    ready = await ready_shim(workshop, eventually)
    ready.kill()
    await eventually(lambda: not start_time(ready.pid))
    handle = await workshop.executor.start(workshop.spec("sleep", "1000"))
    assert handle.shim_pid != ready.pid
    await workshop.executor.destroy(handle.task_id)


async def test_the_shim_that_waits_for_a_task_ends_with_the_zygote(workshop: Any, eventually: Any) -> None:
    ready = await ready_shim(workshop, eventually)
    os.kill(workshop.executor.zygote_pid, signal.SIGKILL)
    await eventually(lambda: not start_time(ready.pid))


async def test_no_second_process_starts_while_one_of_the_task_lives(workshop: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(process_executor, "LOCK_LIMIT_S", 0.1)
    folder = str(workshop.folder / "task")
    os.mkdir(folder)
    first = workshop.spec("sleep", "1000", lock_folder=folder)
    await workshop.executor.start(first)
    with pytest.raises(RecoverableError, match="a process of an earlier run of the task still lives"):
        await workshop.executor.start(workshop.spec("true", lock_folder=folder))
    await workshop.executor.destroy(first.task_id)
    again = workshop.spec("sleep", "1000", lock_folder=folder)
    await workshop.executor.start(again)
    await workshop.executor.destroy(again.task_id)


async def test_a_start_waits_for_the_end_of_the_run_before(workshop: Any) -> None:
    folder = str(workshop.folder / "task")
    os.mkdir(folder)
    first, second = (workshop.spec("sleep", "1000", lock_folder=folder) for _ in range(2))
    await workshop.executor.start(first)
    _, handle = await asyncio.gather(workshop.executor.destroy(first.task_id), workshop.executor.start(second))
    assert handle.pid
    await workshop.executor.destroy(second.task_id)
