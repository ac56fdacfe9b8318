"""Measures the cost of the audit log: registrations and reads a second, and CPU for each, with and without it.

    python -m bench audit [--slices 12] [--requests 100]

Each setting has an agent of its own with state on disk. In each slice every agent gets the same requests, one agent
after the other, each in another order, so that what else the machine does meets all of them. What a setting loses is
the median of the slices' ratios to the agent without the audit log, with its quartiles; what the control loses, a
second agent without it, is what two equal agents differ by on this machine. CPU is that of the agent's process.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp
from yurt.testing.agent import Agent

from bench.server import processor_s
from bench.table import lost

AT_ONCE = 16
OFF: Final = "off"
NO_READS = {"reads": {"endpoints": ["*"], "stages": ["*"], "operations": ["GET"]}}
SETTINGS: dict[str, dict[str, Any]] = {
    OFF: {},
    "control: off too": {},
    "enforced, writes": {"enabled": True, "sink": {"a": {"delivery_guarantee": "enforced"}}, "filter": NO_READS},
    "best-effort, writes": {"enabled": True, "sink": {"a": {"delivery_guarantee": "best-effort"}}, "filter": NO_READS},
    "enforced, all": {"enabled": True, "sink": {"a": {"delivery_guarantee": "enforced"}}},
}
JOB: Final = {"Type": "service", "Datacenters": ["none"], "TaskGroups": [
    {"Name": "g", "Count": 1, "Tasks": [{"Name": "t", "Driver": "raw_exec", "Config": {"command": "true"}}]}
]}  # fmt: skip


class Sample(NamedTuple):
    """Seconds for one request: by the clock, and of the agent's processor time."""

    wall_s: float
    cpu_s: float


class Options(argparse.Namespace):
    """The command line."""

    slices: int
    requests: int


Samples = dict[tuple[str, str], list[Sample]]
"""By setting and kind of request."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench audit")
    parser.add_argument("--slices", type=int, default=12)
    parser.add_argument("--requests", type=int, default=100, help="to each agent, of each kind, in a slice")
    options = parser.parse_args(namespace=Options())
    found: Samples = defaultdict(list)
    with agents_running() as agents:
        for number in range(options.slices + 1):
            for name, kind, sample in one_slice(agents, number, options.requests):
                found[name, kind] += [sample] if number else []  # The first slice warms up.
    print_results(found)


def one_slice(agents: Mapping[str, Agent], number: int, count: int) -> Iterator[tuple[str, str, Sample]]:
    """Requests of both kinds to every agent, each slice beginning with another one."""
    names = list(agents)
    for kind in ("register", "read"):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            yield name, kind, asyncio.run(measured(agents[name], kind, number, count))


@contextmanager
def agents_running() -> Iterator[Mapping[str, Agent]]:
    """An agent for each setting."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        agents = {}
        for number, (name, audit) in enumerate(SETTINGS.items()):
            own = Path(folder) / str(number)
            own.mkdir()
            agent = agents[name] = Agent(own, data_dir=own / "data", extra={"audit": audit} if audit else {})
            agent.start()
            stack.callback(agent.interrupt)
        yield agents


async def measured(agent: Agent, kind: str, number: int, count: int) -> Sample:
    """Requests of one kind, AT_ONCE of them at a time; `number` is that of the slice."""
    assert agent.process is not None
    before_s, begin_s = processor_s(agent.process.pid), time.monotonic()
    left = iter(range(number * count, (number + 1) * count))

    async def work(session: aiohttp.ClientSession) -> None:
        for at in left:
            if kind == "register":
                body = {"Job": {**JOB, "ID": f"web-{at}", "Name": f"web-{at}"}}
                answer = session.put(f"{agent.address}/v1/jobs", json=body)
            else:
                answer = session.get(f"{agent.address}/v1/job/web-{at}")
            async with answer as response:
                await response.read()
                response.raise_for_status()

    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work(session))
    return Sample((time.monotonic() - begin_s) / count, (processor_s(agent.process.pid) - before_s) / count)


def print_results(found: Samples) -> None:
    """One row for each setting and kind of request."""
    slices = len(found[OFF, "read"])
    print(f"audit log, medians of {slices} slices (quartiles)")
    line = "{:<22} {:<10} {:>9}  {:>22}  {:>9}  {:>22}".format
    print(line("setting", "request", "rate, 1/s", "rate lost", "CPU, us", "CPU lost"))
    for name, kind in sorted(found, key=lambda key: (key[1] == "read", list(SETTINGS).index(key[0]))):
        samples = found[name, kind]
        wall, cpu = ("", "") if name == OFF else (against(found[OFF, kind], samples, at) for at in (0, 1))
        rate = f"{1 / statistics.median(each.wall_s for each in samples):,.0f}"
        cpu_us = f"{statistics.median(each.cpu_s for each in samples) * 1e6:,.0f}"
        print(line(name, kind, rate, wall, cpu_us, cpu))


def against(off: Sequence[Sample], other: Sequence[Sample], at: int) -> str:
    """The loss of one field of the samples, with its quartiles."""
    return lost([(one[at], two[at]) for one, two in zip(off, other, strict=True)])


if __name__ == "__main__":
    main()
