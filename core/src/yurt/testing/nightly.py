"""How many cases property tests run, and how many requests programs send: few in CI, very many in a nightly run.

`YURT_NIGHTLY=1` asks for as many as are named with `cases`, mostly 100,000, a larger number for that many. `YURT_SEED`
replaces the seed of programs that are random but the same each time.
"""

from __future__ import annotations

import os

NIGHTLY_CASES = 100_000


def is_nightly() -> bool:
    """A run that may take hours."""
    return os.environ.get("YURT_NIGHTLY", "") not in ("", "0")


def cases(usual: int, nightly: int = NIGHTLY_CASES) -> int:
    """`usual`, and in a nightly run `nightly` or as many as it asks for."""
    asked = os.environ.get("YURT_NIGHTLY", "")
    return max(usual, int(asked) if asked.isdecimal() and int(asked) > 1 else nightly) if is_nightly() else usual


def seed(usual: int) -> int:
    """`usual`, or the one that the run asks for."""
    return int(os.environ.get("YURT_SEED") or usual)
