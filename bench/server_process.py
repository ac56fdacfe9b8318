"""The server under test: a real server and its HTTP API in a process of its own, with simulated clients.

    python -m bench.server_process PORT NODES [DATA_FOLDER] [--acl]

Without a folder the command log is in memory; with NODES 0 it serves what the folder holds; with --acl it has access
control. The clients are those of
`bench.simulated_clients`. It answers each line of its input with a line of figures, which costs it nothing that a
request would cost, and stops in good order, with a last snapshot, when its input ends.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from pathlib import Path

import uvloop
from aiohttp import web
from yurt.http.agent_info import AgentInfo
from yurt.http.app import make_app
from yurt.http.edge.client_errors import STRANGERS
from yurt.http.edge.connections import Connections, ServedAddress
from yurt.http.edge.request_log import HTTP_OPTIONS
from yurt.http.resources.first_requests import prepare_first_requests
from yurt.runtime.env import RealEnv
from yurt.sdk.value import replace
from yurt.server.config import AclConfig, ServerConfig
from yurt.server.server import Server
from yurt.storage.memory import MemoryLog
from yurt.storage.sqlite import SqliteLog

from bench.scheduler import node
from bench.simulated_clients import SimulatedClients

LAG_PERIOD_S = 0.005
ACL = "--acl"
LAG = "lag"
"""The line that asks how late the loop was."""


class LagMeter:
    """How late the event loop is: each few milliseconds it looks how long it slept too long.

    It runs from the first time that it is asked: a loop that wakes for it has less time for what others measure.
    """

    def __init__(self) -> None:
        self._late_s: list[float] = []
        self.is_running = False

    async def run(self) -> None:
        """Look until cancelled."""
        self.is_running = True
        while True:
            begin = time.perf_counter()
            await asyncio.sleep(LAG_PERIOD_S)
            self._late_s.append(max(0.0, time.perf_counter() - begin - LAG_PERIOD_S))

    def figures(self) -> dict[str, float]:
        """The 99th percentile and the worst since it was last asked."""
        late, self._late_s = sorted(self._late_s) or [0.0], []
        return {"lag_p99_ms": late[int(len(late) * 0.99)] * 1000, "lag_max_ms": late[-1] * 1000}


async def serve(port: int, nodes: int, folder: str, *, has_acl: bool) -> None:
    """Serve until the input ends; says "ready" when the clients are there."""
    log = SqliteLog(Path(folder) / "log.db") if folder else MemoryLog()
    config = ServerConfig(name="bench", data_dir=folder, acl=AclConfig(enabled=has_acl))
    server = Server(config, env=RealEnv(), log=log)
    ready = asyncio.Event()
    meter = LagMeter()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(server.run(ready=ready), name="server")
        await ready.wait()
        # As an agent does once it is ready; it is over long before all clients have registered.
        loading = group.create_task(asyncio.to_thread(prepare_first_requests))
        clients = SimulatedClients(server, [replace(node(number, 0), datacenter="dc1") for number in range(nodes)])
        await clients.register()
        await loading
        app = make_app(server.http, None, AgentInfo(name="bench"))
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await runner.setup()
        connections = Connections(strangers=app[STRANGERS], options=HTTP_OPTIONS)
        listening = socket.create_server(("127.0.0.1", port))
        await ServedAddress(runner, listening, connections, tls=None, handshake_s=0).start()
        tasks = [group.create_task(clients.run())]
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            is_lag = line.strip() == LAG
            if is_lag and not meter.is_running:
                tasks.append(group.create_task(meter.run()))
            print(json.dumps(meter.figures() if is_lag else figures(server, clients)), flush=True)
        for task in tasks:
            task.cancel()
        await runner.cleanup()
        await server.stop()
        print("stopped", flush=True)
        await running


def figures(server: Server, clients: SimulatedClients) -> dict[str, float]:
    """How far it is, how many placements the plan check refused, and what that took."""
    counters = server.metrics.counters
    return {
        "allocs": len(server.state.allocs),
        "pending": server.state.evals.count_where("status", "pending"),
        "placements": counters["plan.placements"],
        "rejected": counters["plan.rejected_placements"],
        "batches": server.log.writer.batches,
        "heartbeats": clients.heartbeats,
        "cpu_ms": round(time.process_time() * 1000),
    }


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != ACL]
    folder_given = words[2] if len(words) > 2 else ""
    uvloop.run(serve(int(words[0]), int(words[1]), folder_given, has_acl=ACL in sys.argv))
