"""Every invariant that the documentation lists has its tests; and no change escapes a loop of blocking queries."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from yurt.runtime.env import RealEnv
from yurt.server.config import ServerConfig
from yurt.server.server import Server
from yurt.storage.memory import MemoryLog
from yurt.structs.commands import RegisterJob
from yurt.testing import factories

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "explanation" / "invariants.md"
TEST = re.compile(r"`((?:tests|e2e|drivers|devices|core/src/yurt/testing)/[\w/]+\.py)::(\w+)`")
WRITES = 200


def test_every_named_test_exists() -> None:
    named = TEST.findall(PAGE.read_text())
    missing = [f"{path}::{name}" for path, name in named if not has_test(ROOT / path, name)]

    assert len(named) > 30
    assert not missing, "\n".join(missing)


def has_test(path: Path, name: str) -> bool:
    """The file defines a test of that name."""
    return path.exists() and f"def {name}(" in path.read_text()


async def test_a_loop_of_blocking_queries_sees_every_change() -> None:
    server = Server(ServerConfig(name="watched"), env=RealEnv(), log=MemoryLog())
    ready = asyncio.Event()
    seen: list[int] = []

    async def watch() -> None:
        index = server.state.index
        while len(seen) < WRITES:
            state = await server.replica.wait_past(
                [("jobs", ("default", "web"))], lambda now: now.jobs.index, min_index=index, timeout_s=5
            )
            job = state.jobs[("default", "web")]
            assert job.modify_index > index, "woken without a change"
            index = state.jobs.index
            seen.append(job.version)
            acknowledged.set()

    async with asyncio.TaskGroup() as group:
        running = group.create_task(server.run(ready=ready))
        async with asyncio.timeout(60):
            await ready.wait()
            acknowledged = asyncio.Event()
            watching = group.create_task(watch())
            for number in range(WRITES):
                acknowledged.clear()
                await server.replica.propose(RegisterJob(job=factories.job(meta={"n": str(number)})))
                await acknowledged.wait()
            await watching
        await server.stop()
        running.cancel()

    assert seen == list(range(WRITES))
