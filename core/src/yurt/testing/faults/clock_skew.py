"""An agent whose wall clock is wrong: `python -m yurt.testing.faults.clock_skew SECONDS agent -config FILE`.

Only this process sees the other time; its monotonic clock is left alone, as a wrong clock of a machine leaves it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from yurt.testing.agent import YURT


def skewed_command(before: Sequence[str], skew_s: int) -> list[str]:
    """The command of an agent whose clock is `skew_s` seconds ahead (below 0: behind)."""
    return (
        [*before, sys.executable, "-m", "yurt.testing.faults.clock_skew", str(skew_s)] if skew_s else [*before, *YURT]
    )


def main() -> int:
    """Shift the clock, then run `yurt` in this process."""
    skew_s = int(sys.argv.pop(1))
    now, now_ns = time.time, time.time_ns
    time.time = lambda: now() + skew_s
    time.time_ns = lambda: now_ns() + skew_s * 1_000_000_000
    from yurt.cli.main import main as yurt

    return yurt(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
