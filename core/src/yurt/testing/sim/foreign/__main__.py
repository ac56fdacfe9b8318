"""`python -m yurt.testing.sim.foreign MODULE:NAME`, which `yurt driver sim` starts: one line of JSON for each run."""

from __future__ import annotations

import argparse
import json
import sys

from yurt.sdk.errors import Invalid
from yurt.testing.sim.foreign.command import load, reports

TRANSCRIPT_LINES = 60


def main() -> int:
    """Run the seeds; returns 1 when a run failed, 2 when there is nothing to run."""
    parser = argparse.ArgumentParser(prog="python -m yurt.testing.sim.foreign", description=__doc__)
    parser.add_argument("plugin", metavar="MODULE:NAME")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--faults", default="")
    given = parser.parse_args()
    faults = tuple(filter(None, given.faults.split(",")))
    is_clean = True
    # What the plugin prints is for people: the lines of results have the pipe for themselves.
    results, sys.stdout = sys.stdout, sys.stderr
    try:
        seeds = range(given.seed, given.seed + given.runs)
        for report in reports(load(given.plugin), seeds, active_s=given.seconds, faults=faults):
            is_clean = report.is_clean
            line = {
                "seed": report.plan.seed,
                "problem": report.problem,
                "digest": report.digest,
                "starts": report.counts["start"],
                "faults": report.counts["heal"],
                "virtual_s": round(report.virtual_s, 1),
                "cpu_s": round(report.cpu_s, 1),
                "transcript": [] if is_clean else report.transcript[-TRANSCRIPT_LINES:],
            }
            print(json.dumps(line), file=results, flush=True)
    except Invalid as error:
        print(json.dumps({"error": str(error)}), file=results, flush=True)
        return 2
    finally:
        sys.stdout = results
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
