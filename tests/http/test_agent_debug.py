"""What agents tell of themselves to who looks for a fault: the machine, profiles and kept log lines."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from pathlib import Path

import pytest
from yurt.runtime import diagnostics
from yurt.runtime.diagnostics import REDACTED, REFUSED, agent_diagnostics
from yurt.testing.http_api import NODE_ID, Api, add_ready_node, serving

SECRET = "s3cr3t-of-the-agent"
MANY = 1_700_000
"""The number of objects that the collector lists in about 50 ms, while no other thread runs."""


@pytest.fixture
async def debug_api() -> AsyncIterator[Api]:
    async with serving(facts={"enable_debug": True}) as found:
        yield found


async def test_the_machine_is_shown_in_nomads_shape_and_without_secrets(
    debug_api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", f"postgres://me:{SECRET}@db")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    answer = await debug_api.get("/v1/agent/host")
    found = answer.json["HostData"]
    assert answer.json["AgentID"] == "test"
    assert found.keys() == {"OS", "Network", "ResolvConf", "Hosts", "Environment", "Disk"}
    assert SECRET not in answer.text and found["Environment"]["DATABASE_URL"] == REDACTED
    assert found["Environment"]["LC_ALL"] == "C.UTF-8"
    assert {"name", "address", "netmask"} == found["Network"][0].keys()
    assert all(disk.keys() == {"DiskMB", "UsedMB"} for disk in found["Disk"].values())


async def test_threads_and_tasks_are_told_counted_and_one_by_one(debug_api: Api) -> None:
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(asyncio.Event().wait(), name=f"waits {number}") for number in range(3)]
        counted = await debug_api.get("/v1/agent/pprof/goroutine?debug=1")
        single = await debug_api.get("/v1/agent/pprof/goroutine?debug=2")
        for each in waiting:
            each.cancel()
    assert counted.text.startswith("threads and tasks: total ") and "\n3 task\n" in counted.text
    assert all(f'task "waits {number}":\n    Event.wait (' in single.text for number in range(3))
    assert 'thread "MainThread":\n' in single.text


async def test_a_profile_is_sampled_and_the_command_line_shown(debug_api: Api) -> None:
    profile = await debug_api.get("/v1/agent/pprof/profile?seconds=1")
    stack, _, count = profile.text.splitlines()[0].rpartition(" ")
    assert ";" in stack and int(count) > 0
    assert (await debug_api.get("/v1/agent/pprof/cmdline")).status == 200
    at_once = await debug_api.get("/v1/agent/pprof/profile?seconds=0")  # what Go's client sends unasked
    assert all(line.endswith(" 1") for line in at_once.text.splitlines()) and at_once.text


@pytest.mark.parametrize("name", ["heap", "allocs"])
async def test_the_objects_of_each_type_are_counted_with_their_bytes(debug_api: Api, name: str) -> None:
    kept = [Counted() for _ in range(1_000)]
    answer = await debug_api.get(f"/v1/agent/pprof/{name}")
    size, count, kind = next(line for line in answer.text.splitlines() if line.endswith(".Counted")).split()
    assert (int(count), int(size) >= 16 * len(kept), kind) == (len(kept), True, f"{__name__}.Counted")
    assert answer.text.startswith("objects: total ")


async def test_the_loop_goes_on_while_many_objects_are_counted(debug_api: Api) -> None:
    kept: list[object] = [[] for _ in range(MANY)]
    turns, is_over = 0, False

    async def count_turns() -> None:
        nonlocal turns
        while not is_over:
            await asyncio.sleep(0.01)
            turns += 1

    counting = asyncio.create_task(count_turns())
    answer = await debug_api.get("/v1/agent/pprof/heap")
    is_over = True
    await counting

    lists = next(line for line in answer.text.splitlines() if line.endswith(" builtins.list"))
    assert int(lists.split()[1]) >= len(kept)
    assert int(lists.split()[0]) >= len(kept) * [].__sizeof__()
    assert turns >= 5, "they are counted in a thread of their own"


@pytest.mark.parametrize("name", ["profile", "trace"])
async def test_samples_are_waited_for_outside_the_event_loop(
    debug_api: Api, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = set[int]()

    def sleep(seconds: float) -> None:
        threads.add(threading.get_ident())
        threading.Event().wait(seconds)

    monkeypatch.setattr(diagnostics.time, "sleep", sleep)
    assert (await debug_api.get(f"/v1/agent/pprof/{name}?seconds=0")).status == 200
    assert threads and threading.get_ident() not in threads


async def _waiting() -> None:
    await asyncio.Event().wait()


async def test_the_bytes_of_coroutines_are_theirs_and_frozen_objects_are_named(debug_api: Api) -> None:
    kept = [_waiting() for _ in range(100)], (number for number in range(3)), Unmeasured()
    answer = await debug_api.get("/v1/agent/pprof/heap")
    first, second, *lines = answer.text.splitlines()
    words = first.split()
    assert int(words[words.index("bytes") + 1]) < 4 * int(words[words.index("resident") + 1])
    sizes = {kind: int(size) for size, _, kind in (line.split(" ", 2) for line in lines)}
    assert 100 * 50 < sizes["builtins.coroutine"] < 10**7
    assert sizes[f"{__name__}.Unmeasured"] == 0
    assert second == f"not listed, because the collector has frozen them: {gc.get_freeze_count()}"
    for each in kept[0]:
        each.close()


class Unmeasured:
    """An object that cannot tell its size."""

    def __sizeof__(self) -> int:
        raise ValueError("unknown")


class Counted:
    """An object to be counted."""


async def test_a_trace_has_a_line_for_each_change_of_what_a_thread_does(debug_api: Api) -> None:
    began, go_on = threading.Event(), threading.Event()

    def work() -> None:
        began.wait()
        go_on.wait()

    thread = threading.Thread(target=work, name="traced")
    thread.start()
    asyncio.get_running_loop().call_later(0.5, began.set)
    lines = [line.split(" ", 2) for line in (await debug_api.get("/v1/agent/pprof/trace?seconds=1")).text.splitlines()]
    began.set()
    go_on.set()
    thread.join()
    first, *_, last = [(int(at), stack) for at, name, stack in lines if name == "traced"]
    assert first[0] < 400 <= last[0] < 2_000 and first[1] != last[1]


async def test_waiting_tasks_and_threads_have_profiles_of_their_own(debug_api: Api) -> None:
    blocked = (await debug_api.get("/v1/agent/pprof/block")).text
    threads = (await debug_api.get("/v1/agent/pprof/threadcreate")).text
    assert " task\n" in blocked and " thread\n" not in blocked
    assert 'thread "MainThread":\n' in threads and 'task "' not in threads


@pytest.mark.parametrize(("path", "status", "text"), [
    ("pprof/goroutine", 400, "use debug=1"), ("pprof/profile?seconds=61", 400, "from 0 to 60"),
    ("pprof/profile?seconds=-1", 400, "from 0 to 60"), ("pprof/mutex", 404, '"mutex" is a profile of Go programs'),
    ("pprof/odd", 404, "Unknown profile: odd"), ("pprof/", 404, "Invalid method"), ("pprof/a/b", 404, "Invalid method"),
    ("monitor/export", 400, "either on_disk or service_name"), ("monitor/export?on_disk=true", 400, "no log file"),
    ("monitor/export?on_disk=true&service_name=yurt", 400, "cannot be used together"),
    ("monitor/export?service_name=sshd", 400, "must begin with yurt or nomad"),
    ("monitor/export?service_name=yurt;id", 400, "must begin with yurt or nomad"),
    ("monitor/export?service_name=yurt&logs_since=soon", 400, "must be a duration"),
    ("host?server_id=nobody", 500, "unknown Nomad server nobody"), ("host?node_id=x", 404, 'Unknown node "x"'),
])  # fmt: skip
async def test_what_cannot_be_told_is_refused(debug_api: Api, path: str, status: int, text: str) -> None:
    answer = await debug_api.get(f"/v1/agent/{path}")
    assert (answer.status, text in answer.text) == (status, True), answer.text


@pytest.mark.parametrize("path", ["host", "pprof/cmdline", "pprof/goroutine?debug=2", "pprof/profile"])
async def test_without_enable_debug_an_agent_tells_nothing_of_itself(api: Api, path: str) -> None:
    answer = await api.get(f"/v1/agent/{path}")
    assert (answer.status, answer.text) == (403, REFUSED)


class Node:
    """A client of another machine whose operator has not set enable_debug."""

    def agent_insides(self, *, what: str, options: Mapping[str, str]) -> AsyncGenerator[bytes]:
        return agent_diagnostics(what, options, is_debug=False)


async def test_a_node_decides_by_its_own_configuration(debug_api: Api, journal: Path) -> None:
    await add_ready_node(debug_api)
    debug_api.server.clients.node_ports.attach(NODE_ID, Node())  # type: ignore[arg-type]
    host = await debug_api.get(f"/v1/agent/host?node_id={NODE_ID}")
    lines = await debug_api.get(f"/v1/agent/monitor/export?service_name=yurt&plain=true&node_id={NODE_ID}")
    assert (host.status, host.text) == (403, REFUSED)
    assert lines.text.startswith("asked: --unit yurt ")


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A journalctl that says what it was asked and, when it is to follow, stays."""
    program = tmp_path / "journalctl"
    told = 'echo $$ > "$0.new"; mv "$0.new" "$0.pid"'
    program.write_text(f'#!/bin/sh\necho "asked: $*"\ncase "$*" in *--follow*) {told}; exec sleep 300;; esac\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return program


async def test_lines_of_the_journal_are_exported(api: Api, journal: Path) -> None:
    plain = await api.get("/v1/agent/monitor/export?service_name=yurt.service&plain=true")
    framed = await api.get("/v1/agent/monitor/export?service_name=nomad&logs_since=1m30s")
    assert plain.text == "asked: --unit yurt.service --no-pager --output short-iso --since=-259200s\n"
    data = [base64.b64decode(json.loads(line).get("Data", "")) for line in framed.text.splitlines()]
    assert b"".join(data) == b"asked: --unit nomad --no-pager --output short-iso --since=-90s\n"


async def test_a_journal_that_is_followed_ends_with_its_reader(api: Api, journal: Path) -> None:
    path = "/v1/agent/monitor/export?service_name=yurt&follow=true&plain=true"
    async with asyncio.timeout(60), api.client.get(path) as answer:
        assert (await answer.content.readline()).endswith(b"--since=-259200s --follow --lines all\n")
        while not Path(f"{journal}.pid").exists():  # noqa: ASYNC110, ASYNC240 - a process writes it
            await asyncio.sleep(0.01)
        pid = int(Path(f"{journal}.pid").read_text())  # noqa: ASYNC240
    async with asyncio.timeout(60):
        while Path(f"/proc/{pid}").exists():  # noqa: ASYNC110, ASYNC240 - a process ends
            await asyncio.sleep(0.01)


async def test_without_systemd_there_is_no_journal(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    answer = await api.get("/v1/agent/monitor/export?service_name=yurt")
    assert (answer.status, "there is no journal of systemd" in answer.text) == (400, True)
