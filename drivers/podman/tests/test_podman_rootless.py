"""Containers of an ordinary user's podman and of root's podman under one driver."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from yurt.sdk.driver import HEALTHY, PortGiven
from yurt.sdk.value import replace, seconds
from yurt.testing.agent import wait_for
from yurt.testing.driver_suite import DriverBench
from yurt.testing.services.engines import PodmanEngine, missing
from yurt.testing.unique_ports import free_ports
from yurt_driver_podman.config import plugin_config
from yurt_driver_podman.driver import PodmanDriver

NOBODY = 65534


@pytest.fixture(scope="module")
def reachable() -> Iterator[Path]:
    """A folder that every user can reach, as the data directory of an agent is."""
    folder = Path(tempfile.mkdtemp(prefix="yurt-rootless-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def rootless(reachable: Path) -> Iterator[PodmanEngine]:
    """The engine of the user nobody."""
    reason = missing("podman", "runc", "conmon", "busybox", "unshare", "setpriv")
    if reason:
        pytest.skip(reason)
    allowed = subprocess.run(["unshare", "-U", "-r", "true"], check=False, user=NOBODY, capture_output=True, cwd="/")
    if allowed.returncode != 0:
        pytest.skip(f"users get no namespaces here: {allowed.stderr.decode().strip()}")
    folder = reachable / "engine"
    folder.mkdir()
    made = PodmanEngine(folder, uid=NOBODY)
    try:
        made.start()
        made.import_image()
        yield made
    finally:
        made.stop()


@pytest.fixture
def folder(reachable: Path) -> Path:
    """A folder of one test."""
    made = Path(tempfile.mkdtemp(dir=reachable))
    made.chmod(0o755)
    return made


@pytest_asyncio.fixture
async def bench(rootless: PodmanEngine, engine: PodmanEngine, folder: Path) -> AsyncIterator[DriverBench]:
    """A driver on both engines."""
    sockets = [
        {"name": "default", "socket_path": str(engine.socket)},
        {"name": "nobody", "socket_path": str(rootless.socket)},
    ]
    made = DriverBench(
        lambda context: PodmanDriver(plugin_config(replace(context, config={"socket": sockets}))), folder
    )
    yield made
    await made.close()


def shell(script: str, **config: Any) -> dict[str, Any]:
    """A task of the user's engine that runs a shell script."""
    own = {"socket": "nobody", "network_mode": "none"}
    return {"image": PodmanEngine.image, "command": "sh", "args": ["-c", script], **own, **config}


async def test_root_inside_is_the_user_outside(bench: DriverBench, rootless: PodmanEngine) -> None:
    handle = await bench.start(shell("echo as $(id -u); trap 'echo end; exit 3' TERM; while true; do sleep 0.1; done"))
    assert os.stat(f"/proc/{handle.pid}").st_uid == NOBODY
    assert str(handle.state["container_id"]) in rootless.containers()
    result = await bench.driver.exec_task(handle.task_id, ("sh", "-c", "id -u; exit 4"), timeout=seconds(20))
    assert (result.exit_code, result.stdout) == (4, b"0\n")

    await bench.driver.stop_task(handle.task_id, signal="SIGTERM", timeout=seconds(20))

    assert (await bench.wait(handle.task_id)).exit_code == 3
    assert bench.text().split("\n")[:2] == ["as 0", "end"]


def closed_allocation(bench: DriverBench) -> Path:
    """The directory of the allocation, closed as a client makes it."""
    bench.request({"image": PodmanEngine.image})
    alloc = bench.folder / "alloc"
    alloc.chmod(0o700)
    (alloc / "web" / "local").chmod(0o777)
    return alloc


async def test_the_engine_of_a_user_passes_through_the_closed_directory_of_an_allocation(bench: DriverBench) -> None:
    alloc = closed_allocation(bench)
    handle = await bench.start(shell("echo in > /local/made"))
    assert (await bench.wait(handle.task_id)).exit_code == 0
    assert (alloc / "web" / "local" / "made").read_text() == "in\n"
    assert not alloc.stat().st_mode & 0o007


async def test_the_next_agent_finds_the_users_container_again(bench: DriverBench, rootless: PodmanEngine) -> None:
    handle = await bench.start(shell("while [ ! -e /local/stop ]; do sleep 0.1; done; exit 6"))
    await bench.throw_away()
    await bench.driver.recover_task(handle)
    (bench.folder / "alloc" / "web" / "local" / "stop").touch()
    assert (await bench.wait(handle.task_id)).exit_code == 6
    await bench.driver.destroy_task(handle.task_id)
    assert str(handle.state["container_id"]) not in rootless.containers()


async def test_a_node_tells_which_of_its_engines_have_no_root(bench: DriverBench) -> None:
    async for found in bench.driver.fingerprint():
        rootless = {name: text for name, text in found.attributes.items() if name.endswith("rootless")}
        if found.health == HEALTHY and len(rootless) == 2:
            break
    assert rootless == {"driver.podman.rootless": "false", "driver.podman.nobody.rootless": "true"}


@pytest.mark.skipif(
    shutil.which("slirp4netns") is None, reason="slirp4netns is not installed (apt install slirp4netns)"
)
@pytest.mark.parametrize("mode", ["", "slirp4netns:mtu=1400"])
async def test_a_port_of_a_users_container_answers_through_slirp4netns(bench: DriverBench, mode: str) -> None:
    (number,) = free_ports(1)
    script = "cat /sys/class/net/tap0/mtu; exec httpd -f -p 80 -h /local"
    request = bench.request(shell(script, network_mode=mode, ports=["http"]))
    (Path(request.dirs.local_dir) / "page").write_text("over slirp")
    port = PortGiven(label="http", host_ip="127.0.0.1", host_port=number, to=80)
    bench.started.append(request.task_id)
    await bench.driver.start_task(replace(request, ports=(port,)))

    def answer() -> str:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{number}/page", timeout=5) as read:
            return str(read.read().decode())
        return ""

    assert await asyncio.to_thread(wait_for, "an answer", answer, 60.0) == "over slirp"
    mtu = "1400\n" if mode else "65520\n"
    # The port answers before the log has reached the file.
    assert await asyncio.to_thread(wait_for, "the size of packets", bench.text) == mtu


async def test_engines_know_their_own_images_and_containers(
    bench: DriverBench, engine: PodmanEngine, rootless: PodmanEngine
) -> None:
    ours = await bench.start(shell("sleep 1000", init=False), name="ours")
    roots = await bench.start(shell("sleep 1000", socket="default"), name="roots")
    assert str(ours.state["container_id"]) not in engine.containers()
    seen = json.loads(engine.run("inspect", str(roots.state["container_id"])).stdout)[0]
    assert seen["State"]["Running"]
    assert os.stat(f"/proc/{roots.pid}").st_uid == 0
