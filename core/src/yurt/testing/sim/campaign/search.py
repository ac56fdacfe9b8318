"""`make sim`: runs seeds that have not run yet on two processes, and keeps the record in the ledger.

This is a module of its own because the processes import it: they are started afresh and cannot import `__main__`.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Mapping
from multiprocessing import get_context
from multiprocessing.pool import AsyncResult
from pathlib import Path
from types import MappingProxyType
from typing import Final

import yurt
from yurt.testing.sim.campaign import ledger
from yurt.testing.sim.campaign.coverage import Gaps, read_gaps, steered, with_gaps
from yurt.testing.sim.plan import Plan, draw
from yurt.testing.sim.run import Report, report_text, run_plan

PROCESSES: Final = 2
IN_FLIGHT: Final = 3
"""How many runs are begun: results are taken in the order of seeds, and neither process should wait for the other."""


def search(
    hours: float, path: Path, *, tell: Callable[[str], None], fixed: Mapping[str, object] = MappingProxyType({})
) -> int:
    """Run the seeds after those of the ledger until the CPU time is used up; returns 1 when one failed, else 0.

    `fixed` replaces drawn fields of the plans.
    """
    text = path.read_text("utf-8")
    rows = ledger.read_rows(text)
    machines = ledger.fingerprint(Path(yurt.__file__).parent)
    if not rows or rows[-1].machines != machines:
        first = rows[-1].last + 1 if rows else 1
        rows.append(ledger.Row(machines=machines, first=first, last=first - 1))
    spent_s, has_failed = 0.0, False
    with get_context("spawn").Pool(PROCESSES, maxtasksperchild=20) as pool:
        seeds, running = itertools.count(rows[-1].last + 1), deque[AsyncResult[Report]]()
        while spent_s < hours * 3600:
            while len(running) < IN_FLIGHT:
                plan = _next_plan(next(seeds), read_gaps(path.read_text("utf-8")), fixed)
                running.append(pool.apply_async(_run_plan, (plan,)))
            report = running.popleft().get()
            rows[-1] = ledger.with_run(
                rows[-1], report.plan.seed, virtual_s=report.virtual_s, cpu_s=report.cpu_s, is_clean=report.is_clean
            )
            text = ledger.with_rows(path.read_text("utf-8"), rows)
            path.write_text(with_gaps(text, read_gaps(text).without(report.coverage)), "utf-8")
            tell(report_text(report))
            has_failed |= not report.is_clean
            spent_s += report.cpu_s
    return 1 if has_failed else 0


def _next_plan(seed: int, gaps: Gaps, fixed: Mapping[str, object]) -> Plan:
    """The plan of a seed in a search: every second one is steered to what no run has had."""
    plan = draw(seed, **fixed)
    return steered(plan, gaps) if seed % 2 else plan


def _run_plan(plan: Plan) -> Report:
    report = run_plan(plan)
    report.transcript.clear()
    return report
