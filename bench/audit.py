"""Measures the cost of the audit log: registrations and reads a second, and CPU for each, with and without it.

    python -m bench audit [REQUESTS]

Each setting has an agent of its own with state on disk; settings take turns, so that what else the machine does hits
all of them. CPU is that of the agent's process.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp
from yurt.testing.agent import Agent

REQUESTS, ROUNDS, AT_ONCE = 1_000, 5, 16
NO_READS = {"reads": {"endpoints": ["*"], "stages": ["*"], "operations": ["GET"]}}
SETTINGS: dict[str, dict[str, Any]] = {
    "off": {},
    "enforced, writes": {"enabled": True, "sink": {"a": {"delivery_guarantee": "enforced"}}, "filter": NO_READS},
    "best-effort, writes": {"enabled": True, "sink": {"a": {"delivery_guarantee": "best-effort"}}, "filter": NO_READS},
    "enforced, all": {"enabled": True, "sink": {"a": {"delivery_guarantee": "enforced"}}},
}


def cpu_s(agent: Agent) -> float:
    """User and system time of the agent so far."""
    assert agent.process is not None
    fields = Path(f"/proc/{agent.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def ask(agent: Agent, count: int, *, writes: bool) -> None:
    """Send this many requests, AT_ONCE of them at a time."""
    job = {"ID": "web", "Name": "web", "Type": "service", "Datacenters": ["none"], "TaskGroups": [
        {"Name": "g", "Count": 1, "Tasks": [{"Name": "t", "Driver": "raw_exec", "Config": {"command": "true"}}]}
    ]}  # fmt: skip
    left = iter(range(count))

    async def work(session: aiohttp.ClientSession) -> None:
        for number in left:
            if writes:
                body = {"Job": job | {"ID": f"web-{number}", "Name": f"web-{number}"}}
                answer = session.put(f"{agent.address}/v1/jobs", json=body)
            else:
                answer = session.get(f"{agent.address}/v1/job/web-1")
            async with answer as response:
                await response.read()
                response.raise_for_status()

    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work(session))


def measured(agent: Agent, count: int, *, writes: bool) -> tuple[float, float]:
    """Requests a second, and milliseconds of CPU for each."""
    before_s, begin_s = cpu_s(agent), time.monotonic()
    asyncio.run(ask(agent, count, writes=writes))
    return count / (time.monotonic() - begin_s), (cpu_s(agent) - before_s) / count * 1000


def one_round(folder: Path, audit: dict[str, Any], count: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """Registrations and reads of a fresh agent."""
    folder.mkdir()
    agent = Agent(folder, data_dir=folder / "data", extra={"audit": audit} if audit else {})
    agent.start()
    try:
        measured(agent, 100, writes=True)
        return measured(agent, count, writes=True), measured(agent, count, writes=False)
    finally:
        agent.interrupt()


def main() -> None:
    """Print the table."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else REQUESTS
    found: dict[str, list[tuple[tuple[float, float], tuple[float, float]]]] = {name: [] for name in SETTINGS}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(ROUNDS):
            for name, audit in SETTINGS.items():
                found[name].append(one_round(Path(folder) / f"{turn} {name}", audit, count))
    print(f"{'audit':22}{'request':10}{'a second':>10}{'CPU, ms':>10}   medians of {ROUNDS} rounds of {count}")
    for kind, request in enumerate(("register", "read")):
        for name, rounds in found.items():
            rate, cpu = (statistics.median(each[kind][part] for each in rounds) for part in (0, 1))
            print(f"{name:22}{request:10}{rate:10.0f}{cpu:10.2f}")


if __name__ == "__main__":
    main()
