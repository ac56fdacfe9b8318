"""Prefixes of UUIDs as clients write them, also without hyphens."""

from __future__ import annotations

import itertools

HEX_DIGITS = frozenset("0123456789abcdef")
_PARTS = (0, 8, 12, 16, 20, None)
"""Where the parts between hyphens begin, in digits; the last one has no end, so that no text too long fits an id."""


def uuid_prefix(text: str) -> str:
    """A prefix in the spelling of ids: in lower case, and hyphenated where it consists of hexadecimal digits only.

    A text with hyphens keeps them: "db-" begins the ids of jobs, and not those that begin with "db".
    """
    lower = text.lower()
    if not HEX_DIGITS.issuperset(lower):
        return lower
    parts = (lower[begin:end] for begin, end in itertools.pairwise(_PARTS))
    return "-".join(part for part in parts if part)
