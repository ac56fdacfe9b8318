"""`python -m yurt.testing.sim`: replays a seed with its transcript, shrinks a failing one, searches for hours, or
compares digests."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

import msgspec

from yurt.testing.sim import seeded_bugs

if "--planted" in sys.argv[1:-1]:  # before the modules of Yurt are imported, which the bug changes
    seeded_bugs.install(sys.argv[sys.argv.index("--planted") + 1])

from yurt.testing.sim.campaign.same_digest import compare
from yurt.testing.sim.campaign.search import search
from yurt.testing.sim.plan import Plan, draw
from yurt.testing.sim.run import Report, report_text, run_plan
from yurt.testing.sim.shrink import shrink

LEDGER = Path("docs/sim-ledger.md")
PICTURE_LINES = 60
PLANTED_LIMIT_S = 600.0


def main() -> int:
    """The exit code: 1 when a seed failed."""
    parser = argparse.ArgumentParser(prog="python -m yurt.testing.sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay one seed and print its transcript")
    parser.add_argument("--plan", help="replay this plan (JSON, as a failure prints it)")
    parser.add_argument("--planted", metavar="BUG", choices=sorted(seeded_bugs.BUGS), help="look for a planted bug")
    parser.add_argument(
        "--limit",
        type=float,
        default=PLANTED_LIMIT_S,
        metavar="S",
        help="with --planted: seconds of CPU, 600 by default",
    )
    parser.add_argument("--quiet", action="store_true", help="with --seed: only what came of it")
    parser.add_argument("--shrink", action="store_true", help="make a failing seed smaller")
    parser.add_argument("--hours", type=float, help="CPU-hours for which to run new seeds; updates the ledger")
    parser.add_argument(
        "--same-digest", type=int, metavar="COUNT",
        help="compare the digests of this many new seeds with two hash seeds; updates the ledger",
    )  # fmt: skip
    parser.add_argument(
        "--python", default="", metavar="PATH", help="with --same-digest: another interpreter with Yurt"
    )
    parser.add_argument("--ledger", type=Path, default=LEDGER, help=f"the ledger, {LEDGER} by default")
    given, tell = parser.parse_args(), partial(print, flush=True)
    if given.planted is not None:
        return look_for(given.planted, limit_s=given.limit)
    if given.hours is not None:
        return search(given.hours, given.ledger, tell=tell)
    if given.same_digest is not None:
        return compare(given.same_digest, given.ledger, other_python=given.python, tell=tell)
    if given.seed is None and given.plan is None:
        parser.error("give --seed, --plan, --planted, --hours or --same-digest")
    plan = draw(given.seed) if given.plan is None else msgspec.json.decode(given.plan, type=Plan)
    report = run_plan(plan)
    if given.shrink and report.problem:
        report = shrink(report, run_plan, tell=print)
    show(report, is_quiet=given.quiet)
    return 0 if report.is_clean else 1


def look_for(name: str, *, limit_s: float = PLANTED_LIMIT_S) -> int:
    """Run seeds with a planted bug until it is found or the CPU time is used up; returns 1 when it is not found."""
    bug, spent_s = seeded_bugs.BUGS[name], 0.0
    for seed in range(1, sys.maxsize):
        report = run_plan(draw(seed, **bug.plan))
        spent_s += report.cpu_s
        if report.problem.startswith(bug.finds or ("",)) and report.problem:
            print(f"{name}: found by seed {seed} after {spent_s:.0f} s of CPU: {report.problem.splitlines()[0][:200]}")
            return 0
        print(f"{name}: seed {seed}: {report.problem[-400:] or 'clean'}", flush=True)
        if spent_s > limit_s:
            break
    print(f"{name}: not found in {spent_s:.0f} s of CPU")
    return 1


def show(report: Report, *, is_quiet: bool) -> None:
    """Print the transcript and the result of the run."""
    if not is_quiet:
        print("\n".join(report.transcript))
    if report.problem:
        print(picture(report))
    print(report_text(report))


def picture(report: Report) -> str:
    """The last lines as columns, one for each agent and user, with time running downwards."""
    lines = [line.split(None, 2) for line in report.transcript[-PICTURE_LINES:]]
    names = list(dict.fromkeys(parts[1] for parts in lines))
    width = max(8, *(len(name) + 1 for name in names))
    head = " " * 13 + "".join(name.ljust(width) for name in names)
    rows = [
        f"{parts[0]:>12} {''.join(('*' if name == parts[1] else '|').ljust(width) for name in names)}{parts[2][:70]}"
        for parts in lines
        if len(parts) == 3
    ]
    return "\n".join([head, *rows])


if __name__ == "__main__":
    sys.exit(main())
