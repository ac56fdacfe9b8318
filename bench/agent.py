"""Measures start time, memory and latencies of `yurt agent -dev`, beside figures of Nomad 1.1.2.

Every figure is a median of several runs; the loops are bounded. Run it with `python -m bench agent`.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from yurt.testing.agent import Agent, raw_exec_job, register, wait_for

from bench.table import Row, print_table

STARTS, LATENCIES, MANY = 5, 30, 200


def main() -> None:
    """Measure and print."""
    with compiled_once():
        print_table("agent -dev", list(measured()))


def measured() -> Iterator[Row]:
    """All figures, in the order in which they are told."""
    starts = [start_to_ready() for _ in range(STARTS)]
    yield Row("agent -dev until its node is ready", "1.34 s", f"{statistics.median(starts):.2f} s", "1.0 s")
    with dev_agent() as agent:
        time.sleep(3)
        yield Row("idle memory, agent and zygote (PSS)", "57 MB RSS", f"{memory_mb(agent):.0f} MB", "80 MB")
        yield Row("idle CPU over 10 s", "0.35-0.55 %", f"{cpu_percent(agent, 10):.2f} %", "")
        latencies = sorted(put_to_running(agent, number) for number in range(LATENCIES))
        middle = statistics.median(latencies)
        yield Row("raw_exec, PUT until running, median of 30", "163-203 ms", f"{middle:.0f} ms", "50 ms")
        yield Row("the same, 90th percentile", "348-361 ms", f"{latencies[int(LATENCIES * 0.9)]:.0f} ms", "")
        completions = [put_to_complete(agent, number) for number in range(10)]
        middle = statistics.median(completions)
        yield Row("batch /bin/true, PUT until complete, median", "284-324 ms", f"{middle:.0f} ms", "")
        yield from many_tasks(agent)


@contextmanager
def compiled_once() -> Iterator[None]:
    """Agents start from compiled modules, as installed ones do, even where the environment forbids to write them.

    They lie in a folder of the benchmark's own; an uncounted start makes them.
    """
    kept = {name: os.environ.pop(name, None) for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PYTHONPYCACHEPREFIX"] = folder
        try:
            start_to_ready()
            yield
        finally:
            del os.environ["PYTHONPYCACHEPREFIX"]
            os.environ.update({name: value for name, value in kept.items() if value is not None})


def many_tasks(agent: Agent) -> Iterator[Row]:
    """200 sleeping tasks of one job: time to all running, helper memory, CPU once their deployment is done."""
    before = helpers_mb(agent)
    begin = time.monotonic()
    register(agent, raw_exec_job("many", "/bin/sleep", "1000", count=MANY))
    agent.running("many", MANY)
    yield Row(f"{MANY} raw_exec tasks, PUT until all run", "4.2 s", f"{time.monotonic() - begin:.2f} s", "1.5 s")
    yield Row("helper memory per task (PSS)", "5.9 MB", f"{(helpers_mb(agent) - before) / MANY:.2f} MB", "0.5 MB")
    wait_for("the deployment to end", lambda: agent.get("/v1/job/many/deployment")["Status"] == "successful", 60)
    yield Row(f"CPU of everything, {MANY} tasks asleep, 10 s", "49-52 %", f"{cpu_percent(agent, 10):.2f} %", "< 1 %")
    stop(agent, "many")


@contextmanager
def dev_agent() -> Iterator[Agent]:
    """A dev agent in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        agent = Agent(Path(folder), data_dir=None, name="bench")
        agent.start()
        try:
            yield agent
        finally:
            agent.interrupt()


def start_to_ready() -> float:
    """Seconds from starting the process until its node is ready."""
    begin = time.monotonic()
    with dev_agent():
        return time.monotonic() - begin


def put_to_running(agent: Agent, number: int) -> float:
    """Milliseconds from the request until the allocation runs."""
    return timed(agent, f"latency-{number}", raw_exec_job(f"latency-{number}", "/bin/sleep", "1000"), "running")


def put_to_complete(agent: Agent, number: int) -> float:
    """Milliseconds from the request until the batch allocation is complete."""
    return timed(agent, f"true-{number}", raw_exec_job(f"true-{number}", "/bin/true", kind="batch"), "complete")


def timed(agent: Agent, job_id: str, job: dict[str, Any], status: str) -> float:
    """Milliseconds until the job's allocation has that status; the job is stopped afterwards."""
    begin = time.monotonic()
    register(agent, job)
    until(lambda: [a for a in agent.allocs(job_id) if a["ClientStatus"] == status])
    took = (time.monotonic() - begin) * 1000
    stop(agent, job_id)
    return took


def until(probe: Callable[[], object]) -> None:
    """Poll each 2 ms, for 20 s at most."""
    deadline = time.monotonic() + 20
    while not probe():
        if time.monotonic() > deadline:
            raise TimeoutError("the benchmark's condition never came")
        time.sleep(0.002)


def stop(agent: Agent, job_id: str) -> None:
    """Stop the job and wait for its tasks."""
    agent.call("DELETE", f"/v1/job/{job_id}?purge=true")
    wait_for(
        f"{job_id} to end",
        lambda: all(a["ClientStatus"] not in ("running", "pending") for a in agent.allocs(job_id)),
        30,
    )


def family(agent: Agent) -> list[psutil.Process]:
    """The agent and all that it started."""
    assert agent.process is not None
    root = psutil.Process(agent.process.pid)
    return [root, *root.children(recursive=True)]


def pss_mb(process: psutil.Process) -> float:
    """Proportional memory of a process."""
    try:
        return float(process.memory_full_info().pss) / 1e6
    except psutil.NoSuchProcess:
        return 0.0


def memory_mb(agent: Agent) -> float:
    """The agent with its helpers."""
    return sum(pss_mb(process) for process in family(agent))


def helpers_mb(agent: Agent) -> float:
    """The zygote and its shims."""
    return sum(pss_mb(process) for process in family(agent)[1:] if process.name().startswith(("python", "yurt-shim")))


def cpu_percent(agent: Agent, span_s: float) -> float:
    """Percent of one core used by agent and helpers over a span."""

    def used() -> float:
        total = 0.0
        for process in family(agent):
            times = process.cpu_times()
            total += times.user + times.system
        return total

    before = used()
    time.sleep(span_s)
    return (used() - before) / span_s * 100
