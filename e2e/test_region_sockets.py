"""Commands in tasks, actions and monitors that other agents and other regions answer: over websockets and streams.

West has a server and a client in one agent. East has a server and a client of its own, so that a request from west to a
task in east takes both ways: to another region, and from its server to a node.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
from aiohttp import WSMsgType
from yurt.testing.agent import Agent, raw_exec_job, register, stop_jobs, wait_for
from yurt.testing.real_cluster import ClientAgent, RealCluster, ServerAgent

from e2e.test_region_access import ROOT, is_valid, retried

LIMIT_S = 60.0
UNKNOWN = "99999999-2222-4333-8444-555555555555"
NO_TOKEN = "00000000-0000-4000-8000-00000000dead"
READER = 'namespace "default" { capabilities = ["read-job"] }'
ACTION = {"Name": "hello", "Command": "/bin/sh", "Args": ["-c", "echo hello from an action; exit 4"]}


class Scene(NamedTuple):
    """The agents, an allocation in each region, and a token that may only read jobs."""

    west: ServerAgent
    east: ServerAgent
    far: ClientAgent
    """The client of east."""
    allocs: dict[str, str]
    reader: str

    def agent(self, name: str) -> Agent:
        return {"west": self.west, "east": self.east, "far": self.far}[name]


def region_of(folder: Path, name: str, **server: Any) -> RealCluster:
    settings = {"region": name, "acl": {"enabled": True}}
    return RealCluster(folder / name, settings=settings, server={"authoritative_region": "west", **server})


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("sockets")
    western, eastern = region_of(folder, "west"), region_of(folder, "east")
    (west,), (east,) = western.add_servers(1), eastern.add_servers(1)
    west.settings["client"] = {"enabled": True, "options": {"driver.raw_exec.enable": "1"}}
    west.write_config()
    far = eastern.add_client()
    west.token = east.token = far.token = ROOT
    try:
        west.start()
        retried(west, "POST", "/v1/acl/bootstrap", {"BootstrapSecret": ROOT})
        replication = west.call("PUT", "/v1/acl/token", {"Name": "replication", "Type": "management"})["SecretID"]
        east.settings["acl"]["replication_token"] = replication
        east.settings["server"]["server_join"]["retry_join"] = [west.at("serf")]
        east.write_config()
        east.start()
        far.start()
        wait_for("the first token in east", lambda: is_valid(east, ROOT))
        retried(west, "PUT", "/v1/acl/policy/reader", {"Name": "reader", "Rules": READER})
        token = {"Name": "reader", "Type": "client", "Policies": ["reader"], "Global": True}
        reader = west.call("PUT", "/v1/acl/token", token)["SecretID"]
        wait_for("the token in east", lambda: is_valid(east, reader))
        allocs = {name: running(agent, name) for name, agent in (("west", west), ("east", east))}
        yield Scene(west, east, far, allocs, reader)
    finally:
        for agent in (west, east):
            if agent.is_running:
                stop_jobs(agent)
        eastern.close()
        western.close()


def running(agent: Agent, region: str) -> str:
    """A running task of the region, with an action."""
    job = raw_exec_job("shell", "/bin/sleep", "3600") | {"Region": region}
    job["TaskGroups"][0]["Tasks"][0]["Actions"] = [ACTION]
    register(agent, job)
    return str(agent.running("shell", 1)[0]["ID"])


class Heard(NamedTuple):
    """What a websocket brought: the outputs, the exit code (None without one), close code and reason."""

    output: str
    exit_code: int | None
    code: int | None
    reason: str


def exec_path(alloc: str) -> str:
    return f"/v1/client/allocation/{alloc}/exec"


def talk(agent: Agent, path: str, token: str, *, first: str = "", **query: str) -> Heard:
    """Ask for a websocket and listen to its end; `first` is a token for the first message."""
    asked = {"task": "main", "command": '["/bin/sh", "-c", "echo hello; exit 3"]'} | query
    headers = {"X-Nomad-Token": token} if token else {}

    async def play() -> Heard:
        output, exit_code = "", None
        async with (
            asyncio.timeout(LIMIT_S),
            aiohttp.ClientSession(headers=headers) as session,
            session.ws_connect(agent.address + path, params=asked) as socket,
        ):
            if first:
                await socket.send_json({"version": 1, "auth_token": first})
            while (message := await socket.receive()).type is WSMsgType.TEXT:
                frame = json.loads(message.data)
                for name in ("stdout", "stderr"):
                    output += base64.b64decode(frame.get(name, {}).get("data", "")).decode()
                if frame.get("exited"):
                    exit_code = frame["result"]["exit_code"]
            return Heard(output, exit_code, message.data, message.extra or "")

    return asyncio.run(play())


WAYS = pytest.mark.parametrize(
    ("asked", "region"), [("west", "east"), ("east", "west"), ("far", "east"), ("far", "west"), ("east", "east")]
)
"""Which agent is asked, and for a task of which region."""


@WAYS
def test_a_command_and_an_action_run_wherever_they_are_asked_for(scene: Scene, asked: str, region: str) -> None:
    agent, alloc = scene.agent(asked), scene.allocs[region]
    assert talk(agent, exec_path(alloc), ROOT, region=region) == ("hello\n", 3, 1000, "")
    assert talk(agent, exec_path(alloc), "", first=ROOT, region=region, ws_handshake="true").exit_code == 3
    heard = talk(agent, "/v1/job/shell/action", ROOT, action="hello", region=region)
    assert heard == ("hello from an action\n", 4, 1000, "")


@WAYS
@pytest.mark.parametrize("shown", ["reader", "unknown", "none", "first message"])
def test_a_refused_token_closes_with_the_reason(scene: Scene, asked: str, region: str, shown: str) -> None:
    agent, alloc = scene.agent(asked), scene.allocs[region]
    token = {"reader": scene.reader, "unknown": NO_TOKEN}.get(shown, "")
    first = scene.reader if shown == "first message" else ""
    more = {"ws_handshake": "true"} if first else {}
    for path in (exec_path(alloc), "/v1/job/shell/action"):
        heard = talk(agent, path, token, first=first, region=region, action="hello", **more)
        assert (heard.exit_code, heard.code) == (None, 1008)
        assert heard.reason.startswith("Permission denied")


@WAYS
def test_what_is_missing_closes_with_the_reason(scene: Scene, asked: str, region: str) -> None:
    agent, alloc = scene.agent(asked), scene.allocs[region]
    missing = f'Unknown allocation "{UNKNOWN}"'
    assert talk(agent, exec_path(UNKNOWN), ROOT, region=region) == ("", None, 1008, missing)
    heard = talk(agent, exec_path(alloc), ROOT, region=region, task="other")
    assert (heard.code, "task 'other'" in heard.reason) == (1008, True), heard
    heard = talk(agent, "/v1/job/shell/action", ROOT, region=region, action="goodbye")
    assert (heard.code, 'has no action "goodbye"; it has hello' in heard.reason) == (1008, True), heard
    lost = talk(agent, exec_path(alloc), ROOT, region="mars")
    assert (lost.exit_code, lost.code, lost.reason) == (None, 1011, "No path to region")


def test_a_long_refusal_of_another_region_is_shown_as_a_whole(scene: Scene) -> None:
    action = "a" * 120
    heard = talk(scene.west, "/v1/job/shell/action", ROOT, region="east", action=action)
    assert heard.output == f'The task "main" has no action "{action}"; it has hello\n'
    assert (heard.code, heard.reason) == (1008, 'The task "main" has no action...')
    shown = scene.west.cli("action", "-region", "east", "-job", "shell", action)
    assert f'has no action "{action}"; its actions: hello' in shown.stderr


def test_the_command_line_reaches_a_task_of_another_region(scene: Scene) -> None:
    alloc = scene.allocs["east"]
    done = scene.west.cli("alloc", "exec", "-region", "east", alloc, "/bin/sh", "-c", "echo hello; exit 3")
    assert (done.stdout, done.returncode) == ("hello\n", 3)
    refused = scene.west.cli("alloc", "exec", "-region", "east", "-token", scene.reader, alloc, "/bin/true")
    assert (refused.returncode != 0, "Permission denied" in refused.stderr) == (True, True)


@pytest.mark.parametrize(("asked", "region", "log_of"), [("west", "east", "far"), ("far", "west", "west")])
def test_a_monitor_of_an_agent_elsewhere_streams_or_is_refused(
    scene: Scene, asked: str, region: str, log_of: str
) -> None:
    agent = scene.agent(asked)
    (node,) = agent.get(f"/v1/nodes?region={region}")
    assert node["Name"] == scene.agent(log_of).name  # type: ignore[attr-defined]
    query = {"region": region, "node_id": node["ID"], "plain": "true", "log_level": "debug"}

    async def monitor(token: str, **more: str) -> tuple[int, bytes]:
        async with (
            asyncio.timeout(LIMIT_S),
            aiohttp.ClientSession(headers={"X-Nomad-Token": token}) as session,
            session.get(f"{agent.address}/v1/agent/monitor", params=query | more) as answer,
        ):
            if answer.status != 200:
                return answer.status, await answer.read()
            reading = asyncio.ensure_future(answer.content.read(1))
            while not reading.done():  # something has to happen there to be logged
                await asyncio.to_thread(scene.agent(log_of).get, "/v1/agent/self")
                await asyncio.sleep(0.2)
            return answer.status, await reading

    status, first = asyncio.run(monitor(ROOT))
    assert (status, bool(first)) == (200, True)
    assert asyncio.run(monitor(scene.reader))[0] == 403
    status, text = asyncio.run(monitor(ROOT, node_id=UNKNOWN))
    assert (status, text.decode()) == (404, f'Unknown node "{UNKNOWN}"')
