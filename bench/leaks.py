"""Measures what ended allocations leave behind: invariant E9 allows no files, processes or growing memory.

`python -m bench leaks` runs 1,000 lives over all drivers and then 3,000 batch allocations (`bench.leaks_batch`);
`python -m bench leaks batch` only the latter, and `python -m bench leaks batch --scale` ten times as many.

A life is placed, given a template's file and secrets, started, read, measured, worked in (`alloc exec`), stopped and
forgotten; every second round's groups have a network and a mapped port of their own. After a warm-up of 200 the agent's
holdings are counted, after the next 1,000 again, and after another 1,000 once more, and at the end the containers that
the engines still have, and what podman runs beside them. The container engines are our own
(`yurt.testing.services.engines`), where their programs are. BENCH_LEAKS_LIVES=200 makes it shorter.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from yurt.testing.agent import Agent, stop_jobs, wait_for
from yurt.testing.leaks import CONFIGS, Holdings, Lives, has_bridge, usable_drivers
from yurt.testing.services.engines import DockerEngine, PodmanEngine, missing

from bench import leaks_batch
from bench.table import Row, print_table

Engine = DockerEngine | PodmanEngine
WARM_UP, LIVES, EACH = 200, 1000, 8
BATCH = 3000
GROWTH_MB, SECOND_GROWTH_MB = 4.0, 1.0
SETTLE_S = 65.0
"""The agent collects what is left in memory once a minute."""


def main() -> None:
    """Measure and print."""
    if "batch" not in sys.argv[1:]:
        measure_lives()
    leaks_batch.measure(BATCH * 10 if "--scale" in sys.argv[1:] else BATCH)


def measure_lives() -> None:
    """Lives over all drivers."""
    expected = int(os.environ.get("BENCH_LEAKS_LIVES", str(LIVES)))
    with tempfile.TemporaryDirectory(prefix="yurt-bench-", ignore_cleanup_errors=True) as name, ExitStack() as stack:
        folder = Path(name)
        engines = started(folder, stack)
        plugins = {kind: {"config": options_of(kind, engine)} for kind, engine in engines.items()}
        agent = Agent(folder, data_dir=folder / "agent", name="leaks", extra={"plugin": plugins})
        agent.start()
        try:
            drivers = wait_for("the drivers", lambda: found_drivers(agent, tuple(plugins)), 60.0)
            lives = Lives(agent, drivers, networks=has_bridge(agent))
            print(f"drivers: {', '.join(drivers)}; {'with' if lives.networks else 'without'} networks of groups")
            counted = [live(lives, min(WARM_UP, expected)), live(lives, expected), live(lives, expected)]
            left = {f"containers of {kind}": len(engine.containers()) for kind, engine in engines.items()}
            if isinstance(podman := engines.get("podman"), PodmanEngine):
                left["monitors of podman"] = len(podman.monitors())
        finally:
            stop_jobs(agent)
            agent.interrupt(60)
    report(counted, left, expected)


def started(folder: Path, stack: ExitStack) -> dict[str, Engine]:
    """Engines with the image that the tasks run, which end with the stack."""
    engines: dict[str, Engine] = {}
    for kind, make, programs in (
        ("docker", DockerEngine, ("dockerd", "containerd", "docker")),
        ("podman", PodmanEngine, ("podman", "runc", "conmon")),
    ):
        reason = missing(*programs, "busybox", "ip")
        if reason:
            print(f"{kind}: left out, {reason}")
            continue
        (folder / kind).mkdir()
        engine: Engine = make(folder / kind)
        stack.callback(engine.stop)
        engine.start()
        engine.import_image(CONFIGS[kind]["image"])
        engines[kind] = engine
    return engines


def options_of(kind: str, engine: Engine) -> dict[str, str]:
    """What the agent's configuration says of an engine."""
    if kind == "podman":
        return {"socket_path": str(engine.socket)}
    return {"endpoint": f"unix://{engine.socket}", "infra_image": CONFIGS[kind]["image"]}


def found_drivers(agent: Agent, engines: Sequence[str]) -> list[str]:
    """The drivers that work, once those of the engines do."""
    found = usable_drivers(agent)
    return found if set(engines) <= set(found) else []


def live(lives: Lives, expected: int) -> Holdings:
    """At least so many lives; what the agent holds when all has settled."""
    done, began = 0, time.monotonic()
    while done < expected:
        done += lives.round(EACH)
    print(f"{done} lives in {time.monotonic() - began:.0f} s")
    limit = time.monotonic() + SETTLE_S
    found = lives.holdings()
    while time.monotonic() < limit:
        time.sleep(1)
        again = lives.holdings()
        found = min(found, again, key=lambda each: (each.processes, each.descriptors, each.memory_mb))
    return found


def report(counted: list[Holdings], left: dict[str, int], expected: int) -> None:
    """The three counts side by side; what has grown is marked."""
    before, first, second = counted
    rows = []
    for name in Holdings._fields[:-1]:
        values = [getattr(each, name) for each in counted]
        text = " -> ".join(str(value) for value in values)
        rows.append(Row(name, "", text + ("  LEAK" if values[2] > values[0] else ""), "no growth"))
    for name, count in left.items():
        rows.append(Row(name, "", f"{count}{'  LEAK' if count else ''}", "none"))
    memory = f"{before.memory_mb:.1f} -> {first.memory_mb:.1f} -> {second.memory_mb:.1f} MB"
    grown = first.memory_mb - before.memory_mb
    allowed = max(GROWTH_MB, before.memory_mb * 0.05)
    is_leak = grown > allowed or second.memory_mb - first.memory_mb > SECOND_GROWTH_MB
    rows.append(
        Row("memory (anonymous PSS)", "", memory + ("  LEAK" if is_leak else ""), f"+{allowed:.0f} MB, then +1 MB")
    )
    print_table(f"after the warm-up, after {expected} lives, after {expected} more", rows)


if __name__ == "__main__":
    main()
