"""What the first registration makes the event loop do that later ones do not: no imports, and no description of jobs.

Each takes 5 to 100 ms, for which a server would answer nobody. They are counted by thread in a process of its own,
because what the tests have imported would hide them.
"""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import asyncio, json, socket, sys, threading
from aiohttp import web
from yurt.http.edge.request_log import HTTP_OPTIONS
from yurt.api import decode
from yurt.http.agent_info import AgentInfo
from yurt.http.app import make_app
from yurt.http.edge.client_errors import STRANGERS
from yurt.http.edge.connections import Connections, ServedAddress
from yurt.runtime.env import RealEnv
from yurt.server.config import ServerConfig
from yurt.server.server import Server
from yurt.storage.memory import MemoryLog
from yurt.structs.rpc import RegisterNodeRequest
from yurt.testing import factories

imported, described, in_thread = [], [], []
is_counting = False
describe = decode.inspect.type_info

def on_event(event, arguments):
    if is_counting and event == "import" and arguments[0].startswith("yurt."):
        is_loop = threading.current_thread() is threading.main_thread()
        (imported if is_loop else in_thread).append(arguments[0])

def recorded(kind):
    if threading.current_thread() is threading.main_thread():
        described.append(kind.__name__)
    return describe(kind)

decode.inspect.type_info = recorded
sys.addaudithook(on_event)

async def ask(port, method, path, body=b""):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = (f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", f"Content-Length: {len(body)}", "", "")
    writer.write("\\r\\n".join(head).encode() + body)
    answer = await reader.read()
    writer.close()
    return answer.partition(b"\\r\\n")[0].decode()

async def main():
    global is_counting
    server, ready = Server(ServerConfig(name="first"), env=RealEnv(), log=MemoryLog()), asyncio.Event()
    running = asyncio.create_task(server.run(ready=ready))
    await ready.wait()
    node = factories.node()
    await server.clients.calls.register_node(RegisterNodeRequest(node=node))
    await server.clients.calls.heartbeat(node.id, "ready")
    if sys.argv[1:] == ["all"]:
        from yurt.http.resources.first_requests import prepare_first_requests as prepare
    else:
        from yurt.server.first_job import import_first_job as prepare
    await asyncio.to_thread(prepare)
    app = make_app(server.http, None, AgentInfo(name="first"))
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    connections = Connections(strangers=app[STRANGERS], options=HTTP_OPTIONS)
    await ServedAddress(runner, listening, connections, tls=None, handshake_s=0).start()
    task = {"Name": "main", "Driver": "raw_exec", "Config": {"command": "/bin/true"}}
    job = {"ID": "web", "Datacenters": ["*"], "TaskGroups": [{"Name": "main", "Tasks": [task]}]}
    is_counting = True
    answers = await asyncio.gather(*(
        ask(port, "PUT", "/v1/jobs", json.dumps({"Job": job | {"ID": f"web-{number}"}}).encode()) for number in range(8)
    ))
    async with asyncio.timeout(30):
        while len(server.state.allocs) < 8:
            await asyncio.sleep(0.01)
    registering = len(described)
    for path in ("/v1/jobs", "/v1/job/web-0", "/v1/job/web-0/summary", f"/v1/node/{node.id}"):
        answers.append(await ask(port, "GET", path))
    is_counting = False
    print(json.dumps({"answers": answers, "imported": imported, "in_thread": in_thread,
        "described": described[:registering], "described_to_read": described[registering:]}))
    await runner.cleanup()
    await server.stop()
    await running

asyncio.run(main())
"""


def first_requests(*arguments: str) -> dict[str, list[str]]:
    """What a server does for its first requests, after the preparation that the arguments choose."""
    command = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout)
    assert set(found["answers"]) == {"HTTP/1.1 200 OK"}
    return found


def test_the_first_requests_import_in_threads_and_registrations_describe_jobs_there() -> None:
    found = first_requests()
    assert found["imported"] == []
    assert "yurt.http.answers" in found["in_thread"], "what `yurt.http.resources.jobs` imports"
    assert found["described"] == ["JobRegisterBody"]


def test_after_the_preparation_the_first_requests_import_and_describe_nothing() -> None:
    found = first_requests("all")
    assert found["imported"] == found["in_thread"] == []
    assert found["described"] == found["described_to_read"] == []
