"""Containers of a real engine: what they may do, and what becomes of them when the engine or the agent goes away."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import io
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from yurt.sdk.containers.cgroups import ContainerCgroup
from yurt.sdk.containers.watch import Watch
from yurt.sdk.driver import (
    HEALTHY,
    UNDETECTED,
    UNHEALTHY,
    AgentPaths,
    ExitResult,
    Fingerprint,
    LogRotation,
    PluginContext,
    PortGiven,
    TaskDirs,
    TaskHandle,
    TaskRequest,
    TaskResources,
    TaskStats,
)
from yurt.sdk.errors import DriverError, NotFound
from yurt.sdk.schema import decode_config
from yurt.sdk.value import replace, seconds
from yurt.testing.unique_ports import own_subnet, quiet_port
from yurt_driver_docker.config import TaskConfig, plugin_config
from yurt_driver_docker.driver import DockerDriver

IMAGE = "yurt-test/busybox:1"
LIMIT_S = 60.0
CAP_NET_ADMIN, CAP_SYS_ADMIN = 12, 21


def shell(script: str, **options: Any) -> dict[str, Any]:
    """A task that runs a shell script."""
    return {"image": IMAGE, "command": "sh", "args": ["-c", script], **options}


class Bench:
    """A driver, its folders, and the allocations made with it."""

    def __init__(self, folder: Path, engine: Any) -> None:
        self.folder = folder
        self.engine = engine
        self.plugin: dict[str, Any] = {"endpoint": engine.endpoint}
        self.driver = self.make()
        self.started: list[str] = []

    def make(self) -> DockerDriver:
        paths = AgentPaths(state_dir=str(self.folder / "state"), run_dir=str(self.folder / "run"))
        return DockerDriver(plugin_config(PluginContext(config=self.plugin, paths=paths)))

    async def configure(self, **options: Any) -> None:
        """A new agent with other options."""
        self.plugin |= options
        await self.restart()

    async def restart(self) -> None:
        """The agent goes, and a new one comes."""
        await self.driver.close()
        self.driver = self.make()

    def request(self, config: Mapping[str, Any], *, name: str = "web", **changes: Any) -> TaskRequest:
        alloc = self.folder / "alloc"
        dirs = TaskDirs(
            alloc_dir=str(alloc), shared_dir=str(alloc / "alloc"), task_dir=str(alloc / name),
            local_dir=str(alloc / name / "local"), secrets_dir=str(alloc / name / "secrets"),
            logs_dir=str(alloc / "alloc" / "logs"),
        )  # fmt: skip
        for each in (dirs.local_dir, dirs.secrets_dir, dirs.logs_dir):
            os.makedirs(each, exist_ok=True)
        given: dict[str, Any] = {"resources": TaskResources(cpu_shares=100, memory_mb=64), "env": {}, **changes}
        alloc_id = f"alloc-{abs(hash(self.folder)) % 10**8}"
        return TaskRequest(
            task_id=f"{alloc_id}/{name}/0", alloc_id=alloc_id, task_name=name, job_id="job", group_name="group",
            namespace="default", config=decode_config(TaskConfig, config), dirs=dirs, **given,
        )  # fmt: skip

    async def start(self, config: Mapping[str, Any], *, name: str = "web", **changes: Any) -> TaskHandle:
        request = self.request(config, name=name, **changes)
        handle = await asyncio.wait_for(self.driver.start_task(request), LIMIT_S)
        self.started.append(request.task_id)
        return handle

    async def engine_usage(self, task_id: str) -> TaskStats:
        """The usage as the engine reports it: the files of the container's cgroup are unknown."""
        task = self.driver._tasks.get(task_id)
        known, task.cgroup = task.cgroup, ContainerCgroup()
        try:
            return await self.driver.task_stats(task_id)
        finally:
            task.cgroup = known

    async def wait(self, handle: TaskHandle) -> ExitResult:
        return await asyncio.wait_for(self.driver.wait_task(handle.task_id), LIMIT_S)

    async def run(self, config: Mapping[str, Any], **changes: Any) -> tuple[ExitResult, str]:
        """Run to the end; the result and the output."""
        result = await self.wait(await self.start(config, **changes))
        return result, self.output()

    def output(self, stream: str = "stdout", name: str = "web") -> str:
        found = (self.folder / "alloc" / "alloc" / "logs").glob(f"{name}.{stream}.*")
        return "".join(path.read_text() for path in sorted(found, key=lambda path: int(path.suffix[1:])))

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition, with a bound."""
        try:
            async with asyncio.timeout(LIMIT_S):
                while not condition():  # noqa: ASYNC110 - what happens is outside this process
                    await asyncio.sleep(0.005)
        except TimeoutError:
            pytest.fail(f"never: {what}")

    async def until_health(self, health: str) -> Fingerprint:
        async with asyncio.timeout(LIMIT_S):
            async for found in self.driver.fingerprint():
                if found.health == health:
                    return found
        raise AssertionError("the driver's fingerprints ended")

    def containers(self) -> list[str]:
        """The ids of all containers of this test."""
        owner = self.driver._config.owner
        found = self.engine.run("ps", "-aq", "--no-trunc", "--filter", f"label=yurt.owner={owner}")
        return list(found.stdout.decode().split())

    async def close(self) -> None:
        for task_id in self.started:
            with contextlib.suppress(NotFound):
                await self.driver.destroy_task(task_id)
        await self.driver.close()


@pytest_asyncio.fixture
async def bench(engine: Any, tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(tmp_path, engine)
    yield made
    await made.close()


async def test_a_working_engine_tells_its_attributes(bench: Bench) -> None:
    found = await bench.until_health(HEALTHY)
    assert found.attributes["driver.docker.os_type"] == "linux"
    assert "runc" in found.attributes["driver.docker.runtimes"]
    assert {"driver.docker.version", "driver.docker.cgroup_version"} < set(found.attributes)


async def test_an_engine_that_is_not_there_is_undetected_with_the_way_to_get_one(bench: Bench) -> None:
    await bench.configure(endpoint=f"unix://{bench.folder}/none.sock")
    found = await anext(bench.driver.fingerprint())
    assert (found.health, "apt install docker.io" in found.fix) == (UNDETECTED, True)
    with pytest.raises(DriverError, match="does not exist"):
        await bench.start(shell("true"))


async def test_a_start_before_the_first_look_knows_the_runtimes_of_the_engine(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Watch, "begin", lambda *_: None)
    await bench.start(shell("true"))
    assert "runc" in bench.driver._queries.runtimes


async def test_the_first_container_of_a_dev_agent_is_guarded_before_it_is_made(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Watch, "begin", lambda *_: None)
    bench.driver._config = replace(bench.driver._config, is_dev=True)
    guards, create = [], bench.driver._calls.create

    async def watched_create(name: str, body: Mapping[str, Any]) -> str:
        guards.append(bench.driver._dev_cleanup.process)
        return await create(name, body)

    monkeypatch.setattr(bench.driver._calls, "create", watched_create)
    await bench.start(shell("true"))
    assert [guard is not None for guard in guards] == [True]


async def test_a_container_sees_its_folders_variables_and_user(bench: Bench) -> None:
    result, output = await bench.run(
        shell("echo $COLOUR; id -u; ls -d /alloc/logs /local /secrets; echo kept > /local/file"),
        env={"COLOUR": "blue"}, user="1000:1000",
    )  # fmt: skip
    assert output.split() == ["blue", "1000", "/alloc/logs", "/local", "/secrets"]
    assert result.exit_code != 0


async def test_rights_read_back_from_the_running_process_are_what_was_given(bench: Bench) -> None:
    script = "grep -E 'CapEff|NoNewPrivs' /proc/self/status; touch /x; cat /proc/sys/net/core/somaxconn"
    _, output = await bench.run(
        shell(
            script, cap_drop=["all"], readonly_rootfs=True, security_opt=["no-new-privileges"],
            sysctl={"net.core.somaxconn": "777"},
        )
    )  # fmt: skip
    assert output.split() == ["CapEff:", "0000000000000000", "NoNewPrivs:", "1", "777"]
    assert "Read-only file system" in bench.output("stderr")


async def test_limits_are_set_in_the_kernel(bench: Bench) -> None:
    handle = await bench.start(
        shell("ulimit -n; sleep 1000", ulimit={"nofile": "100:200"}, pids_limit=30, cpu_hard_limit=True, init=True)
    )
    container = handle.state["container_id"]
    shown = bench.engine.run(
        "inspect", "-f", "{{.HostConfig.Memory}} {{.HostConfig.PidsLimit}} {{.HostConfig.Init}}", container
    )
    assert shown.stdout.split() == [str(64 << 20).encode(), b"30", b"true"]
    await bench.until(lambda: bench.output().strip() == "100", "the limit of open files")


async def test_a_container_that_needs_too_much_memory_is_reported_as_such(bench: Bench) -> None:
    script = "sleep 0.5; dd if=/dev/zero of=/dev/null bs=200M count=1"
    result, _ = await bench.run(shell(script), resources=TaskResources(cpu_shares=100, memory_mb=16))
    assert (result.oom_killed, result.is_success) == (True, False)


def is_alive(handle: TaskHandle) -> bool:
    return os.path.exists(f"/proc/{handle.pid}")


def got(port: int, path: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        return b""
    finally:
        connection.close()


async def test_a_mapped_port_answers_a_real_request_with_the_content_of_a_volume(bench: Bench) -> None:
    port = quiet_port()
    ports = (PortGiven(label="http", host_ip="127.0.0.1", host_port=port, to=8080),)
    site = bench.folder / "alloc" / "web" / "local" / "site"
    site.mkdir(parents=True)
    (site / "page").write_text("hello from a volume")
    handle = await bench.start(
        {
            "image": IMAGE, "command": "httpd", "args": ["-f", "-p", "8080", "-h", "/site"], "ports": ["http"],
            "volumes": ["local/site:/site:ro"],
        },
        ports=ports,
    )  # fmt: skip
    await bench.until(lambda: got(port, "/page") == b"hello from a volume", "an answer through the port")
    assert handle.state["address"]


async def test_a_link_made_by_the_task_does_not_mount_what_it_points_to(bench: Bench) -> None:
    request = bench.request(shell("true"))
    os.symlink("/etc", os.path.join(request.dirs.local_dir, "escape"))
    with pytest.raises(DriverError, match="leads out of the allocation"):
        await bench.start(shell("cat /x/passwd", volumes=["local/escape:/x"]))


async def test_what_is_removed_behind_our_back_ends_with_a_reason(bench: Bench) -> None:
    handle = await bench.start(shell("sleep 1000"))
    bench.engine.run("rm", "-f", handle.state["container_id"])
    result = await bench.wait(handle)
    assert (result.is_success, result.signal == 9 or "removed" in result.error) == (False, True)


async def test_a_second_run_takes_the_place_of_a_dead_container_of_the_first(bench: Bench) -> None:
    handle = await bench.start(shell("exit 3"))
    await bench.wait(handle)
    await bench.restart()
    request = bench.request(shell("sleep 1000"))
    again = replace(request, task_id=request.task_id[:-1] + "1")
    second = await bench.driver.start_task(again)
    bench.started.append(second.task_id)
    assert bench.containers() == [second.state["container_id"]]


async def test_a_command_that_takes_too_long_is_killed(bench: Bench) -> None:
    handle = await bench.start(shell("sleep 1000"))
    with pytest.raises(DriverError, match="did not end within"):
        await bench.driver.exec_task(handle.task_id, ("sleep", "998"), timeout=seconds(0.3))
    script = "for each in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $each; echo; done"
    found = await bench.driver.exec_task(handle.task_id, ("sh", "-c", script), timeout=seconds(9))
    assert b"sleep 1000" in found.stdout
    assert b"sleep 998" not in found.stdout


async def test_a_terminal_is_collected_too(bench: Bench) -> None:
    _, output = await bench.run(shell("echo one; echo two >&2", tty=True))
    assert output.replace("\r", "") == "one\ntwo\n"


async def test_no_line_is_lost_or_doubled_over_restarts_of_the_agent(bench: Bench) -> None:
    os.makedirs(bench.folder / "alloc" / "web" / "local", exist_ok=True)
    script = "i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); [ $((i%100)) = 0 ] && sleep 0.02; done; true"
    handle = await bench.start(shell(script), logs=LogRotation(max_files=100, max_bytes=5000))
    for lines in (200, 900, 1700):
        await bench.until(lambda expected=lines: bench.output().count("\n") >= expected, "output")  # type: ignore[misc]
        await bench.restart()
        await bench.driver.recover_task(handle)
    assert (await bench.wait(handle)).is_success
    assert bench.output().splitlines() == [f"line {number}" for number in range(3000)]


async def test_a_task_outlives_a_killed_engine_and_its_output_and_end_come_after_all(bench: Bench) -> None:
    script = "i=0; while [ ! -e /local/stop ]; do echo line $i; i=$((i+1)); sleep 0.05; done; exit 6"
    handle = await bench.start(shell(script))
    await bench.until(lambda: "line 3" in bench.output(), "output")
    bench.engine.kill()
    try:
        await bench.until_health(UNHEALTHY)
        assert is_alive(handle)
    finally:
        bench.engine.start()
    await bench.until_health(HEALTHY)
    assert is_alive(handle)
    lines = bench.output().count("\n")
    await bench.until(lambda: bench.output().count("\n") > lines, "output after the engine came back")
    (bench.folder / "alloc" / "web" / "local" / "stop").touch()
    assert (await bench.wait(handle)).exit_code == 6
    numbers = [int(line.split()[1]) for line in bench.output().splitlines()]
    assert numbers == sorted(set(numbers))


async def test_an_end_while_the_engine_is_down_is_noticed_when_it_is_back(bench: Bench) -> None:
    handle = await bench.start(shell("while [ ! -e /local/stop ]; do sleep 0.02; done; exit 6"))
    bench.engine.kill()
    (bench.folder / "alloc" / "web" / "local" / "stop").touch()
    await bench.until(lambda: not is_alive(handle), "the end of the process")
    bench.engine.start()
    assert not (await bench.wait(handle)).is_success


async def test_a_task_is_taken_up_while_the_engine_is_away(bench: Bench) -> None:
    handle = await bench.start(shell("sleep 1000", init=True))
    bench.engine.kill()
    await bench.restart()
    try:
        await bench.driver.recover_task(msgspec.msgpack.decode(msgspec.msgpack.encode(handle), type=TaskHandle))
    finally:
        bench.engine.start()
    await asyncio.wait_for(bench.driver.stop_task(handle.task_id, signal="SIGTERM", timeout=seconds(5)), LIMIT_S)
    assert (await bench.wait(handle)).signal == 15


async def test_an_engine_that_hangs_is_unhealthy_and_nothing_hangs_with_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = await bench.start(shell("while [ ! -e /local/stop ]; do sleep 0.02; done; exit 6"))
    waiting = asyncio.get_running_loop().create_task(bench.wait(handle))
    monkeypatch.setattr("yurt.sdk.containers.engine.ASK_S", 2.0)
    bench.engine.send(signal.SIGSTOP)
    try:
        found = await bench.until_health(UNHEALTHY)
        assert "did not answer" in found.description
        with pytest.raises(DriverError, match="did not answer"):
            await asyncio.wait_for(bench.start(shell("true"), name="other"), LIMIT_S)
        with pytest.raises(DriverError, match="did not answer"):
            await asyncio.wait_for(bench.driver.destroy_task(handle.task_id), LIMIT_S)
        (bench.folder / "alloc" / "web" / "local" / "stop").touch()
    finally:
        bench.engine.send(signal.SIGCONT)
    assert (await waiting).exit_code == 6
    await bench.until_health(HEALTHY)


@pytest.mark.parametrize("pause_s", [0.02, 0.001])
async def test_output_is_written_once_although_the_engine_rotates_its_file(bench: Bench, pause_s: float) -> None:
    """Docker 20.10 sends the lines again that it reads from a new file before it waits for more."""
    write = f"for i in $(seq 300); do echo line $i; sleep {pause_s}; done"
    rotation = {"type": "json-file", "config": [{"max-size": "2k", "max-file": "5"}]}
    _, output = await bench.run({**shell(write), "logging": [rotation]})
    assert output == "".join(f"line {number}\n" for number in range(1, 301))


async def test_usage_is_read_without_the_engine(bench: Bench) -> None:
    handle = await bench.start(shell("trap exit TERM; while true; do sleep 0.1; done"))
    reported = await bench.engine_usage(handle.task_id)
    bench.engine.send(signal.SIGSTOP)
    try:
        async with asyncio.timeout(1):
            found = await bench.driver.task_stats(handle.task_id)
    finally:
        bench.engine.send(signal.SIGCONT)
    assert 0 < found.rss_bytes <= reported.rss_bytes * 4 and found.pids >= 1
    assert found.cpu_user_ns + found.cpu_system_ns > 0


async def test_usage_that_no_file_shows_comes_from_the_engine(bench: Bench) -> None:
    handle = await bench.start(shell("sleep 1000"))
    assert (await bench.engine_usage(handle.task_id)).rss_bytes > 0


async def test_containers_that_no_task_knows_are_removed_after_the_grace(bench: Bench) -> None:
    await bench.configure(gc={"dangling_containers": {"period": "1s", "creation_grace": "0s"}})
    handle = await bench.start(shell("sleep 1000"))
    await bench.restart()
    kept = await bench.start(shell("sleep 1000"), name="kept")
    await bench.until(lambda: bench.containers() == [kept.state["container_id"]], "the dangling container went")
    with pytest.raises(NotFound):
        await bench.driver.recover_task(handle)


async def test_containers_of_others_and_young_ones_stay(bench: Bench) -> None:
    handle = await bench.start(shell("sleep 1000"))
    bench.engine.run("run", "-d", "--name", "stranger", IMAGE)
    await bench.restart()
    await bench.until_health(HEALTHY)
    assert await bench.driver._dangling.sweep() == []
    assert bench.containers() == [handle.state["container_id"]]
    assert bench.engine.run("rm", "-f", "stranger").returncode == 0
    await bench.driver.recover_task(handle)


async def test_the_containers_of_a_group_share_the_namespace_of_a_pause_container(bench: Bench) -> None:
    await bench.configure(infra_image=IMAGE)
    request = bench.request(shell("true"))
    path = await bench.driver.create_network(request.alloc_id, hostname="box")
    assert await bench.driver.create_network(request.alloc_id) == path
    first = await bench.start(shell("sleep 1000"), network_namespace=path)
    second = await bench.start(shell("hostname; sleep 1000"), name="two", network_namespace=path)
    assert os.stat(path).st_ino == os.stat(f"/proc/{first.pid}/ns/net").st_ino
    assert os.stat(path).st_ino == os.stat(f"/proc/{second.pid}/ns/net").st_ino
    for handle in (first, second):
        await bench.driver.destroy_task(handle.task_id)
    await bench.driver.destroy_network(request.alloc_id)
    await bench.driver.destroy_network(request.alloc_id)
    assert bench.containers() == []


async def test_an_image_is_loaded_from_an_archive_in_the_allocation_and_removed_after_use(bench: Bench) -> None:
    await bench.configure(gc={"image_delay": "100ms"})
    bench.engine.run("import", "-", "yurt-test/loaded:1", data=small_archive(b"x"))
    request = bench.request(shell("true"))
    archive = os.path.join(request.dirs.local_dir, "image.tar")
    bench.engine.save("yurt-test/loaded:1", archive)
    config = {"image": "yurt-test/loaded:1", "load": "image.tar", "command": "/none"}
    with pytest.raises(DriverError, match="/none"):
        await bench.start(config)
    await bench.until(lambda: not bench.engine.run("images", "-q", "yurt-test/loaded:1").stdout, "the image went")


def small_archive(content: bytes) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        entry = tarfile.TarInfo("file")
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    return made.getvalue()


async def test_an_archive_outside_the_allocation_is_refused(bench: Bench) -> None:
    with pytest.raises(DriverError, match="leads out of the allocation"):
        await bench.start({"image": IMAGE, "load": "../../../../../../etc/hostname"})


async def test_an_archive_that_is_a_pipe_or_a_folder_is_refused_at_once(bench: Bench) -> None:
    request = bench.request({"image": IMAGE, "load": "archive"})
    os.mkfifo(Path(request.dirs.local_dir) / "archive")
    os.mkdir(Path(request.dirs.task_dir) / "folder")
    for name in ("archive", "folder"):
        with pytest.raises(DriverError, match="is not a file in the task's local folder"):
            await bench.start({"image": IMAGE, "load": name})


async def test_a_start_that_is_given_up_leaves_no_container(bench: Bench) -> None:
    await bench.until_health(HEALTHY)
    starting = asyncio.get_running_loop().create_task(bench.driver.start_task(bench.request(shell("sleep 1000"))))
    await bench.until(lambda: any("making" in each.get_name() for each in work_of(bench)), "the creation")
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    await bench.until(lambda: not any("container" in each.get_name() for each in work_of(bench)), "the removal")
    assert bench.containers() == []


def work_of(bench: Bench) -> set[asyncio.Task[Any]]:
    """The driver's background tasks, except those that always run."""
    return {task for task in bench.driver._background.tasks if "dangling" not in task.get_name()}


async def test_mounts_of_every_kind_hold_what_they_should(bench: Bench) -> None:
    await bench.configure(volumes={"enabled": True})
    (bench.folder / "shared").mkdir()
    (bench.folder / "shared" / "file").write_text("from the host")
    mounts = [
        {"type": "bind", "source": str(bench.folder / "shared"), "target": "/b", "readonly": True},
        {"type": "tmpfs", "target": "/t", "tmpfs_options": {"size": 65536}},
        {"type": "volume", "target": "/v"},
    ]
    script = "cat /b/file; echo; touch /b/x || echo locked; grep -c -E ' /t tmpfs .*size=64k' /proc/mounts; touch /v/x"
    result, output = await bench.run(shell(script, mount=mounts))
    assert output.splitlines() == ["from the host", "locked", "1"]
    assert result.is_success


async def test_what_the_operator_allows_reaches_the_process(bench: Bench) -> None:
    await bench.configure(
        volumes={"enabled": True}, allow_caps=["net_admin"], allowed_modes={"pid": ["host"], "ipc": ["host"]}
    )
    script = "readlink /proc/self/ns/pid; readlink /proc/self/ns/ipc; ls /dev/other; grep CapEff /proc/self/status"
    options = {"pid_mode": "host", "ipc_mode": "host", "cap_add": ["net_admin"]}
    devices = [{"host_path": "/dev/null", "container_path": "/dev/other"}]
    _, output = await bench.run(shell(script, devices=devices, **options))
    pid, ipc, device, _, capabilities = output.split()
    assert (pid, ipc) == (os.readlink("/proc/self/ns/pid"), os.readlink("/proc/self/ns/ipc"))
    assert (device, int(capabilities, 16) >> CAP_NET_ADMIN & 1) == ("/dev/other", 1)


def has_all_capabilities() -> bool:
    status = Path("/proc/self/status").read_text()
    bounding = next(line.split()[1] for line in status.splitlines() if line.startswith("CapBnd"))
    return int(bounding, 16) == (2 << int(Path("/proc/sys/kernel/cap_last_cap").read_text())) - 1


async def test_a_privileged_container_is_refused_then_allowed(bench: Bench) -> None:
    config = shell("grep CapEff /proc/self/status", privileged=True)
    with pytest.raises(DriverError, match="allow_privileged"):
        await bench.start(config)
    if not has_all_capabilities():
        pytest.skip("this machine's root lacks capabilities, so the engine can give nobody all of them")
    await bench.configure(allow_privileged=True)
    _, output = await bench.run(config)
    assert int(output.split()[1], 16) >> CAP_SYS_ADMIN & 1 == 1


async def test_a_fixed_address_in_a_network_of_the_user(bench: Bench) -> None:
    _, prefix = own_subnet()
    made = bench.engine.run("network", "create", "--subnet", f"{prefix}.0/24", "yurt-test-lan")
    assert made.returncode == 0, made.stderr
    try:
        handle = await bench.start(shell("sleep 1000", network_mode="yurt-test-lan", ipv4_address=f"{prefix}.44"))
        assert handle.state["address"] == f"{prefix}.44"
        await bench.driver.destroy_task(handle.task_id)
    finally:
        bench.engine.run("network", "rm", "yurt-test-lan")


def test_without_an_engine_neither_the_docker_package_nor_the_driver_s_own_module_is_imported() -> None:
    script = """
import asyncio, sys
from yurt.sdk.driver import PluginContext
from yurt_driver_docker.plugin import yurt_task_drivers

async def main():
    (driver,) = yurt_task_drivers(PluginContext(config={"endpoint": "unix:///nowhere/docker.sock"}))
    found = await anext(driver.fingerprint())
    await driver.close()
    late = ("docker", "requests", "yurt_driver_docker.driver", "yurt.sdk.containers.engine")
    print(found.health, [name for name in late if name in sys.modules])

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False, timeout=LIMIT_S)
    assert done.stdout.split() == [b"undetected", b"[]"], done.stderr
