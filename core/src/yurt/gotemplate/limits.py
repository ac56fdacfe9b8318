"""Limits on a template's size, steps and output."""

from __future__ import annotations

from typing import NamedTuple

TEXT_MAX = 4 * 1024 * 1024
NESTING_MAX = 60
"""Blocks in blocks and parentheses in parentheses, when parsing."""


class Limits(NamedTuple):
    """Bounds of one rendering. `steps` counts nodes and, of the texts that functions make, each 16 characters."""

    steps: int = 2_000_000
    output: int = 16 * 1024 * 1024
    depth: int = 80


DEFAULT_LIMITS = Limits()
