"""Requests at a server that follows: the leader answers what is its own, the server itself the rest."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestClient, TestServer
from yurt.http.agent_info import AgentInfo
from yurt.http.api_port import ApiPort
from yurt.http.app import make_app
from yurt.http.forwarding.at_leader import LEADER_FORWARDING
from yurt.http.forwarding.forward import OwnApi
from yurt.http.forwarding_headers import BY_SERVER, FORWARDED
from yurt.rpc.peer import ConnectionLost
from yurt.runtime.env import RealEnv
from yurt.sdk.errors import Unavailable
from yurt.structs.rpc import FileInfo, RegisterNodeRequest, StreamFrame
from yurt.testing import factories
from yurt.testing.cluster_models.servers import NAMES, ServerGroup
from yurt.testing.fakes import eventually
from yurt.testing.http_api import Api, HttpAnswer, job_document, ready_node

FIRST, SECOND, THIRD = NAMES
JOB_LOGS = "/v1/yurt/job/web/logs?follow=true&type=stdout"
WATCH = "/v1/yurt/watch?view=%7B%22ID%22:%22a%22,%22Kind%22:%22jobs%22%7D"


class Agents:
    """Three servers with their APIs."""

    def __init__(self, group: ServerGroup) -> None:
        self.group = group
        self.api: dict[str, Api] = {}
        self.own: dict[str, OwnApi] = {}
        self.asked: list[str] = []
        """The servers to which requests were passed on."""

    def __getitem__(self, name: str) -> Api:
        return self.api[name]

    def others_of(self, name: str) -> Others:
        """How one of them reaches the others."""
        return Others(self, name)


class Others:
    """The APIs of the other servers."""

    def __init__(self, agents: Agents, name: str) -> None:
        self._agents = agents
        self._name = name

    def api(self, name: str) -> ApiPort:
        """That of one server."""
        if {name, self._name} & self._agents.group.cut_off or name not in self._agents.group.servers:
            raise ConnectionLost(f"server {name} cannot be reached")
        self._agents.asked.append(name)
        return self._agents.own[name]


@pytest.fixture
async def agents() -> AsyncIterator[Agents]:
    """Three servers of which the first leads."""
    group = ServerGroup(RealEnv())
    async with group.running(), contextlib.AsyncExitStack() as stack:
        made = Agents(group)
        for name in NAMES:
            info = AgentInfo(version="0.1.0", name=name.partition(".")[0], rpc_addr=group[name].config.rpc_addr)
            app = make_app(group[name].http, None, info, others=made.others_of(name))
            client = TestClient(TestServer(app), timeout=aiohttp.ClientTimeout(120))
            made.api[name] = Api(await stack.enter_async_context(client), group[name])
            made.own[name] = OwnApi(str(client.make_url("")).rstrip("/"))
            stack.push_async_callback(made.own[name].close)
        await eventually(lambda: group[FIRST].is_leader)
        yield made


async def lead(agents: Agents, name: str) -> None:
    """Have a server lead."""
    agents.group.log.elect(name)
    await eventually(lambda: agents.group[name].is_leader)


async def test_writes_and_reads_at_any_server_are_the_leaders(agents: Agents) -> None:
    written = await agents[SECOND].put("/v1/jobs", {"Job": job_document("web")})
    assert written.status == 200
    read = await agents[THIRD].get("/v1/job/web")
    assert (read.status, read.json["ID"]) == (200, "web")
    assert read.index >= written.json["JobModifyIndex"]
    assert read.headers["X-Nomad-KnownLeader"] == "true"
    assert read.headers["X-Nomad-LastContact"] == "0"
    assert (await agents[THIRD].get("/v1/job/none")).status == 404


async def test_a_stale_read_is_answered_by_the_server_that_was_asked(agents: Agents) -> None:
    agents.group.view(SECOND).delivers.clear()
    await agents[FIRST].register("web")
    assert [job["ID"] for job in (await agents[SECOND].get("/v1/jobs")).json] == ["web"]
    stale = await agents[SECOND].get("/v1/jobs?stale")
    assert (stale.json, stale.headers["X-Nomad-KnownLeader"]) == ([], "true")
    agents.group.view(SECOND).delivers.set()
    await agents[SECOND].wait_until("/v1/jobs?stale", bool)


async def test_a_blocking_query_at_a_follower_wakes_when_the_leader_stores(agents: Agents) -> None:
    index = (await agents[SECOND].get("/v1/jobs")).index or 1  # 0 before the first job, and 0 waits for nothing
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(agents[SECOND].get(f"/v1/jobs?index={index}&wait=20s"))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await agents[THIRD].register("web")
    assert [job["ID"] for job in waiting.result().json] == ["web"]


async def events(reader: aiohttp.StreamReader) -> dict[str, Any]:
    """The next line of an event stream that has events."""
    async with asyncio.timeout(20):
        while not (line := json.loads(await reader.readline())).get("Events"):
            pass
    return dict(line)


async def test_an_event_stream_at_a_follower_goes_on_under_the_next_leader(agents: Agents) -> None:
    async with agents[SECOND].client.get("/v1/event/stream?topic=Job") as answer:
        await agents[FIRST].register("before")
        assert (await events(answer.content))["Events"][0]["Key"] == "before"
        await agents.group.kill(FIRST)
        await lead(agents, THIRD)
        await agents[THIRD].register("after")
        assert (await events(answer.content))["Events"][0]["Key"] == "after"
        await lead(agents, SECOND)
        await agents[THIRD].register("last")
        assert (await events(answer.content))["Events"][0]["Key"] == "last"
    assert agents.asked == [SECOND]  # for the last registration


async def watched_index(reader: aiohttp.StreamReader, job_id: str) -> int:
    """The index of the next line of a watch that tells of the job."""
    async with asyncio.timeout(20):
        while True:
            line = json.loads(await reader.readline())
            assert not line.keys() & {"Resync", "Error"}, line
            if job_id in line.get("Views", {}).get("a", {}).get("Columns", {}).get("ID", ()):
                return int(line["Index"])


async def test_a_watch_at_a_follower_goes_on_under_the_next_leader(agents: Agents) -> None:
    async with agents[SECOND].client.get(WATCH, headers={"Accept-Encoding": "identity"}) as answer:
        await agents[FIRST].register("before")
        before = await watched_index(answer.content, "before")
        await agents.group.kill(FIRST)
        await lead(agents, THIRD)
        await agents[THIRD].register("after")
        after = await watched_index(answer.content, "after")
        await lead(agents, SECOND)
        await agents[SECOND].register("last")
        last = await watched_index(answer.content, "last")
    assert before < after < last
    assert agents.asked == []


async def test_a_watch_begins_on_the_newest_state(agents: Agents) -> None:
    agents.group.view(SECOND).delivers.clear()
    await agents[FIRST].register("web")
    index = (await agents[FIRST].get("/v1/yurt/jobs")).json["Index"]
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(agents[SECOND].client.get(WATCH, headers={"Accept-Encoding": "identity"}))
        await asyncio.sleep(0.05)
        assert not asked.done(), "this server may not know yet that the token was deleted"
        agents.group.view(SECOND).delivers.set()
    assert json.loads(await asked.result().content.readline())["Index"] >= index
    asked.result().close()


class LogNode:
    """A client of which only the log of a task is followed, over one connection at a time."""

    def __init__(self) -> None:
        self.text = b""
        self.connection = asyncio.Event()

    def lose_connection(self) -> None:
        """End what goes over the present connection."""
        self.connection.set()
        self.connection = asyncio.Event()

    async def list_files(self, alloc_id: str, path: str) -> tuple[FileInfo, ...]:
        size = len(self.text)
        return (FileInfo(name="main.stdout.0", is_dir=False, size=size, file_mode="-rw-r--r--", mod_time=0),)

    async def stream_logs(
        self, alloc_id: str, task: str, *, offset: int, origin: str, **_: object
    ) -> AsyncGenerator[StreamFrame]:
        is_lost, place = self.connection, offset if origin == "start" else 0
        while not is_lost.is_set():
            if data := self.text[place:]:
                yield StreamFrame(data=data, offset=place, file="alloc/logs/main.stdout.0")
                place += len(data)
            await asyncio.sleep(0.01)
        raise ConnectionLost("the connection to the other agent has ended")


async def text_of(reader: aiohttp.StreamReader) -> dict[str, Any]:
    """The next line of a job's logs, without heartbeats."""
    async with asyncio.timeout(20):
        while not (line := json.loads(await reader.readline())):
            pass
    return dict(line)


async def with_log_node(agents: Agents, server: str) -> tuple[LogNode, str]:
    """A node whose client is connected to a server and runs a job."""
    node, log = ready_node(), LogNode()
    await agents.group[FIRST].clients.calls.register_node(RegisterNodeRequest(node=node))
    await agents.group[FIRST].clients.calls.heartbeat(node.id, "ready")
    agents.group[server].clients.node_ports.attach(node.id, log)  # type: ignore[arg-type]
    await agents[FIRST].register("web")
    await eventually(lambda: len(agents.group[FIRST].state.allocs) == 1)
    return log, node.id


async def test_the_logs_of_a_job_at_a_follower_go_on_under_the_next_leader(agents: Agents) -> None:
    log, _ = await with_log_node(agents, THIRD)
    async with agents[SECOND].client.get(JOB_LOGS) as answer:
        assert len(json.loads(await answer.content.readline())["Sources"]) == 1
        log.text += b"before"
        assert await text_of(answer.content) == {"Source": 0, "Text": "before"}
        await agents.group.kill(FIRST)
        await lead(agents, THIRD)
        log.text += b"after"
        assert await text_of(answer.content) == {"Source": 0, "Text": "after"}
    assert agents.asked == []


async def test_the_logs_of_a_job_go_on_when_the_server_of_their_node_ends(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yurt.server.clients.followed_log.PAUSE_S", 0.05)
    log, node_id = await with_log_node(agents, FIRST)
    log.text += b"before"
    async with agents[SECOND].client.get(JOB_LOGS) as answer:
        await answer.content.readline()
        assert await text_of(answer.content) == {"Source": 0, "Text": "before"}
        log.lose_connection()
        await agents.group.kill(FIRST)
        assert json.loads(await answer.content.readline()) == {}, "a heartbeat while the node connects again"
        await lead(agents, THIRD)
        log.text += b"after"
        agents.group[THIRD].clients.node_ports.attach(node_id, log)  # type: ignore[arg-type]
        assert await text_of(answer.content) == {"Source": 0, "Text": "after"}


@pytest.mark.parametrize("path", ["/v1/event/stream?topic=Job", WATCH])
async def test_a_stream_on_a_server_that_is_cut_off_says_so(
    agents: Agents, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr("yurt.http.call.STATE_AGE_MAX_S", 1.5)
    async with agents[SECOND].client.get(path, headers={"Accept-Encoding": "identity"}) as answer:
        assert "Error" not in json.loads(await answer.content.readline())
        async with agents[THIRD].client.get(path) as other, asyncio.timeout(20):
            agents.group.cut(SECOND)
            while "Error" not in (line := json.loads(await answer.content.readline())):
                pass
            with pytest.raises(aiohttp.ClientPayloadError):
                await answer.content.read()
            await other.content.readline()
            assert not other.content.at_eof(), "its server has the leader's state"
    assert "has not had the leader's state for more than" in line["Error"]
    agents.group.mend(SECOND)


async def test_an_event_stream_that_waited_for_a_leader_goes_on_under_the_next(agents: Agents) -> None:
    agents.group.log.elect("")
    await eventually(lambda: not any(server.leader_name for server in agents.group.servers.values()))
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(agents[SECOND].client.get("/v1/event/stream?topic=Job"))
        await asyncio.sleep(0.05)
        assert not asked.done()
        await lead(agents, FIRST)
    await agents.group.kill(FIRST)
    await lead(agents, THIRD)
    await agents[THIRD].register("web")
    assert (await events(asked.result().content))["Events"][0]["Key"] == "web"
    asked.result().close()


async def test_an_event_stream_begins_on_the_newest_state(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    agents.group.view(SECOND).delivers.clear()
    await agents[FIRST].register("web")
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(agents[SECOND].client.get("/v1/event/stream?topic=Job"))
        await asyncio.sleep(0.05)
        assert not asked.done(), "this server may not know yet that the token was deleted"
        agents.group.view(SECOND).delivers.set()
    assert (await events(asked.result().content))["Events"][0]["Key"] == "web"
    asked.result().close()
    monkeypatch.setattr("yurt.http.forwarding.at_leader.HOLD_S", 0.05)
    agents.group.view(SECOND).delivers.clear()
    await agents[FIRST].register("late")
    async with agents[SECOND].client.get("/v1/event/stream?topic=Job:late") as answer:
        assert (await events(answer.content))["Events"][0]["Key"] == "late"
    assert agents.asked == [FIRST]  # as this server does not catch up


async def never() -> None:
    await asyncio.Event().wait()


async def test_an_event_stream_does_not_wait_for_a_leader_that_hangs_once_another_leads(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yurt.http.forwarding.at_leader.HOLD_S", 60.0)
    monkeypatch.setattr(agents.group[FIRST].leader, "confirm", never)
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        asked = group.create_task(agents[SECOND].client.get("/v1/event/stream"))
        await asyncio.sleep(0.05)
        assert not asked.done()
        await lead(agents, THIRD)
    assert (asked.result().status, agents.asked) == (200, [])
    asked.result().close()


async def test_event_streams_that_wait_for_the_leader_are_bounded(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may ask for one, and the calls of clients share the connection to the leader."""
    monkeypatch.setattr(agents.group[FIRST].leader, "confirm", never)
    agents[SECOND].client.app[LEADER_FORWARDING]._slots = asyncio.Semaphore(1)
    first = asyncio.ensure_future(agents[SECOND].client.get("/v1/event/stream"))
    await asyncio.sleep(0.05)
    async with asyncio.timeout(3), agents[SECOND].client.get("/v1/event/stream") as second:
        assert second.status == 429
    first.cancel()


async def test_a_request_is_held_until_there_is_a_leader_and_then_refused(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yurt.http.forwarding.at_leader.HOLD_S", 60.0)
    agents.group.log.elect("")
    await eventually(lambda: not any(server.leader_name for server in agents.group.servers.values()))
    async with asyncio.TaskGroup() as group:
        held = [group.create_task(agents[name].register(name.partition(".")[0])) for name in NAMES]
        await asyncio.sleep(0.05)
        assert not any(each.done() for each in held)
        await lead(agents, THIRD)
    assert [each.result().status for each in held] == [200, 200, 200]
    agents.group.log.elect("")
    await eventually(lambda: not any(server.leader_name for server in agents.group.servers.values()))
    monkeypatch.setattr("yurt.http.forwarding.at_leader.HOLD_S", 0.05)
    for answer in (await agents[FIRST].get("/v1/jobs"), await agents[SECOND].register("late")):
        assert (answer.status, answer.text) == (500, "No cluster leader")
    stale = await agents[FIRST].get("/v1/jobs?stale")
    assert (stale.status, stale.headers["X-Nomad-KnownLeader"]) == (200, "false")


async def test_servers_that_take_each_other_for_the_leader_do_not_toss_a_request_about(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yurt.http.forwarding.at_leader.HOLD_S", 0.3)
    view = agents.group.view(SECOND)
    await lead(agents, THIRD)
    view.delivers.clear()
    agents.group.log.elect(FIRST)
    await eventually(lambda: agents.group[FIRST].is_leader)
    agents.group[THIRD].roles._adopt(agents.group[THIRD].leader.leadership)
    assert agents.group[SECOND].leader_name == THIRD
    answer = await agents[SECOND].get("/v1/jobs")
    assert (answer.status, answer.text) == (500, "No cluster leader")
    view.delivers.set()
    monkeypatch.setattr("yurt.http.forwarding.at_leader.HOLD_S", 60.0)
    assert (await agents[SECOND].get("/v1/jobs")).status == 200
    own = await agents[SECOND].get("/v1/jobs", headers={FORWARDED: BY_SERVER})
    assert (own.status, own.headers["X-Yurt-Not-Leading"]) == (500, "true")


async def test_a_deposed_leader_does_not_answer_a_default_read_from_its_old_state(agents: Agents) -> None:
    agents.group.view(FIRST).delivers.clear()
    agents.group.log.elect(SECOND)
    await eventually(lambda: agents.group[SECOND].is_leader)
    await agents[SECOND].register("web")
    assert agents.group[FIRST].is_leader
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(agents[FIRST].get("/v1/jobs"))
        await asyncio.sleep(0.05)
        assert not reading.done()
        agents.group.view(FIRST).delivers.set()
    assert [job["ID"] for job in reading.result().json] == ["web"]


async def test_a_write_that_may_have_been_stored_is_not_asked_for_again(agents: Agents) -> None:
    class Dies(OwnApi):
        def __init__(self) -> None:
            self.asked = 0

        async def ask(self, request: Any, body: Any) -> AsyncGenerator[Any]:
            self.asked += 1
            raise ConnectionLost("gone")
            yield

    agents.own[FIRST] = dies = Dies()
    answer = await agents[SECOND].register("web")
    assert (answer.status, dies.asked) == (500, 1)
    assert "may or may not" in answer.text


async def test_a_read_that_a_hanging_leader_does_not_answer_is_made_at_the_next_one_and_a_write_ends(
    agents: Agents,
) -> None:
    class Hangs(OwnApi):
        def __init__(self) -> None:
            self.is_asked = 0

        async def ask(self, request: Any, body: Any) -> AsyncGenerator[Any]:
            self.is_asked += 1
            await asyncio.Event().wait()
            yield

    agents.own[FIRST] = hangs = Hangs()
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(agents[SECOND].get("/v1/jobs"))
        writing = group.create_task(agents[SECOND].register("web"))
        await eventually(lambda: hangs.is_asked == 2)
        await lead(agents, THIRD)
    assert reading.result().status == 200
    assert writing.result().status == 500
    assert "may or may not" in writing.result().text


async def test_a_timeout_that_is_no_change_of_leaders_is_not_told_as_one(agents: Agents) -> None:
    class Late(OwnApi):
        def __init__(self) -> None:
            pass

        async def ask(self, request: Any, body: Any) -> AsyncGenerator[Any]:
            raise TimeoutError
            yield

    agents.own[FIRST] = Late()
    for answer in (await agents[SECOND].get("/v1/jobs"), await agents[SECOND].register("web")):
        assert answer.status == 500
        assert "leader" not in answer.text and "may or may not" not in answer.text


class Files:
    """A client of which only a directory is asked."""

    async def list_files(self, alloc_id: str, path: str) -> tuple[FileInfo, ...]:
        return (FileInfo(name="here", is_dir=False, size=1, file_mode="-rw-r--r--", mod_time=0),)


async def test_what_is_about_a_client_is_answered_at_once_through_the_server_that_has_it(agents: Agents) -> None:
    leader = agents.group[FIRST]
    node = ready_node()
    await leader.clients.calls.register_node(RegisterNodeRequest(node=node))
    await leader.clients.calls.heartbeat(node.id, "ready")
    files: Any = Files()
    agents.group[THIRD].clients.node_ports.attach(node.id, files)
    await agents[SECOND].register("web")
    await eventually(lambda: len(agents.group[SECOND].state.allocs) == 1)
    (alloc,) = agents.group[SECOND].state.allocs.values()
    agents.group.log.elect("")
    await eventually(lambda: not leader.is_leader)
    for name in NAMES:
        answer = await agents[name].get(f"/v1/client/fs/ls/{alloc.id}")
        assert [entry["Name"] for entry in answer.json] == ["here"], name
    agents.group[THIRD].clients.node_ports.detach(node.id, files)
    missing = await agents[SECOND].get(f"/v1/client/fs/ls/{alloc.id}")
    assert (missing.status, missing.text) == (404, "No path to node")
    assert (await agents[SECOND].get(f"/v1/client/fs/ls/{factories.new_id()}")).status == 404


async def test_a_snapshot_is_saved_and_restored_through_any_server(agents: Agents) -> None:
    await agents[FIRST].register("web")
    async with agents[SECOND].client.get("/v1/operator/snapshot") as answer:
        assert answer.status == 200
        saved = await answer.read()
    await agents[SECOND].call("DELETE", "/v1/job/web?purge=true")
    restored: HttpAnswer = await agents[THIRD].call("PUT", "/v1/operator/snapshot", saved)
    assert restored.status == 200, restored.text
    await agents[SECOND].wait_until("/v1/jobs", lambda jobs: [job["ID"] for job in jobs] == ["web"])


async def test_the_log_of_another_server_is_read_through_any(agents: Agents) -> None:
    for expected in (THIRD, "srv3", "leader"):
        agents.group.log.elect(THIRD)
        await eventually(lambda: agents.group[SECOND].leader_name == THIRD)
        async with agents[SECOND].client.get(f"/v1/agent/monitor?plain=true&server_id={expected}") as answer:
            assert (answer.status, answer.headers["Content-Type"]) == (200, "text/plain; charset=utf-8")
            assert THIRD in agents.asked
        agents.asked.clear()
    own = await agents[SECOND].get("/v1/agent/monitor?server_id=nobody")
    assert (own.status, own.text) == (500, "unknown Nomad server nobody")


class Talks:
    """A client of which only its log is asked."""

    def __init__(self) -> None:
        self.is_heard = False

    async def monitor(self, *, level: str, as_json: bool, has_location: bool = False) -> AsyncGenerator[str]:
        self.is_heard = True
        try:
            yield ""
            yield f"a line at {level}{' with its source' if has_location else ''}\n"
            await asyncio.Event().wait()
        finally:
            self.is_heard = False


async def test_the_log_of_a_node_is_read_through_any_server_and_left_with_its_reader(agents: Agents) -> None:
    node, talks = factories.node(status="initializing"), Talks()
    await agents.group[FIRST].clients.calls.register_node(RegisterNodeRequest(node=node))
    await eventually(lambda: all(node.id in server.state.nodes for server in agents.group.servers.values()))
    agents.group[THIRD].clients.node_ports.attach(node.id, talks)  # type: ignore[arg-type]
    for name in (SECOND, THIRD):
        path = f"/v1/agent/monitor?plain=true&log_level=debug&log_include_location=true&node_id={node.id}"
        async with asyncio.timeout(30), agents[name].client.get(path) as answer:
            assert answer.status == 200
            assert await answer.content.readline() == b"a line at debug with its source\n"
            assert talks.is_heard
        await eventually(lambda: not talks.is_heard)
    unknown = await agents[SECOND].get(f"/v1/agent/monitor?node_id={factories.new_id()}")
    assert unknown.status == 404


async def test_a_log_that_is_broken_is_told_at_once_with_what_to_do(agents: Agents) -> None:
    agents.group.log.elect("")
    server = agents.group[FIRST]
    server.log.writer._broken = (
        "the command log failed, restart the agent once its disk is well: no space left on device"
    )
    answer = await agents[FIRST].register("web")
    assert (answer.status, answer.text) == (500, server.log.writer.broken)


async def test_an_agent_without_a_server_gets_the_leaders_answer_through_a_follower(agents: Agents) -> None:
    info = AgentInfo(version="0.1.0", name="client")
    app = make_app(None, None, info, servers=agents.own[SECOND])
    async with TestClient(TestServer(app)) as client:
        async with client.put("/v1/jobs", json={"Job": job_document("web")}) as answer:
            assert answer.status == 200, await answer.text()
        agents.group.view(SECOND).delivers.clear()
        agents.group.view(THIRD).delivers.clear()
        await agents[FIRST].register("other")
        async with client.get("/v1/jobs") as answer:
            assert [job["ID"] for job in await answer.json()] == ["other", "web"]
    agents.group.view(SECOND).delivers.set()
    agents.group.view(THIRD).delivers.set()


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/v1/jobs", {"Job": job_document("web"), "EnforceIndex": True, "JobModifyIndex": 7}),
        ("PUT", "/v1/job/none/scale", {"Count": 3, "Target": {"Group": "web"}}),
        ("DELETE", "/v1/namespace/none", None),
        ("PUT", "/v1/var/app?cas=7", {"Path": "app", "Items": {"a": "b"}}),
    ],
)
async def test_a_refusal_is_told_only_by_a_server_that_leads_for_certain(
    agents: Agents, monkeypatch: pytest.MonkeyPatch, method: str, path: str, body: Any
) -> None:
    """A server that was frozen or cut off may refuse for a state that has moved on elsewhere."""

    async def unconfirmed() -> None:
        raise Unavailable("No cluster leader")

    monkeypatch.setattr("yurt.http.forwarding.at_leader.HOLD_S", 0.2)
    assert (await agents[FIRST].call(method, path, body)).status in (404, 409, 500)
    monkeypatch.setattr(agents.group[FIRST].leader, "confirm", unconfirmed)
    answer = await agents[FIRST].call(method, path, body)
    assert (answer.status, answer.text) == (500, "No cluster leader")
