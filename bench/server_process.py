"""The server under test: a real server and its HTTP API in a process of its own, with simulated ready nodes.

    python -m bench.server_process PORT NODES [DATA_FOLDER]

Without a folder the command log is in memory. The nodes send no heartbeats and run nothing: what is placed on them
stays pending, as it would on clients that have not answered yet. It answers each line of its input with a line of
figures, which costs it nothing that a request would cost.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import uvloop
from aiohttp import web
from yurt.http.agent_info import AgentInfo
from yurt.http.app import make_app
from yurt.runtime.env import RealEnv
from yurt.sdk.value import replace
from yurt.server.config import ServerConfig
from yurt.server.server import Server
from yurt.storage.memory import MemoryLog
from yurt.storage.sqlite import SqliteLog
from yurt.structs.commands import RegisterNode, SetNodeStatus

from bench.scheduler import node

REGISTRATIONS = 200


async def serve(port: int, nodes: int, folder: str) -> None:
    """Serve until killed; says "ready" when the nodes are there."""
    log = SqliteLog(Path(folder) / "log.db") if folder else MemoryLog()
    server = Server(ServerConfig(name="bench", data_dir=folder), env=RealEnv(), log=log)
    ready = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(server.run(ready=ready), name="server")
        await ready.wait()
        await add_nodes(server, nodes)
        runner = web.AppRunner(make_app(server, None, AgentInfo(name="bench")), access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        print("ready", flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(figures(server)), flush=True)
        await server.stop()


def figures(server: Server) -> dict[str, int]:
    """How far it is, and how many placements the plan check refused."""
    counters = server.metrics.counters
    return {
        "allocs": len(server.state.allocs),
        "pending": len(server.state.evals.where("status", "pending")),
        "placements": counters["plan.placements"],
        "rejected": counters["plan.rejected_placements"],
        "batches": server.writer.batches,
    }


async def add_nodes(server: Server, count: int) -> None:
    """Register nodes and have them ready."""
    for first in range(0, count, REGISTRATIONS):
        made = [
            replace(node(number, 0), datacenter="dc1") for number in range(first, min(count, first + REGISTRATIONS))
        ]
        await server.writer.propose_all([RegisterNode(node=one) for one in made])
        await server.writer.propose_all([SetNodeStatus(node_id=n.id, status="ready", updated_at=1) for n in made])


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else ""))
