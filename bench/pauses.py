"""Measures the longest event-loop turn of a server during work on a large state.

Each kind of work is done on a server of its own whose state is there from the start: a million allocations on 5,000
nodes, live ones of 90,001 jobs (one has 100,000), or what 100,000 dead jobs left behind. The log is in memory. A task
that comes in every turn tells how much time of the processor the turn before took in the loop's thread, so that other
work on the machine changes little. What holds no turn for long leaves room for answers, however much it is in all.

    python -m bench pauses [--json] [--scale 0.1] [--kind NAME ...]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

import uvloop
from aiohttp import web
from yurt.http.agent_info import AgentInfo
from yurt.http.app import make_app
from yurt.http.telemetry import TelemetrySettings
from yurt.runtime.env import RealEnv
from yurt.server.config import ServerConfig
from yurt.server.server import Server
from yurt.state import Snapshot
from yurt.storage.memory import MemoryLog
from yurt.testing.unique_ports import free_ports

from bench.pauses_hostile import HOSTILE
from bench.pauses_work import KINDS as ORDINARY
from bench.pauses_work import Kind, Site
from bench.pauses_worlds import WORLDS, Sizes

KINDS = (*ORDINARY, *HOSTILE)
LONG_MS = 30.0
"""The budget of HTTP reads: a turn of this length alone breaks it."""
BUSY_S = 0.0001
"""A turn in which nothing is done but the measuring is shorter."""
IDLE_S = 0.001
SETTLE_S = 0.2
AGENT = AgentInfo(name="bench", telemetry=TelemetrySettings(prometheus=True))


class Measured(NamedTuple):
    """What one kind of work gave: its longest turn, how many were longer than `LONG_MS`, and what it took in all."""

    longest_ms: float
    long_turns: int
    loop_s: float
    wall_s: float


class Turns:
    """The processor's time of each turn of the loop, in its thread."""

    def __init__(self) -> None:
        self._took_s: list[float] = []

    async def run(self) -> None:
        """Come in every turn in which something is done, and else leave the processor to threads; until cancelled."""
        last, took_s = time.thread_time(), 0.0
        while True:
            await asyncio.sleep(0.0 if took_s > BUSY_S else IDLE_S)
            now = time.thread_time()
            took_s, last = now - last, now
            self._took_s.append(took_s)

    def measured(self, wall_s: float) -> Measured:
        """What was seen."""
        longest_ms = max(self._took_s, default=0.0) * 1000
        long_turns = sum(1 for took in self._took_s if took * 1000 > LONG_MS)
        return Measured(longest_ms, long_turns, sum(took for took in self._took_s if took > BUSY_S), wall_s)


class StandingLog(MemoryLog):
    """A log in memory that goes on after an index."""

    def __init__(self, last_index: int) -> None:
        super().__init__()
        self._last_index = last_index


@asynccontextmanager
async def serving(state: Snapshot, kind: Kind) -> AsyncIterator[Site]:
    """A server that leads on the state, with its HTTP API."""
    (port,) = free_ports(1)
    config = ServerConfig(name="bench", **kind.config)
    server = Server(config, env=RealEnv(), log=StandingLog(state.index))
    server.log.writer.state = state
    ready = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(server.run(ready=ready), name="server")
        await ready.wait()
        runner = web.AppRunner(make_app(server.http, None, AGENT), access_log=None, shutdown_timeout=0.5)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await asyncio.to_thread(state.columns_maker())
        await asyncio.sleep(SETTLE_S)
        try:
            yield Site(server, port, group)
        finally:
            await runner.cleanup()
            await server.stop()
            await running


async def measure(state: Snapshot, kind: Kind) -> Measured:
    """One kind of work on a new server."""
    async with serving(state, kind) as site:
        if kind.before is not None:
            await kind.before(site)
        turns = Turns()
        meter = asyncio.create_task(turns.run())
        await asyncio.sleep(0)
        begin = time.perf_counter()
        await kind.work(site)
        wall_s = time.perf_counter() - begin
        await asyncio.sleep(10 * IDLE_S)
        meter.cancel()
        return turns.measured(wall_s)


def runs(kinds: Iterable[Kind], sizes: Sizes) -> Iterator[tuple[Kind, Measured]]:
    """All kinds, those of one world together: only one is in memory at a time."""
    expected = list(kinds)
    for name, make in WORLDS.items():
        of_world = [kind for kind in expected if kind.world == name]
        if not of_world:
            continue
        state = make(sizes)
        gc.collect()
        gc.freeze()
        for kind in of_world:
            yield kind, uvloop.run(measure(state, kind))


def main() -> None:
    """Run the chosen kinds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--scale", type=float, default=1.0, help="a part of the full size")
    parser.add_argument("--kind", action="extend", nargs="+", metavar="NAME", help="only these")
    options = parser.parse_args()
    known: Mapping[str, Kind] = {kind.name: kind for kind in KINDS}
    unknown = set(options.kind or ()) - known.keys()
    if unknown:
        parser.error(f"no kind {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
    sizes = Sizes.scaled(options.scale)
    if not options.json:
        print(f"{'kind':<28}{'longest turn':>14}{'> 30 ms':>9}{'loop':>9}{'wall':>9}  what")
    for kind, found in runs((k for k in KINDS if k.name in (options.kind or known)), sizes):
        if options.json:
            print(json.dumps({"kind": kind.name, **found._asdict()}), flush=True)
        else:
            print(
                f"{kind.name:<28}{found.longest_ms:>11,.1f} ms{found.long_turns:>9}{found.loop_s:>7.2f} s"
                f"{found.wall_s:>7.2f} s  {kind.what}",
                flush=True,
            )


if __name__ == "__main__":
    main()
