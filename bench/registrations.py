"""Counts the processor's instructions for a registered job, and what misses its caches, to compare two checkouts.

    python -m bench registrations [--nodes 500] [--jobs 480]

Times of a shared machine differ by more than a change of the code does. Here valgrind counts, and simulates caches: 32
KiB for data, and 1 MiB behind it. One process has the server with its log in memory, simulated nodes and 24
connections that register service jobs of one allocation; a job counts from its request until it is placed. No client
and no kernel is counted. Misses of the large cache matter more than instructions do: one costs as much as a hundred.

Needs valgrind with callgrind_control.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import re
import tempfile
from pathlib import Path
from typing import Final

import uvloop
from aiohttp import web
from yurt.http.agent_info import AgentInfo
from yurt.http.app import make_app
from yurt.http.resources.first_requests import prepare_first_requests
from yurt.runtime.env import RealEnv
from yurt.sdk.value import replace
from yurt.server.config import ServerConfig
from yurt.server.server import Server
from yurt.storage.memory import MemoryLog

from bench.instructions import Client, control, need_callgrind, run_counted
from bench.scheduler import node
from bench.server import registration, service_job
from bench.simulated_clients import SimulatedClients
from bench.table import Row, print_table

CONNECTIONS: Final = 24
FIRST_JOBS: Final = 240
"""Registered before anything is counted."""
CALLS_LATE_S: Final = 3600.0
"""Nodes are not lost although valgrind makes everything fifty times slower."""
LOOK_S: Final = 0.01
CACHES: Final = ("--cache-sim=yes", "--D1=32768,8,64", "--LL=1048576,16,64")
EVENTS: Final = {
    "instructions": ("Ir",),
    "misses of the first data cache": ("D1mr", "D1mw"),
    "misses of 1 MiB": ("ILmr", "DLmr", "DLmw"),
}
"""The rows of the table, and callgrind's names of the events that each sums up."""


class Options(argparse.Namespace):
    """The command line."""

    nodes: int
    jobs: int
    is_server: bool


async def serve(options: Options) -> None:
    """Register jobs, and have callgrind count those after the first ones."""
    config = ServerConfig(name="bench", heartbeat_grace_s=CALLS_LATE_S, min_heartbeat_ttl_s=CALLS_LATE_S)
    server = Server(config, env=RealEnv(), log=MemoryLog())
    ready = asyncio.Event()
    running = asyncio.create_task(server.run(ready=ready))
    await ready.wait()
    prepare_first_requests()
    nodes = [replace(node(number, 0), datacenter="dc1") for number in range(options.nodes)]
    await SimulatedClients(server, nodes).register()
    app = make_app(server.http, None, AgentInfo(name="bench"))
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    client = Client(runner, app)

    async def register(numbers: range) -> None:
        waiting = [registration(json.dumps({"Job": service_job(f"job-{n}", 1)}).encode()) for n in reversed(numbers)]

        async def send(connection: int) -> None:
            while waiting:
                await client.ask(waiting.pop(), over=connection)

        async with asyncio.TaskGroup() as group:
            for connection in range(CONNECTIONS):
                group.create_task(send(connection))
        state = server.state
        while len(state.allocs) < numbers.stop or state.evals.count_where("status", "pending"):
            await asyncio.sleep(LOOK_S)
            state = server.state

    await register(range(FIRST_JOBS))
    gc.collect()
    control("-i", "on")
    await register(range(FIRST_JOBS, FIRST_JOBS + options.jobs))
    control("-i", "off")
    await runner.cleanup()
    await server.stop()
    await running


def counted(options: Options) -> dict[str, int]:
    """The numbers of callgrind's events of all counted jobs."""
    with tempfile.TemporaryDirectory() as folder:
        run_counted(
            folder, "bench.registrations", "--server", "--nodes", str(options.nodes), "--jobs", str(options.jobs),
            flags=CACHES,
        )  # fmt: skip
        text = (Path(folder) / "counts").read_text()
    names, numbers = re.search(r"^events: (.+)$", text, re.M), re.search(r"^totals: (.+)$", text, re.M)
    assert names is not None and numbers is not None, text[:500]
    return dict(zip(names[1].split(), map(int, numbers[1].split()), strict=False))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench registrations")
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=480, help="counted ones (default 480)")
    parser.add_argument("--server", dest="is_server", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(namespace=Options())
    if options.is_server:
        uvloop.run(serve(options))
        return
    need_callgrind("registrations")
    found = counted(options)
    rows = [
        Row(f"{what} a job", "", f"{sum(found.get(name, 0) for name in names) // options.jobs:,}", "")
        for what, names in EVENTS.items()
    ]
    print_table(f"a registered and placed job, {options.nodes:,} nodes", rows)


if __name__ == "__main__":
    main()
