"""What 1,000 lives of allocations over all drivers leave on a node: nothing, says invariant E9, and no memory.

A life is placed, started, read, measured, worked in (`alloc exec`), stopped and forgotten. After a warm-up of 200 the
agent's holdings are counted, after the next 1,000 again, and after another 1,000 once more.
Run it with `python -m bench leaks`; BENCH_LEAKS_LIVES=200 makes it shorter.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from yurt.testing.agent import Agent
from yurt.testing.leaks import Holdings, Lives, usable_drivers

from bench.table import Row, print_table

WARM_UP, LIVES, EACH = 200, 1000, 8
GROWTH_MB, SECOND_GROWTH_MB = 4.0, 1.0
SETTLE_S = 65.0
"""The agent collects what is left in memory once a minute."""


def main() -> None:
    """Measure and print."""
    wanted = int(os.environ.get("BENCH_LEAKS_LIVES", str(LIVES)))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        agent = Agent(folder, data_dir=None, name="leaks")
        agent.start()
        try:
            lives = Lives(agent, usable_drivers(agent))
            print(f"drivers: {', '.join(lives.drivers)}")
            counted = [live(lives, min(WARM_UP, wanted)), live(lives, wanted), live(lives, wanted)]
        finally:
            agent.interrupt(60)
    report(counted, wanted)


def live(lives: Lives, wanted: int) -> Holdings:
    """At least so many lives; what the agent holds when all has settled."""
    done, began = 0, time.monotonic()
    while done < wanted:
        done += lives.round(EACH)
    print(f"{done} lives in {time.monotonic() - began:.0f} s")
    limit = time.monotonic() + SETTLE_S
    found = lives.holdings()
    while time.monotonic() < limit:
        time.sleep(1)
        again = lives.holdings()
        found = min(found, again, key=lambda each: (each.processes, each.descriptors, each.memory_mb))
    return found


def report(counted: list[Holdings], wanted: int) -> None:
    """The three counts side by side; what has grown is marked."""
    before, first, second = counted
    rows = []
    for name in Holdings._fields[:-1]:
        values = [getattr(each, name) for each in counted]
        text = " -> ".join(str(value) for value in values)
        rows.append(Row(name, "", text + ("  LEAK" if values[2] > values[0] else ""), "no growth"))
    memory = f"{before.memory_mb:.1f} -> {first.memory_mb:.1f} -> {second.memory_mb:.1f} MB"
    grown = first.memory_mb - before.memory_mb
    allowed = max(GROWTH_MB, before.memory_mb * 0.05)
    is_leak = grown > allowed or second.memory_mb - first.memory_mb > SECOND_GROWTH_MB
    rows.append(Row("memory (PSS)", "", memory + ("  LEAK" if is_leak else ""), f"+{allowed:.0f} MB, then +1 MB"))
    print_table(f"after the warm-up, after {wanted} lives, after {wanted} more", rows)


if __name__ == "__main__":
    main()
