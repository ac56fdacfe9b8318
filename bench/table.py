"""Prints a table of measurements."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple


class Row(NamedTuple):
    """One measurement: what, Nomad's figure, ours, the target."""

    what: str
    nomad: str
    yurt: str
    target: str


def print_table(title: str, rows: Sequence[Row], *, other: str = "Nomad 1.1.2") -> None:
    """Columns as wide as their widest cell; `other` is what we are measured beside."""
    heads = Row(title, other, "Yurt", "target")
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(4)]
    for row in (heads, Row(*("-" * width for width in widths)), *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print()


def lost(pairs: Sequence[tuple[float, float]]) -> str:
    """How much of a rate is lost where a request takes the second time instead of the first: median and quartiles."""
    shares = [1 - off / on for off, on in pairs]
    low, middle, high = statistics.quantiles(shares, n=4) if len(shares) > 1 else shares * 3
    return f"{middle:.1%} ({low:.1%}, {high:.1%})"
