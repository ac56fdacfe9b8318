"""Streams: events, the agent's log, and files and logs of allocations read through a node."""

from __future__ import annotations

import asyncio
import base64
import errno
import json
import logging
import re
import uuid
from collections.abc import AsyncIterator
from typing import Any, get_args

import aiohttp
import pytest
from aiohttp import web
from yurt.http.agent_info import AgentInfo
from yurt.http.app import make_app
from yurt.http.resources.events import parse_topics
from yurt.sdk.errors import NotFound
from yurt.server.views.events import EventFilter
from yurt.state.store import Change
from yurt.structs.commands import AnyCommand, PutHostVolume
from yurt.structs.rpc import AllocCheckStatus, AllocResourceUsage, FileInfo, HostStats, StreamFrame
from yurt.structs.volumes.host import HostVolume
from yurt.testing.events import events_of
from yurt.testing.http_api import NODE_ID, Api

KINDS = ("stdout", "stderr")
FILES = {"alloc/logs/main.stdout.0": b"hello\n", "local/page.html": b"<script>"}


class FileNode:
    """A connected node that serves a few files."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.reading_ended = asyncio.Event()

    async def list_files(self, alloc_id: str, path: str) -> tuple[FileInfo, ...]:
        return tuple(self._info(name) for name in sorted(FILES))

    async def stat_file(self, alloc_id: str, path: str) -> FileInfo:
        return self._info(path)

    def _info(self, path: str) -> FileInfo:
        if path not in FILES:
            raise NotFound(f"{path}: no such file or directory")
        kind = "text/html" if path.endswith("html") else "text/plain"
        return FileInfo(
            name=path, is_dir=False, size=len(FILES[path]), file_mode="-rw-r--r--", mod_time=1, content_type=kind
        )

    async def read_file(self, alloc_id: str, path: str, *, offset: int, limit: int) -> AsyncIterator[bytes]:
        yield FILES[path][offset : offset + limit if limit else None]

    async def stream_file(
        self, alloc_id: str, path: str, *, offset: int, origin: str, follow: bool
    ) -> AsyncIterator[StreamFrame]:
        yield StreamFrame(data=FILES[path], file=path)
        yield StreamFrame()

    async def stream_logs(
        self, alloc_id: str, task: str, *, kind: str, offset: int, origin: str, follow: bool
    ) -> AsyncIterator[StreamFrame]:
        if task == "broken":
            raise OSError(errno.EIO, "Input/output error")
        if task != "main":
            raise NotFound(f'task "{task}" not found')
        try:
            yield StreamFrame(data=b"hello\n", file="main.stdout.0")
            yield StreamFrame()
            while follow:
                await asyncio.sleep(0)
                yield StreamFrame()
        finally:
            self.reading_ended.set()

    async def alloc_stats(self, alloc_id: str, task: str) -> AllocResourceUsage:
        return AllocResourceUsage(timestamp=7)

    async def host_stats(self) -> HostStats:
        return HostStats(uptime=5)

    async def restart_alloc(self, alloc_id: str, *, task: str, all_tasks: bool) -> None:
        self.asked.append(("restart", task, all_tasks))

    async def signal_alloc(self, alloc_id: str, *, task: str, signal: str) -> None:
        self.asked.append(("signal", task, signal))

    async def pause_task(self, alloc_id: str, *, task: str, wish: str, is_paused: bool) -> None:
        assert is_paused == (wish == "pause"), "an agent of the version before schedules reads `is_paused` alone"
        self.asked.append(("pause", task, wish))

    async def schedule_state(self, alloc_id: str, *, task: str) -> str:
        return "pause" if ("pause", task, "pause") in self.asked[-1:] else "run"

    async def alloc_checks(self, alloc_id: str) -> tuple[AllocCheckStatus, ...]:
        return (AllocCheckStatus(id="c1", check="alive", service="web", status="success", status_code=200),)

    async def collect_garbage(self, alloc_id: str | None) -> None:
        self.asked.append(("gc", alloc_id))


@pytest.fixture
async def node(api_with_node: Api) -> FileNode:
    """A connected node."""
    found = FileNode()
    api_with_node.server.clients.node_ports.attach(NODE_ID, found)
    return found


@pytest.fixture
async def alloc_id(api_with_node: Api, node: FileNode) -> str:
    """An allocation on the connected node."""
    await api_with_node.register()
    (stub,) = await api_with_node.wait_until("/v1/job/web/allocations", len)
    return str(stub["ID"])


async def test_files_are_listed_and_described(api_with_node: Api, alloc_id: str) -> None:
    (log, _) = (await api_with_node.get(f"/v1/client/fs/ls/{alloc_id}?path=/")).json
    assert log == {
        "ContentType": "text/plain", "FileMode": "-rw-r--r--", "IsDir": False,
        "ModTime": "1970-01-01T00:00:00.000000001Z", "Name": "alloc/logs/main.stdout.0", "Size": 6,
    }  # fmt: skip
    missing = await api_with_node.get(f"/v1/client/fs/stat/{alloc_id}?path=nope")
    assert (missing.status, "no such file" in missing.text) == (404, True)
    assert (await api_with_node.get(f"/v1/client/fs/stat/{alloc_id}")).text == "must provide a file name"


async def test_a_file_is_read_whole_and_in_part(api_with_node: Api, alloc_id: str) -> None:
    path = f"{alloc_id}?path=alloc/logs/main.stdout.0"
    assert (await api_with_node.get(f"/v1/client/fs/cat/{path}")).text == "hello\n"
    assert (await api_with_node.get(f"/v1/client/fs/readat/{path}&offset=1&limit=3")).text == "ell"
    assert (await api_with_node.get(f"/v1/client/fs/readat/{path}")).status == 400
    assert (await api_with_node.get(f"/v1/client/fs/cat/{alloc_id}?path=nope")).status == 404
    assert (await api_with_node.get(f"/v1/client/fs/stream/{alloc_id}?path=nope")).status == 400
    assert (await api_with_node.get(f"/v1/client/fs/stream/{uuid.uuid4()}?path=nope")).status == 404


async def test_html_is_never_served_as_html(api_with_node: Api, alloc_id: str) -> None:
    answer = await api_with_node.get(f"/v1/client/fs/cat/{alloc_id}?path=local/page.html")
    assert answer.headers["Content-Type"].startswith("text/plain")


async def test_logs_come_in_frames_or_plain(api_with_node: Api, alloc_id: str) -> None:
    path = f"/v1/client/fs/logs/{alloc_id}?task=main&type=stdout"
    first, beat = (json.loads(line) for line in (await api_with_node.get(path)).text.splitlines())
    assert first == {"Data": base64.b64encode(b"hello\n").decode(), "File": "main.stdout.0", "Offset": 6}
    assert beat == {}
    assert (await api_with_node.get(f"{path}&plain=true")).text == "hello\n"
    stream = await api_with_node.get(f"/v1/client/fs/stream/{alloc_id}?path=alloc/logs/main.stdout.0")
    assert json.loads(stream.text.splitlines()[0])["Offset"] == 6


async def test_a_reader_that_leaves_a_followed_log_is_no_error(
    api_with_node: Api, node: FileNode, alloc_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    runner = web.AppRunner(make_app(api_with_node.server.http, None, AgentInfo()))  # As an agent runs it.
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    url = f"http://{host}:{port}/v1/client/fs/logs/{alloc_id}?task=main&type=stdout&follow=true"
    async with asyncio.timeout(60), aiohttp.ClientSession() as reader:
        response = await reader.get(url)
        assert b"Data" in await response.content.readline()
        response.close()
        await node.reading_ended.wait()
        await runner.cleanup()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize(
    ("query", "status", "text"),
    [
        ("", 400, "must provide task name"),
        ("task=main", 400, "must provide log type (stdout/stderr)"),
        ("task=main&type=stdout&origin=middle", 400, "origin must be start or end"),
        ("task=nope&type=stdout", 404, 'task "nope" not found'),
    ],
)
async def test_a_bad_log_request_has_a_status(
    api_with_node: Api, alloc_id: str, query: str, status: int, text: str
) -> None:
    answer = await api_with_node.get(f"/v1/client/fs/logs/{alloc_id}?{query}")
    assert (answer.status, answer.text) == (status, text)


async def test_actions_reach_the_node(api_with_node: Api, node: FileNode, alloc_id: str) -> None:
    path = f"/v1/client/allocation/{alloc_id}"
    assert (await api_with_node.put(f"{path}/restart")).json == {}
    assert (await api_with_node.put(f"{path}/restart", {"TaskName": "main"})).json == {}
    assert (await api_with_node.put(f"{path}/signal", {"Signal": "SIGHUP"})).json == {}
    assert (await api_with_node.get(f"{path}/gc")).status == 200
    assert node.asked == [
        ("restart", "", False), ("restart", "main", False), ("signal", "", "SIGHUP"), ("gc", alloc_id),
    ]  # fmt: skip
    assert (await api_with_node.put(f"{path}/restart", {"TaskName": "nope"})).status == 500
    assert (await api_with_node.get(f"{path}/stats")).json["Timestamp"] == 7
    assert (await api_with_node.get(f"/v1/client/stats?node_id={NODE_ID}")).json["Uptime"] == 5


async def test_a_task_is_paused_and_resumed(api_with_node: Api, node: FileNode, alloc_id: str) -> None:
    path = f"/v1/client/allocation/{alloc_id}/pause"
    assert (await api_with_node.get(path)).json == {"ScheduleState": "run"}
    assert (await api_with_node.put(path, {"Task": "main", "ScheduleState": "pause"})).status == 200
    assert (await api_with_node.get(f"{path}?task=main")).json == {"ScheduleState": "pause"}
    assert (await api_with_node.put(path, {"Task": "main", "ScheduleState": "scheduled"})).status == 200
    assert node.asked == [("pause", "main", "pause"), ("pause", "main", "scheduled")]
    wrong = await api_with_node.put(path, {"Task": "main", "ScheduleState": "stop"})
    assert (wrong.status, wrong.text) == (400, "Not a valid task schedule state: use pause, run, scheduled")


async def read_events(api: Api, query: str, count: int) -> list[dict[str, Any]]:
    """The first events of a stream."""
    return [event for line in await read_lines(api, query, count) for event in line["Events"]]


async def read_lines(api: Api, query: str, events: int) -> list[dict[str, Any]]:
    """The first lines of a stream, until they hold this number of events."""
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(60), api.client.get(f"/v1/event/stream?{query}") as response:
        assert await response.content.readline() == b"{}\n"
        while sum(len(line["Events"]) for line in found) < events:
            line = json.loads(await response.content.readline())
            found += [line] if line else []
    return found


async def test_the_event_stream_begins_with_the_buffered_events(api: Api) -> None:
    await api.register()
    job, evaluation = await read_events(api, "topic=Job&topic=Evaluation:web", 2)
    assert (job["Topic"], job["Type"], job["Key"]) == ("Job", "JobRegistered", "web")
    assert (evaluation["Topic"], evaluation["Type"]) == ("Evaluation", "JobRegistered")
    assert job["Payload"]["Job"]["ID"] == "web"


async def test_an_evaluation_that_blocks_and_the_blocked_one_have_lines_of_their_own(api: Api) -> None:
    await api.register()
    (blocked,) = await api.wait_until("/v1/evaluations?filter=Status==blocked", bool)
    first, second, third = await read_lines(api, "topic=Evaluation:web", 3)

    assert [len(line["Events"]) for line in (first, second, third)] == [1, 1, 1]
    assert first["Index"] < second["Index"] < third["Index"]
    assert second["Events"][0]["Key"] == blocked["ID"], "none is lost where its cause has ended"
    ended = third["Events"][0]["Payload"]["Evaluation"]
    assert (ended["ID"], ended["Status"]) == (first["Events"][0]["Key"], "complete")


async def test_a_placement_is_told_without_its_job(api_with_node: Api) -> None:
    await api_with_node.register()
    (event,) = await read_events(api_with_node, "topic=Allocation:web", 1)
    assert (event["Type"], event["Payload"]["Allocation"]["Job"], event["FilterKeys"]) == ("PlanResult", None, ["web"])


async def test_events_of_other_namespaces_are_left_out(api: Api) -> None:
    await api.put("/v1/namespace", {"Name": "dev"})
    await api.register("hidden", Namespace="dev")
    await api.register("shown")
    (event,) = await read_events(api, "topic=Job", 1)
    assert event["Key"] == "shown"
    assert (await read_events(api, "topic=Job&namespace=*", 1))[0]["Key"] == "hidden"


@pytest.mark.parametrize("key", ["v1", "data", "mkdir"])
def test_a_host_volume_is_told_by_its_id_its_name_or_its_plugin(key: str) -> None:
    volume = HostVolume(id="v1", name="data", plugin_id="mkdir", namespace="default")
    changes = (Change("host_volumes", "v1", None, volume),)
    asked, other = (EventFilter(parse_topics([f"HostVolume:{each}"]), "default") for each in (key, "other"))
    (event,) = events_of(7, changes, PutHostVolume.event_type, event_filter=asked)
    assert not list(events_of(7, changes, PutHostVolume.event_type, event_filter=other))
    assert (event["Key"], event["Payload"]["Volume"]["Name"]) == ("v1", "data")


async def test_the_agents_log_can_be_followed(api: Api) -> None:
    async with asyncio.timeout(60), api.client.get("/v1/agent/monitor?log_level=debug&plain=true") as response:
        logging.getLogger("yurt.test").debug("a line for %s", "whoever listens")
        line = (await response.content.readline()).decode()
    assert "[DEBUG] yurt.test: a line for whoever listens" in line


async def test_the_agents_log_comes_in_frames_too(api: Api) -> None:
    async with asyncio.timeout(60), api.client.get("/v1/agent/monitor?log_level=info&log_json=true") as response:
        logging.getLogger("yurt.test").warning("careful")
        frame = json.loads(await response.content.readline())
    line = json.loads(base64.b64decode(frame["Data"]).splitlines()[0])
    assert (line["@level"], line["@message"]) == ("warn", "careful")
    assert "@caller" not in line


async def test_the_lines_of_the_agents_log_name_their_source_on_request(api: Api) -> None:
    path = "/v1/agent/monitor?plain=true&log_include_location=true"
    async with asyncio.timeout(60), api.client.get(path) as response:
        logging.getLogger("yurt.test").info("ready")
        line = (await response.content.readline()).decode()
    assert re.search(r"\[INFO\]  http/test_streams\.py:\d+: yurt\.test: ready$", line)


def test_each_command_has_an_event_or_is_known_to_have_none() -> None:
    silent = {
        "DeleteDeployments", "DeleteEvaluations", "DeleteHostVolumeClaim", "DeleteNamespaces", "DeleteQuotas",
        "DeleteRootKeys", "DropStagedPlans", "EndSession", "FinishRestore", "FormGang", "KeepAlive", "PutOneTimeToken",
        "PutRootKey", "RecordPeriodicLaunch", "RecordScalingEvent", "RekeyACLAuthMethods", "RekeyVariables",
        "SetAutopilotConfiguration", "SetClusterID", "SetJobStability", "SetJobVersionTag", "SetSchedulerConfiguration",
        "StagePlan", "StageRestore", "StoreSchema", "TakeOneTimeToken", "UpsertNamespaces", "UpsertQuotas",
    }  # fmt: skip
    assert silent == {command.__name__ for command in get_args(AnyCommand) if command.event_type is None}


async def job_logs(api: Api, query: str = "") -> list[dict[str, Any]]:
    answer = await api.get(f"/v1/yurt/job/web/logs?{query}")
    assert answer.status == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def texts(lines: list[dict[str, Any]]) -> list[tuple[int, str]]:
    return sorted((line["Source"], line["Text"]) for line in lines if "Text" in line)


async def test_the_logs_of_a_job_are_one_stream(api_with_node: Api, alloc_id: str) -> None:
    head, *lines = await job_logs(api_with_node)

    both = [{"AllocID": alloc_id, "AllocName": "web.group[0]", "Task": "main", "Type": kind} for kind in KINDS]
    assert head == {"Sources": both, "Omitted": 0}
    assert texts(lines) == [(0, "hello\n"), (1, "hello\n")]
    assert texts((await job_logs(api_with_node, "type=stderr"))[1:]) == [(0, "hello\n")]


async def test_the_logs_of_a_job_are_searched_on_the_server(api_with_node: Api, alloc_id: str) -> None:
    assert texts(await job_logs(api_with_node, "type=stdout&grep=HELL")) == [(0, "hello\n")]
    assert texts(await job_logs(api_with_node, "type=stdout&grep=absent")) == []


async def test_a_log_that_cannot_be_read_says_so_and_the_others_go_on(api_with_node: Api, node: FileNode) -> None:
    tasks = [
        {"Name": name, "Driver": "mock_driver", "Config": {"run_for": "1h"}} for name in ("main", "other", "broken")
    ]
    await api_with_node.register(TaskGroups=[{"Name": "group", "Count": 1, "Tasks": tasks}])
    await api_with_node.wait_until("/v1/job/web/allocations", len)

    lines = await job_logs(api_with_node, "type=stdout")

    assert texts(lines) == [(0, "hello\n")]
    assert {"Source": 1, "Error": 'task "other" not found'} in lines
    assert {"Source": 2, "Error": "The agent's machine is in trouble: Input/output error"} in lines


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("absent/logs", 404, "job not found"),
        ("web/logs?type=all", 400, "type must be stdout, stderr or both"),
        ("web/logs?origin=middle", 400, "origin must be start or end"),
        ("web/logs?tail=99999999999", 400, "tail must be a number of bytes"),
        (f"web/logs?alloc={uuid.UUID(int=5)}", 404, "The job has no allocation"),
    ],
)
async def test_logs_of_a_job_that_cannot_be_asked_for(
    api_with_node: Api, alloc_id: str, path: str, status: int, text: str
) -> None:
    answer = await api_with_node.get(f"/v1/yurt/job/{path}")

    assert (answer.status, text in answer.text) == (status, True), answer.text


async def test_following_the_logs_of_a_job_ends_with_its_reader(
    api_with_node: Api, alloc_id: str, node: FileNode
) -> None:
    async with api_with_node.client.get("/v1/yurt/job/web/logs?follow=true&type=stdout") as response:
        await response.content.readline()
        assert json.loads(await response.content.readline()) == {"Source": 0, "Text": "hello\n"}

    async with asyncio.timeout(30):
        await node.reading_ended.wait()
