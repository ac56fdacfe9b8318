"""Measures the memory that batch allocations leave in a dev agent after garbage collection on server and client.

An agent's memory is taken when it is idle, when N allocations of the mock driver have ended, and when servers and
client have collected them all; and the number of blocks that its Python objects take, which tells objects that are kept
from pages that other objects pin. Then come tasks that run, on an agent of their own.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from yurt.testing.agent import Agent, raw_exec_job, register, running_agent, wait_for
from yurt.testing.leaks import anonymous_mb, data_dir_of

from bench.table import Row, print_table

EACH = 300
"""Allocations of one job."""
RUNNING = 300
JOB_LIMIT_S, COLLECT_LIMIT_S = 600.0, 300.0
START_S = 5.0
SETTLE_S = 35.0
"""The agent gives free pages back every 30 s."""
ALLOWED = 1.10


def measure(count: int) -> None:
    """Run `count` allocations in jobs of `EACH` allocations, and print a table."""
    with tempfile.TemporaryDirectory(prefix="yurt-bench-", ignore_cleanup_errors=True) as name:
        agent = Agent(Path(name), data_dir=None, name="leaks")
        agent.start()
        try:
            time.sleep(START_S)
            began = memory_mb(agent)
            live_blocks(agent)  # The first answer imports what makes it.
            objects_began = live_blocks(agent)
            seconds = run_to_end(agent, max(count // EACH, 1))
            peak = memory_mb(agent)
            collect(agent)
            time.sleep(SETTLE_S)
            after, objects_after = memory_mb(agent), live_blocks(agent)
        finally:
            agent.interrupt(60)
    mark = "" if after <= began * ALLOWED else "  GROWN"
    rows = [
        Row("idle agent", "", f"{began:.1f} MB", ""),
        Row(f"{count} allocations ended, in {seconds:.0f} s", "", f"{peak:.1f} MB", ""),
        Row("the same for each of them", "", f"{(peak - began) * 1000 / count:.1f} KB", ""),
        Row("all of them collected", "", f"{after:.1f} MB{mark}", f"{began * ALLOWED:.1f} MB"),
        Row("live blocks of Python objects then, and before", "", f"{objects_after} / {objects_began}", ""),
        Row("the same for each of the allocations", "", f"{(objects_after - objects_began) / count:.2f}", ""),
        Row(f"each of {RUNNING} running tasks", "", f"{running_kb():.1f} KB", ""),
    ]
    print_table(f"memory of a dev agent (anonymous PSS), {count} batch allocations", rows)


def memory_mb(agent: Agent) -> float:
    """The agent's own process: the mock driver has no other."""
    assert agent.process is not None
    return anonymous_mb(agent.process.pid)


def live_blocks(agent: Agent) -> int:
    """How many blocks of memory Python's objects take: unlike pages, none of them waits for its neighbours' end."""
    gauges = agent.get("/v1/metrics")["Gauges"]
    blocks: float = next(each["Value"] for each in gauges if each["Name"].endswith("runtime.heap_objects"))
    return round(blocks)


def mock_job(job_id: str, run_for: str, *, kind: str, count: int) -> dict[str, Any]:
    """A job whose tasks cost the agent as little as can be."""
    job = raw_exec_job(job_id, "", kind=kind, count=count, EphemeralDisk={"SizeMB": 20})
    job["TaskGroups"][0]["Tasks"][0] |= {
        "Driver": "mock_driver", "Config": {"run_for": run_for}, "Resources": {"CPU": 1, "MemoryMB": 10},
        "LogConfig": {"MaxFiles": 1, "MaxFileSizeMB": 1},
    }  # fmt: skip
    return job


def run_to_end(agent: Agent, jobs: int) -> float:
    """One job after the other, each until all its allocations are complete; how long that took."""
    began = time.monotonic()
    for number in range(jobs):
        register(agent, mock_job(f"batch-{number}", "1ms", kind="batch", count=EACH))
        path = f"/v1/job/batch-{number}/summary"
        wait_for("ends", lambda path=path: agent.get(path)["Summary"]["g"]["Complete"] == EACH, JOB_LIMIT_S)  # type: ignore[misc]
    return time.monotonic() - began


def collect(agent: Agent) -> None:
    """Have the server forget all that is over; the client removes what the server has forgotten."""
    agent.call("PUT", "/v1/system/gc")
    folder = data_dir_of(agent) / "alloc"
    wait_for("an empty state", lambda: not agent.get("/v1/allocations"), COLLECT_LIMIT_S)
    wait_for("an empty folder", lambda: not any(folder.glob("*-*-*-*-*")), COLLECT_LIMIT_S)


def running_kb() -> float:
    """What a running task takes in an agent of its own; in another it takes the room that ended ones left."""
    with tempfile.TemporaryDirectory(prefix="yurt-bench-") as name, running_agent(Path(name), name="tasks") as agent:
        time.sleep(START_S)
        before = memory_mb(agent)
        register(agent, mock_job("running", "1h", kind="service", count=RUNNING))
        path = "/v1/job/running/summary"
        wait_for("running tasks", lambda: agent.get(path)["Summary"]["g"]["Running"] == RUNNING, JOB_LIMIT_S)
        return (memory_mb(agent) - before) * 1000 / RUNNING
