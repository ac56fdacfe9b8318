"""How many cases property tests run, and how many requests programs send: few in CI, very many in a nightly run.

CI draws the same cases each time, so that more of them find little that fewer did not: it runs half of what a
developer's machine does. `YURT_NIGHTLY=1` asks for as many as are named with `cases`, mostly 100,000, a larger number
for that many. `YURT_SEED` replaces the seed of programs that are random but the same each time.
"""

from __future__ import annotations

import os

NIGHTLY_CASES = 100_000
CI_SHARE = 2
"""CI runs one of so many of the usual cases."""


def is_nightly() -> bool:
    """A run that may take hours."""
    return os.environ.get("YURT_NIGHTLY", "") not in ("", "0")


def cases(usual: int, nightly: int = NIGHTLY_CASES) -> int:
    """`usual`, a part of them in CI, and in a nightly run `nightly` or as many as it asks for."""
    if not is_nightly():
        return max(1, usual // CI_SHARE) if "CI" in os.environ else usual
    asked = os.environ.get("YURT_NIGHTLY", "")
    return max(usual, int(asked) if asked.isdecimal() and int(asked) > 1 else nightly)


def seed(usual: int) -> int:
    """`usual`, or the one that the run asks for."""
    return int(os.environ.get("YURT_SEED") or usual)
