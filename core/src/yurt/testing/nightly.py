"""Case counts of property tests and request counts of programs: small in CI, large in nightly runs.

CI draws the same cases each time, so that more of them find little that fewer did not: it runs half of what a
developer's machine does. `YURT_NIGHTLY=1` asks for as many as are named with `cases`, mostly 100,000, a larger number
for that many. `YURT_SEED` replaces the seed of programs that are random but the same each time.
"""

from __future__ import annotations

import os

NIGHTLY_CASES = 100_000
CI_SHARE = 2
"""CI divides the usual number of cases by this."""


def is_nightly() -> bool:
    """Whether this run may take hours."""
    return os.environ.get("YURT_NIGHTLY", "") not in ("", "0")


def cases(usual: int, nightly: int = NIGHTLY_CASES) -> int:
    """The number of cases: `usual`, a fraction of it in CI, `nightly` or YURT_NIGHTLY (never less) in a nightly run."""
    if not is_nightly():
        return max(1, usual // CI_SHARE) if "CI" in os.environ else usual
    asked = os.environ.get("YURT_NIGHTLY", "")
    return max(usual, int(asked) if asked.isdecimal() and int(asked) > 1 else nightly)


def seed(usual: int) -> int:
    """`usual`, or the seed that the run sets."""
    return int(os.environ.get("YURT_SEED") or usual)
