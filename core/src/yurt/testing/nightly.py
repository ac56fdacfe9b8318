"""How many cases property tests run: few in CI, very many in a nightly run (`YURT_NIGHTLY=1`)."""

from __future__ import annotations

import os

NIGHTLY_CASES = 100_000


def is_nightly() -> bool:
    """A run that may take hours."""
    return os.environ.get("YURT_NIGHTLY", "") not in ("", "0")


def cases(usual: int) -> int:
    """`usual`, and 100,000 in a nightly run."""
    return max(usual, NIGHTLY_CASES) if is_nightly() else usual
