"""Containers of a real podman: what they may do, and what becomes of them when the engine hangs or dies."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from yurt.sdk.deferred import DeferredDriver
from yurt.sdk.driver import HEALTHY, UNDETECTED, UNHEALTHY, PluginContext, PortGiven
from yurt.sdk.errors import DriverError, NotFound, RecoverableError
from yurt.sdk.value import replace, seconds
from yurt.testing.driver_suite import DriverBench
from yurt.testing.driver_suite.bench import eventually
from yurt.testing.services.engines import PodmanEngine
from yurt.testing.unique_ports import quiet_port
from yurt_driver_podman.config import plugin_config
from yurt_driver_podman.driver import PodmanDriver
from yurt_driver_podman.ended_commands import pids, read
from yurt_driver_podman.engine import PodmanCalls, new_engine
from yurt_driver_podman.plugin import yurt_task_drivers

LIMIT_S = 60.0


def shell(script: str, **config: Any) -> dict[str, Any]:
    """A task that runs a shell script."""
    return {"image": PodmanEngine.image, "command": "sh", "args": ["-c", script], "network_mode": "none", **config}


@pytest_asyncio.fixture
async def bench(engine: PodmanEngine, tmp_path: Path) -> AsyncIterator[DriverBench]:
    """A driver on the engine that lets tasks do all that an operator can allow."""
    options = {
        "socket_path": str(engine.socket), "volumes": {"enabled": True}, "allow_privileged": True,
        "gc": {"image_delay": "100ms", "dangling_containers": {"period": "1s", "creation_grace": "3s"}},
    }  # fmt: skip
    made = DriverBench(lambda context: PodmanDriver(plugin_config(replace(context, config=options))), tmp_path)
    yield made
    await made.close()


async def until(what: str, holds: Callable[[], Any]) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(LIMIT_S):
        while not holds():  # noqa: ASYNC110 - what others do is looked at
            await asyncio.sleep(0.02)
    assert holds(), what


async def until_health(bench: DriverBench, health: str) -> str:
    """Wait for a fingerprint; its description."""
    async with asyncio.timeout(LIMIT_S):
        async for found in bench.driver.fingerprint():
            if found.health == health:
                return found.description
    raise AssertionError(health)


def is_gone(engine: PodmanEngine, image: str) -> bool:
    """Whether the engine does not have an image."""
    return engine.run("image", "exists", image).returncode != 0


def monitors(container_id: str) -> list[int]:
    """The processes of podman that look after a container and the commands in it."""
    return [pid for pid in pids() if container_id.encode() in read(pid, "cmdline").split(b"\0")]


def shown(bench: DriverBench) -> str:
    """All that the task wrote to its standard output."""
    return "".join(path.read_text() for path in bench.output())


@pytest.mark.parametrize(("failures", "is_known"), [(0, True), (4, True), (5, False)])
async def test_a_container_whose_process_ends_while_podman_reads_of_it_is_asked_for_again(
    tmp_path: Path, failures: int, is_known: bool
) -> None:
    asked = 0

    async def answer(request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        if asked <= failures:
            return web.json_response({"message": "read /proc/10193/cgroup: no such process"}, status=500)
        return web.json_response({"Id": "abc"})

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.UnixSite(runner, str(tmp_path / "podman.sock")).start()
    acts = PodmanCalls(new_engine(str(tmp_path / "podman.sock")))
    try:
        if is_known:
            assert await acts.inspect("abc") == {"Id": "abc"}
        else:
            with pytest.raises(RecoverableError, match="no such process"):
                await acts.inspect("abc")
    finally:
        await acts.engine.close()
        await runner.cleanup()
    assert asked == min(failures + 1, 5)


async def test_an_engine_that_is_not_there_is_undetected_with_the_way_to_get_one(tmp_path: Path) -> None:
    (driver,) = yurt_task_drivers(PluginContext(config={"socket_path": str(tmp_path / "no.sock")}))
    found = await anext(driver.fingerprint())
    assert isinstance(driver, DeferredDriver)
    assert not driver.is_made
    await driver.close()
    assert found.health == UNDETECTED
    assert "podman.socket" in found.fix


async def test_options_reach_the_container(bench: DriverBench) -> None:
    script = (
        "hostname; id -u; cat /proc/sys/net/core/somaxconn; grep -c tmpfs.*/scratch /proc/mounts;"
        " touch /x 2>/dev/null || echo readonly; grep NoNewPrivs /proc/self/status; stat -c %t:%T /dev/mine;"
        " grep -o '8388608' /proc/mounts | head -1; df -k /dev/shm | tail -1 | tr -s ' ' | head -c 8"
    )
    config = shell(
        script, hostname="box", sysctl={"net.core.somaxconn": "99"}, tmpfs=["/scratch"], readonly_rootfs=True,
        security_opt=["no-new-privileges"], devices=["/dev/null:/dev/mine"], shm_size="8m", init=False,
        ulimit={"nofile": "64:64", "nproc": "64:64"}, cap_drop=["all"],
    )  # fmt: skip
    result = await bench.run(config)
    assert result.is_success or result.exit_code == 1
    assert shown(bench).split()[:7] == ["box", "0", "99", "1", "readonly", "NoNewPrivs:", "1"]
    assert "1:3" in shown(bench)


async def test_a_container_shares_the_network_of_another_task(bench: DriverBench) -> None:
    await bench.start(shell("exec httpd -f -p 127.0.0.1:8080 -h /local", network_mode="none"), name="proxy")
    (bench.folder / "alloc" / "proxy" / "local" / "index.html").write_text("shared")
    ask = "printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc 127.0.0.1 8080"
    result = await bench.run(shell(ask, network_mode="task:proxy"), name="asker")
    assert (result.exit_code, bench.output(name="asker")[0].read_text().endswith("shared")) == (0, True)


async def test_a_container_joins_a_namespace_by_its_path(bench: DriverBench) -> None:
    handle = await bench.start(shell("sleep 1000"), name="owner")
    request = bench.request(shell("readlink /proc/self/ns/net", network_mode=""), name="guest")
    bench.started.append(request.task_id)
    path = f"/proc/{handle.pid}/ns/net"
    await bench.driver.start_task(replace(request, network_namespace=path))
    await bench.wait(request.task_id)
    assert bench.output(name="guest")[0].read_text().strip() == os.readlink(path)


async def test_a_terminal_has_one_stream(bench: DriverBench) -> None:
    await bench.run(shell("echo out; echo err >&2; test -t 1 && echo terminal", tty=True))
    assert shown(bench).split() == ["out", "err", "terminal"]


async def test_a_flood_is_collected_over_the_engines_own_rotation(bench: DriverBench) -> None:
    config = shell("seq 1 20000", logging={"driver": "k8s-file", "options": {"max-size": "100k"}})
    await bench.run(config)
    numbers = [int(line) for line in shown(bench).split()]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == 20000


async def test_an_engine_that_hangs_is_unhealthy_and_nothing_hangs_with_it(
    bench: DriverBench, engine: PodmanEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = await bench.start(shell("while [ ! -e /local/stop ]; do echo x; sleep 0.1; done; exit 6"))
    waiting = asyncio.get_running_loop().create_task(bench.wait(handle.task_id))
    await until_health(bench, HEALTHY)
    monkeypatch.setattr("yurt.sdk.containers.engine.ASK_S", 2.0)
    engine.send(signal.SIGSTOP)
    try:
        assert "did not answer" in await until_health(bench, UNHEALTHY)
        with pytest.raises(DriverError, match="did not answer"):
            await asyncio.wait_for(bench.start(shell("true"), name="other"), LIMIT_S)
        before = len(shown(bench))
        await until("output goes on without the engine", lambda: len(shown(bench)) > before)
        (bench.folder / "alloc" / "web" / "local" / "stop").touch()
    finally:
        engine.send(signal.SIGCONT)
    assert (await waiting).exit_code == 6
    await until_health(bench, HEALTHY)


async def test_an_end_while_the_engine_is_dead_is_told_when_it_is_back(
    bench: DriverBench, engine: PodmanEngine
) -> None:
    handle = await bench.start(shell("while [ ! -e /local/stop ]; do sleep 0.02; done; exit 6"))
    engine.kill()
    try:
        await until_health(bench, UNHEALTHY)
        await bench.throw_away()
        await bench.driver.recover_task(handle)
        (bench.folder / "alloc" / "web" / "local" / "stop").touch()
    finally:
        engine.start()
    assert (await bench.wait(handle.task_id)).exit_code == 6


async def test_the_next_run_of_a_task_clears_the_one_before_that_could_not_be_destroyed(
    bench: DriverBench, engine: PodmanEngine
) -> None:
    first = await bench.start(shell("while [ ! -e /local/stop ]; do sleep 0.02; done; exit 6"))
    following = bench.request(shell("sleep 1000"))
    following = replace(following, task_id=following.task_id.removesuffix("/0") + "/1")
    with pytest.raises(DriverError, match=r"is taken.*podman rm -f"):
        await bench.driver.start_task(following)
    (bench.folder / "alloc" / "web" / "local" / "stop").touch()
    assert (await bench.wait(first.task_id)).exit_code == 6

    engine.kill()
    try:
        await until_health(bench, UNHEALTHY)
        with pytest.raises(DriverError):
            await bench.driver.destroy_task(first.task_id)
    finally:
        engine.start()
    bench.started.append(following.task_id)
    second = await bench.driver.start_task(following)

    old, new = (str(handle.state["container_id"]) for handle in (first, second))
    assert [engine.run("container", "exists", each).returncode for each in (old, new)] == [1, 0]


async def test_a_container_that_needs_too_much_memory_is_reported_as_such(bench: DriverBench) -> None:
    handle = await bench.start(shell("sleep 1; dd if=/dev/zero of=/dev/null bs=500M count=1"))
    result = await bench.wait(handle.task_id)
    assert (result.oom_killed, result.is_success) == (True, False)


async def test_containers_that_no_task_knows_are_removed_and_those_of_others_stay(
    bench: DriverBench, engine: PodmanEngine
) -> None:
    engine.run("run", "--detach", "--name", "stranger", "--network", "none", PodmanEngine.image)
    handle = await bench.start(shell("sleep 1000"))
    await bench.throw_away()
    await until_health(bench, HEALTHY)
    await until("the container went", lambda: handle.state["container_id"] not in engine.containers())
    with pytest.raises(NotFound):
        await bench.driver.recover_task(handle)
    assert engine.run("rm", "--force", "--time", "0", "stranger").returncode == 0


async def test_an_archive_is_loaded_and_its_image_goes_after_its_last_task(
    bench: DriverBench, engine: PodmanEngine
) -> None:
    for kind in ("docker-archive", "oci-archive"):
        name = f"localhost/yurt-test/{kind}:1"
        request = bench.request(shell("echo loaded", image=f"{kind}:image.tar"), name=kind)
        engine.import_image(name)
        path = Path(request.dirs.local_dir) / "image.tar"
        assert engine.run("save", "--format", kind, "--output", str(path), name).returncode == 0
        engine.run("rmi", name)
        bench.started.append(request.task_id)
        await bench.driver.start_task(request)
        assert (await bench.wait(request.task_id)).is_success
        await bench.driver.destroy_task(request.task_id)
        await until("the image went", functools.partial(is_gone, engine, name))


async def test_an_image_that_is_nowhere_is_told_with_its_name(bench: DriverBench) -> None:
    with pytest.raises(DriverError, match=r"127\.0\.0\.1:9/absent:1"):
        await bench.start(shell("true", image="127.0.0.1:9/absent:1"))


async def test_rights_read_back_from_the_running_process_are_what_was_given(bench: DriverBench) -> None:
    script = "grep -E 'CapEff|CapBnd|NoNewPrivs' /proc/self/status; touch /x; [ -e /dev/kmsg ] || echo none"
    given = {"cap_drop": ["all"], "readonly_rootfs": True, "security_opt": ["no-new-privileges"], "init": False}
    handle = await bench.start(shell(f"{script}; sleep 1000", **given))
    await eventually("the words", lambda: "none" in bench.text())
    words = bench.text().split()
    assert words[:6] == ["CapEff:", "0" * 16, "CapBnd:", "0" * 16, "NoNewPrivs:", "1"]
    assert "x" not in os.listdir(f"/proc/{handle.pid}/root")
    for kind in ("pid", "ipc", "mnt", "net", "uts"):
        assert os.readlink(f"/proc/{handle.pid}/ns/{kind}") != os.readlink(f"/proc/self/ns/{kind}")


async def test_a_mapped_port_is_listened_to(bench: DriverBench, engine: PodmanEngine) -> None:
    request = bench.request(shell("exec httpd -f -p 80 -h /local", network_mode="bridge", ports=["http"]))
    (Path(request.dirs.local_dir) / "index.html").write_text("mapped")
    port = PortGiven(label="http", host_ip="", host_port=quiet_port(), to=80)
    bench.started.append(request.task_id)
    handle = await bench.driver.start_task(replace(request, ports=(port,)))
    seen = json.loads(engine.run("inspect", str(handle.state["container_id"])).stdout)[0]
    assert seen["HostConfig"]["PortBindings"]["80/tcp"] == [{"HostIp": "", "HostPort": str(port.host_port)}]
    assert handle.state["address"] == seen["NetworkSettings"]["Networks"]["podman"]["IPAddress"]


async def test_tasks_choose_among_the_engines_of_a_client(bench: DriverBench, engine: PodmanEngine) -> None:
    with pytest.raises(DriverError, match="socket block"):
        await bench.start(shell("true", socket="nobodys"))
    assert (await bench.run(shell("true", socket="default"))).is_success


@pytest.mark.parametrize("is_stream", [False, True])
async def test_of_a_command_that_has_ended_no_process_is_left(bench: DriverBench, is_stream: bool) -> None:
    handle = await bench.start(shell("exec sleep 1000"))
    container_id = handle.state["container_id"]
    assert len(monitors(container_id)) == 1
    if is_stream:
        session = await bench.driver.exec_stream(handle.task_id, ("sh", "-c", "echo inside; exit 3"), tty=False)
        assert [each.data async for each in session.output()] == [b"inside\n"]
        assert await session.wait() == 3
        await session.close()
    else:
        assert (await bench.driver.exec_task(handle.task_id, ("true",), timeout=seconds(20))).exit_code == 0
    await until("only the task's monitor", lambda: len(monitors(container_id)) == 1)


async def test_a_command_that_takes_too_long_is_killed(bench: DriverBench) -> None:
    handle = await bench.start(shell("exec sleep 1000"))
    with pytest.raises(DriverError, match="did not end within"):
        await bench.driver.exec_task(handle.task_id, ("sleep", "1000"), timeout=seconds(0.5))
