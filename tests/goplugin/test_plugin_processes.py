"""Processes of plugins: those that are none, hang, crash or change, and what the agent makes of them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from yurt.goplugin.driver import BinaryDriver, ask_facts
from yurt.goplugin.host import BinarySettings, find_binaries, load_binaries
from yurt.goplugin.plugin import BinaryPlugin
from yurt.goplugin.process import LINES_A_SECOND_MAX, LineLimit, PluginSpec, log_line, reattach_file
from yurt.goplugin.task_records import TaskRecords
from yurt.runtime.env import RealEnv
from yurt.sdk.driver import (
    HEALTHY,
    UNHEALTHY,
    NameServers,
    NetworkDriver,
    ProgressDriver,
    TaskDirs,
    TaskHandle,
    TaskRequest,
    TaskResources,
)
from yurt.sdk.errors import DriverError, Invalid, RecoverableError
from yurt.sdk.exec import STDOUT
from yurt.sdk.schema import decode_config
from yurt.sdk.value import replace, seconds
from yurt.testing.driver_suite import DriverBench

LIMIT_S = 60.0
SLEEP = {"command": "sleep", "args": ["1000"]}
MakePlugin = Callable[..., BinaryPlugin]


@pytest.fixture
async def make_plugin(tmp_path: Path) -> AsyncIterator[MakePlugin]:
    """Makes plugins that are ended after the test."""
    made: list[BinaryPlugin] = []

    def make(path: str, *, backoff_s: float = 0.05, ping_s: float = 15.0, **fields: Any) -> BinaryPlugin:
        name = Path(path).name
        spec = PluginSpec(
            name=name, path=path, folder=str(tmp_path / "host"), **{"handshake_limit_s": LIMIT_S, **fields}
        )
        plugin = BinaryPlugin(spec, RealEnv(), ping_s=ping_s, ping_limit_s=2.0, backoff_s=backoff_s)
        made.append(plugin)
        return plugin

    yield make
    for plugin in made:
        if not plugin.closed.is_set():
            await plugin.close(keeps_process=False)


async def connected_driver(plugin: BinaryPlugin) -> BinaryDriver:
    await plugin.connect()
    return BinaryDriver(plugin, RealEnv(), await ask_facts(plugin))


def request(driver: BinaryDriver, folder: Path, config: dict[str, Any]) -> TaskRequest:
    alloc = folder / "alloc"
    dirs = TaskDirs(
        alloc_dir=str(alloc), shared_dir=str(alloc / "alloc"), task_dir=str(alloc / "web"),
        local_dir=str(alloc / "web/local"), secrets_dir=str(alloc / "web/secrets"), logs_dir=str(alloc / "logs"),
    )  # fmt: skip
    for path in (dirs.local_dir, dirs.logs_dir):
        os.makedirs(path, exist_ok=True)
    return TaskRequest(
        task_id="a/web/0", alloc_id="a", task_name="web", job_id="job", group_name="g", namespace="default",
        config=decode_config(driver.task_config, config), env={"PATH": os.defpath}, dirs=dirs,
        resources=TaskResources(memory_mb=64),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("#!/bin/sh\necho hello\nsleep 100\n", 'it printed "hello" instead of the handshake'),
        ("#!/bin/sh\nexit 3\n", "exit code 3"),
        ("#!/bin/sh\nkill -9 $$\n", "signal 9"),
        ("#!/bin/sh\necho '1|1|unix|/nowhere|grpc'\nsleep 100\n", 'speaks version "1" of Nomad\'s plugin protocol'),
        ("#!/bin/sh\necho '1|2|tcp|127.0.0.1:1|netrpc'\nsleep 100\n", "netrpc"),
        ("#!/bin/sh\nhead -c 100000 /dev/zero | tr '\\0' x\nsleep 100\n", "instead of the handshake"),
        ("no program at all", "cannot be started: Exec format error"),
    ],
)
async def test_what_is_no_plugin_is_refused_and_ended(
    body: str, reason: str, make_script: Callable[[str, str], str], make_plugin: MakePlugin
) -> None:
    with pytest.raises(DriverError, match=reason):
        await make_plugin(make_script("wrong", body)).connect()


async def test_a_plugin_that_others_can_exchange_is_not_started(
    make_script: Callable[[str, str], str], make_plugin: MakePlugin, tmp_path: Path
) -> None:
    path = make_script("open", f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    os.chmod(path, 0o777)
    with pytest.raises(DriverError, match="is refused: other users can write"):
        await make_plugin(path).connect()
    assert not (tmp_path / "ran").exists()


async def test_a_program_that_says_nothing_is_killed_in_time(
    make_script: Callable[[str, str], str], make_plugin: MakePlugin
) -> None:
    plugin = make_plugin(make_script("silent", "#!/bin/sh\nexec sleep 1000\n"), handshake_limit_s=0.3)
    with pytest.raises(RecoverableError, match=r"no handshake within 0\.3 s"):
        await plugin.connect()


async def test_a_socket_that_nobody_serves_is_no_plugin(
    make_script: Callable[[str, str], str], make_plugin: MakePlugin, tmp_path: Path
) -> None:
    path = make_script("liar", f"#!/bin/sh\necho '1|2|unix|{tmp_path}/nobody|grpc'\nexec sleep 1000\n")
    with pytest.raises(RecoverableError, match="cannot be reached"):
        await make_plugin(path).connect()


async def test_a_wrong_configuration_is_told_by_the_options_of_the_plugin(
    serve_script: Callable[[str], str], make_plugin: MakePlugin
) -> None:
    with pytest.raises(Invalid, match=r'plugin "mock_driver".*fs_isolatio.*did you mean "fs_isolation"'):
        await make_plugin(serve_script("mock_driver"), config={"fs_isolatio": "none"}).connect()


async def test_a_crashed_plugin_is_started_again_and_its_tasks_go_on(
    serve_script: Callable[[str], str], make_plugin: MakePlugin, tmp_path: Path
) -> None:
    plugin = make_plugin(serve_script("raw_exec"), config={"enabled": True})
    driver = await connected_driver(plugin)
    handle = await driver.start_task(request(driver, tmp_path, SLEEP))
    before = plugin.pid
    answers = driver.fingerprint()
    assert (await anext(answers)).health == HEALTHY
    os.kill(before, signal.SIGKILL)
    assert (await asyncio.wait_for(anext(answers), LIMIT_S)).health == UNHEALTHY
    assert (await asyncio.wait_for(anext(answers), LIMIT_S)).health == HEALTHY
    assert plugin.pid not in (0, before)
    await driver.stop_task(handle.task_id, signal="SIGTERM", timeout=seconds(5))
    assert (await asyncio.wait_for(driver.wait_task(handle.task_id), LIMIT_S)).signal == signal.SIGTERM
    await driver.destroy_task(handle.task_id)
    await driver.close()


async def test_a_plugin_that_hangs_is_killed_and_started_again(
    serve_script: Callable[[str], str], make_plugin: MakePlugin
) -> None:
    plugin = make_plugin(serve_script("mock_driver"), ping_s=0.1)
    await plugin.connect()
    before = plugin.pid
    first = await plugin.ready()
    os.kill(before, signal.SIGSTOP)
    await plugin.ready(limit_s=LIMIT_S, after=first)
    assert plugin.pid != before
    assert not psutil.pid_exists(before)


async def test_a_plugin_over_mutual_tls_runs_a_command_with_its_streams(
    serve_script: Callable[[str], str], make_plugin: MakePlugin, tmp_path: Path
) -> None:
    plugin = make_plugin(serve_script("raw_exec"), config={"enabled": True}, is_encrypted=True)
    driver = await connected_driver(plugin)
    assert b"certificate" in reattach_file(plugin.spec).read_bytes()
    assert reattach_file(plugin.spec).stat().st_mode & 0o077 == 0
    handle = await driver.start_task(request(driver, tmp_path, SLEEP))
    session = await driver.exec_stream(handle.task_id, ("sh", "-c", "read x; echo got $x; exit 5"), tty=False)
    await session.write(b"words\n")
    await session.close_input()
    output = [each async for each in session.output()]
    assert b"".join(each.data for each in output if each.stream == STDOUT) == b"got words\n"
    assert await session.wait() == 5
    await session.close()
    assert (await driver.status(handle.task_id)) == {}
    await driver.destroy_task(handle.task_id)
    await driver.close()


async def test_another_program_at_the_same_place_replaces_the_old_process(
    serve_script: Callable[[str], str], make_plugin: MakePlugin
) -> None:
    path = serve_script("mock_driver")
    old = make_plugin(path)
    await old.connect()
    before = old.pid
    await old.close(keeps_process=True)
    same = make_plugin(path)
    await same.connect()
    assert same.pid == before
    await same.close(keeps_process=True)
    os.utime(path, ns=(1, 1))
    new = make_plugin(path)
    await new.connect()
    assert new.pid != before
    assert not psutil.pid_exists(before)


async def test_a_closed_plugin_leaves_nothing(serve_script: Callable[[str], str], make_plugin: MakePlugin) -> None:
    plugin = make_plugin(serve_script("mock_driver"))
    await plugin.connect()
    known = msgspec.json.decode(reattach_file(plugin.spec).read_bytes())
    pid = plugin.pid
    await plugin.close(keeps_process=False)
    assert not psutil.pid_exists(pid)
    with pytest.raises(FileNotFoundError):
        os.listdir(known["sockets"])
    assert not reattach_file(plugin.spec).exists()


async def test_all_binaries_of_a_folder_are_loaded_each_apart(
    serve_script: Callable[[str], str], make_script: Callable[[str, str], str], tmp_path: Path
) -> None:
    serve_script("mock_driver")
    make_script("silent", "#!/bin/sh\nexec sleep 1000\n")
    make_script(".hidden", "#!/bin/sh\ntouch ran\n")
    (tmp_path / "plugins" / "notes.txt").write_text("nothing to run")
    folder = str(tmp_path / "plugins")
    assert [path.name for path in find_binaries(folder)] == ["mock_driver", "silent"]
    settings = BinarySettings(plugin_dir=folder, state_dir=str(tmp_path / "state"), load_limit_s=6.0)
    mock, silent = await load_binaries(settings, RealEnv())
    assert mock.driver is not None and mock.driver.name == "mock_driver"
    assert silent.driver is None and "no handshake within 6 s" in silent.failure
    await mock.driver.close()


def test_lines_of_go_plugins_come_with_their_level(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG", logger="yurt.goplugin.process"):
        log_line("podman", b'{"@level":"warn","@message":"slow","@module":"podman","image":"x"}')
        log_line("podman", b"plain words")
        log_line("podman", b"")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "plugin podman: slow: image=x"),
        ("INFO", "plugin podman: plain words"),
    ]


@pytest.mark.parametrize(
    ("line", "level"),
    [
        (b"2026-01-02T03:04:05.678Z [WARN]  podman: slow", "WARNING"),
        (b"2026/01/02 03:04:05 [ERROR] no socket", "ERROR"),
        (b"[DEBUG] asked", "DEBUG"),
        (b"it says [ERROR] in the middle of a longer text", "INFO"),
        (b"panic: runtime error: index out of range [5]", "ERROR"),
        (b"[unknown] word", "INFO"),
    ],
)
def test_plain_lines_of_plugins_have_the_level_that_they_name(
    caplog: pytest.LogCaptureFixture, line: bytes, level: str
) -> None:
    with caplog.at_level("DEBUG"):
        log_line("podman", line)
    assert [record.levelname for record in caplog.records] == [level]


async def test_a_task_whose_start_the_agent_did_not_live_to_see_is_found_by_its_id(
    serve_script: Callable[[str], str], make_plugin: MakePlugin, tmp_path: Path
) -> None:
    path = serve_script("mock_driver")
    driver = await connected_driver(make_plugin(path))
    handle = await driver.start_task(request(driver, tmp_path, {"run_for": "1h"}))
    records = TaskRecords(str(tmp_path / "host" / "tasks"))
    record = records.read(handle.task_id)
    assert record is not None and record.is_answered
    records.write(msgspec.structs.replace(record, is_answered=False))
    await driver.close()
    next_driver = await connected_driver(make_plugin(path))
    await next_driver.recover_task(TaskHandle(driver="mock_driver", task_id=handle.task_id, version=0))
    await next_driver.stop_task(handle.task_id, signal="SIGTERM", timeout=seconds(5))
    assert (await asyncio.wait_for(next_driver.wait_task(handle.task_id), LIMIT_S)).signal == signal.SIGTERM
    await next_driver.destroy_task(handle.task_id)
    assert records.read(handle.task_id) is None
    await next_driver.close()


def test_a_plugin_that_talks_without_end_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    limit = LineLimit("loud")
    admitted = [limit.admits(7.5) for _ in range(LINES_A_SECOND_MAX + 30)]
    assert sum(admitted) == LINES_A_SECOND_MAX
    assert limit.admits(8.0)
    assert "30 lines were left out" in caplog.text


async def test_a_plugin_makes_and_removes_the_network_of_a_group(
    make_script: Callable[[str, str], str], make_plugin: MakePlugin, tmp_path: Path
) -> None:
    program = Path(__file__).with_name("network_plugin.py")
    driver = await connected_driver(
        make_plugin(make_script("maker", f"#!/bin/sh\nexec {sys.executable} {program} {tmp_path}\n"))
    )
    assert isinstance(driver, NetworkDriver)
    assert driver.capabilities.must_create_network
    path = await driver.create_network("alloc", hostname="box")
    assert path == str(tmp_path / "network-alloc-box")
    assert os.path.basename(path) in os.listdir(tmp_path)
    await driver.destroy_network("alloc")
    await driver.destroy_network("alloc")
    assert os.path.basename(path) not in os.listdir(tmp_path)
    await driver.close()


async def test_what_a_plugin_tells_before_a_start_is_heard(
    make_script: Callable[[str, str], str], make_plugin: MakePlugin, tmp_path: Path
) -> None:
    program = Path(__file__).with_name("telling_plugin.py")
    driver = await connected_driver(
        make_plugin(make_script("teller", f"#!/bin/sh\nexec {sys.executable} {program} {tmp_path}\n"))
    )
    assert isinstance(driver, ProgressDriver)
    bench = DriverBench(lambda _: driver, tmp_path / "bench")
    for number in range(20):  # The stream of events opens beside the first starts.
        request = bench.request({"run_for": "10s"}, name=f"web-{number}")
        asked = replace(
            request,
            resources=replace(request.resources, cpu_shares=500, node_cpu_shares=4000),
            name_servers=NameServers(servers=("10.0.0.2",)),
        )
        texts = driver.progress(asked.task_id)
        first = asyncio.ensure_future(anext(texts))
        bench.started.append(asked.task_id)
        await driver.start_task(asked)
        heard, _ = await asyncio.wait([first], timeout=1)
        first.cancel()
        if heard:
            break
    assert await first == "500 of 4000 MHz, asks ('10.0.0.2',)"
    await bench.close()
