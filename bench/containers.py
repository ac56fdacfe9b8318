"""Measures container starts under `yurt agent -dev`, beside the engine's own command line.

The engines are our own (`yurt.testing.services.engines`), so it needs root and their packages; one that is absent is
left out with its reason. The containers have no network and sleep. Run it with `python -m bench containers`.
"""

from __future__ import annotations

import functools
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from yurt.testing.agent import Agent, raw_exec_job, register
from yurt.testing.services.engines import DockerEngine, PodmanEngine, missing

from bench.agent import memory_mb, stop, timed
from bench.table import Row, print_table

LATENCIES, MANY = 15, 20
Engine = DockerEngine | PodmanEngine


def main() -> None:
    """Measure and print both engines."""
    for name, programs in (("docker", ("dockerd", "containerd", "docker")), ("podman", ("podman", "runc", "conmon"))):
        reason = missing(*programs, "busybox", "ip")
        if reason:
            print(f"{name}: left out, {reason}\n")
            continue
        with tempfile.TemporaryDirectory(prefix="yurt-bench-", ignore_cleanup_errors=True) as folder:
            measure(name, Path(folder))


def measure(name: str, folder: Path) -> None:
    """One engine."""
    for each in ("engine", "agent"):
        (folder / each).mkdir()
    engine: Engine = DockerEngine(folder / "engine") if name == "docker" else PodmanEngine(folder / "engine")
    option = {"endpoint": f"unix://{engine.socket}"} if name == "docker" else {"socket_path": str(engine.socket)}
    agent = Agent(folder / "agent", data_dir=None, name="bench", extra={"plugin": [{name: [{"config": [option]}]}]})
    try:
        engine.start()
        engine.import_image()
        agent.start()
        wait_for_driver(agent, name)
        print_table(name, rows(agent, engine, name), other=f"{name} run")
    finally:
        agent.interrupt(60)
        engine.stop()


def wait_for_driver(agent: Agent, name: str) -> None:
    """The node has the driver, and the engine has run something before."""
    deadline = time.monotonic() + 20
    node_id = agent.get("/v1/nodes")[0]["ID"]
    while not agent.get(f"/v1/node/{node_id}")["Drivers"].get(name, {}).get("Healthy"):
        assert time.monotonic() < deadline, f"{name} is not healthy"
        time.sleep(0.05)
    timed(agent, "first", job("first", name), "running")


def rows(agent: Agent, engine: Engine, name: str) -> Sequence[Row]:
    """All figures of one engine."""
    ours = [timed(agent, f"one-{number}", job(f"one-{number}", name), "running") for number in range(LATENCIES)]
    theirs = [took(functools.partial(run, engine, f"one-{number}")) for number in range(LATENCIES)]
    clear(engine)
    begin = time.monotonic()
    register(agent, job("many", name, count=MANY))
    agent.running("many", MANY)
    many = (time.monotonic() - begin) * 1000
    memory = memory_mb(agent)
    stop(agent, "many")
    clear(engine)
    with ThreadPoolExecutor(MANY) as pool:
        together = took(lambda: list(pool.map(lambda number: run(engine, f"many-{number}"), range(MANY))))
    clear(engine)
    return (
        Row(f"PUT until running, median of {LATENCIES}", ms(median(theirs)), ms(median(ours)), ""),
        Row("the same, fastest", ms(min(theirs)), ms(min(ours)), ""),
        Row(f"{MANY} containers at once, until all run", ms(together), ms(many), ""),
        Row(f"memory of the agent with {MANY} containers (PSS)", "", f"{memory:.0f} MB", "80 MB"),
    )


def job(job_id: str, driver: str, *, count: int = 1) -> dict[str, Any]:
    """A job of sleeping containers without a network."""
    image = DockerEngine.image if driver == "docker" else PodmanEngine.image
    made = raw_exec_job(job_id, "", count=count)
    task = made["TaskGroups"][0]["Tasks"][0]
    task |= {"Driver": driver, "KillSignal": "SIGKILL"}
    task["Config"] = {"image": image, "command": "sleep", "args": ["1000"], "network_mode": "none"}
    task["Resources"] = {"CPU": 20, "MemoryMB": 32}
    return made


def run(engine: Engine, name: str) -> None:
    """The engine's own `run -d` of the same container."""
    done: subprocess.CompletedProcess[bytes] = engine.run(
        "run", "--detach", "--network", "none", "--memory", "32m", "--name", name, engine.image, "sleep", "1000"
    )
    assert done.returncode == 0, done.stderr


def clear(engine: Engine) -> None:
    """Remove all containers."""
    found = engine.containers()
    if found:
        engine.run("rm", "--force", *found)


def took(work: Callable[[], object]) -> float:
    """Milliseconds."""
    begin = time.monotonic()
    work()
    return (time.monotonic() - begin) * 1000


def ms(value: float) -> str:
    """With its unit."""
    return f"{value:.0f} ms" if value < 10_000 else f"{value / 1000:.1f} s"
