"""How many cases property tests run: few in CI, very many in a nightly run.

`YURT_NIGHTLY=1` asks for 100,000 of each, a larger number for that many. `YURT_SEED` replaces the seed of programs that
are random but the same each time.
"""

from __future__ import annotations

import os

NIGHTLY_CASES = 100_000


def is_nightly() -> bool:
    """A run that may take hours."""
    return os.environ.get("YURT_NIGHTLY", "") not in ("", "0")


def cases(usual: int) -> int:
    """`usual`, and in a nightly run 100,000 or as many as it asks for."""
    asked = os.environ.get("YURT_NIGHTLY", "")
    return max(usual, int(asked) if asked.isdecimal() and int(asked) > 1 else NIGHTLY_CASES) if is_nightly() else usual


def seed(usual: int) -> int:
    """`usual`, or the one that the run asks for."""
    return int(os.environ.get("YURT_SEED") or usual)
