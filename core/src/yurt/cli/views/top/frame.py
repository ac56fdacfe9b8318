"""One picture of `yurt top`: a summary, a table cut to the terminal, and the keys. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from yurt.cli.terminal.screen import columns
from yurt.cli.terminal.text import mebibytes
from yurt.cli.views.top.usage_rows import UsageRow

VIEWS: Final = ("allocs", "jobs", "nodes")
PLACES: Final = {"allocs": "Node", "jobs": "Allocs", "nodes": "Pool"}
SORT_KEYS: Final = {"c": "cpu", "m": "memory", "g": "gpu", "v": "vram", "p": "power", "n": "name"}
VIEW_KEYS: Final = {"a": "allocs", "j": "jobs", "o": "nodes"}
HELP: Final = (
    "a allocs  j jobs  o nodes | sort: c cpu  m memory  g gpu  v vram  p power  n name  r reverse | space hold  q quit"
)
UNKNOWN: Final = "-"
BAR: Final = 10


class Choice(NamedTuple):
    """What the user wants to see."""

    view: str = "allocs"
    sort: str = "gpu"
    is_reversed: bool = False
    is_frozen: bool = False
    """The picture stands still."""
    first: int = 0
    """The first row that is shown."""


class Sample(NamedTuple):
    """The rows of one view at one time."""

    rows: tuple[UsageRow, ...]
    clock: str
    note: str = ""
    """The missing data, with the reason."""


def header(view: str) -> str:
    """The titles of a view's columns."""
    name = {"allocs": "ID|Name|Namespace", "jobs": "Job|Namespace", "nodes": "ID|Name"}[view]
    return f"{name}|{PLACES[view]}|CPU MHz|Memory|GPUs|GPU|VRAM|Power"


def cells(row: UsageRow, view: str) -> list[str]:
    """One row of a view."""
    names = {
        "allocs": [row.id[:8], row.name, row.namespace],
        "jobs": [row.name, row.namespace],
        "nodes": [row.id[:8], row.name],
    }[view]
    return [
        *map(printable, names),
        printable(row.place),
        of_booked(row.cpu_mhz, row.cpu_booked_mhz, "{:.0f}".format),
        of_booked(row.memory_mb, row.memory_booked_mb, lambda size: mebibytes(round(size))),
        f"{row.gpus:g}" if row.gpus else UNKNOWN,
        UNKNOWN if row.gpu_percent is None else f"{bar(row.gpu_percent)} {row.gpu_percent:3.0f}%",
        of_booked(row.vram_mb, row.vram_booked_mb, lambda size: mebibytes(round(size))),
        UNKNOWN if row.power_w is None else f"{row.power_w:.0f} W",
    ]


def of_booked(used: float | None, booked: float, text: object) -> str:
    """ "300/4000": the used and the booked amount."""
    assert callable(text)
    if used is None and not booked:
        return UNKNOWN
    return f"{UNKNOWN if used is None else text(used)}/{text(booked) if booked else UNKNOWN}"


def bar(percent: float) -> str:
    """ "[||||      ]" for 40 %."""
    full = round(min(max(percent, 0.0), 100.0) / 100 * BAR)
    return f"[{'|' * full}{' ' * (BAR - full)}]"


def printable(text: str) -> str:
    """A text without control characters, which a terminal would obey."""
    return "".join(char if char.isprintable() else "?" for char in text)


def totals(rows: Sequence[UsageRow]) -> str:
    """The first line: what all rows use together."""
    gpus = sum(row.gpus for row in rows)
    busy = [(row.gpu_percent, row.gpus) for row in rows if row.gpu_percent is not None and row.gpus]
    measured = sum(count for _, count in busy)
    cpu = sum(row.cpu_mhz or 0.0 for row in rows)
    memory = sum(row.memory_mb or 0.0 for row in rows)
    parts = [
        f"{len(rows)} row{'s' if len(rows) != 1 else ''}",
        f"CPU {cpu:.0f} MHz",
        f"memory {mebibytes(round(memory))}",
    ]
    if gpus:
        percent = f"{sum(percent * count for percent, count in busy) / measured:.0f}%" if measured else "unknown"
        parts.append(f"{gpus:g} GPUs, utilisation {percent}")
        parts.append(f"VRAM {mebibytes(round(sum(row.vram_mb or 0.0 for row in rows)))}")
    return ", ".join(parts)


def table_lines(sample: Sample, view: str) -> list[str]:
    """All rows of a view as lines, titles first."""
    return columns([header(view).split("|"), *(cells(row, view) for row in sample.rows)]).split("\n")


def frame(sample: Sample, choice: Choice, size: tuple[int, int]) -> list[str]:
    """The lines of a terminal of (columns, rows): no more, and none longer."""
    width, height = max(size[0], 20), max(size[1], 6)
    state = " (held)" if choice.is_frozen else ""
    direction = "ascending" if choice.is_reversed else "descending"
    sort = choice.sort if choice.sort == "name" and not choice.is_reversed else f"{choice.sort}, {direction}"
    lines = [f"yurt top - {sample.clock}{state} - {choice.view} by {sort}", totals(sample.rows)]
    table = table_lines(sample, choice.view)
    page_rows = height - len(lines) - 3
    first = scrolled(choice.first, len(sample.rows), page_rows)
    lines += [table[0], *table[1 + first : 1 + first + page_rows]]
    shown = min(page_rows, max(0, len(sample.rows) - first))
    below = f"rows {first + 1} to {first + shown} of {len(sample.rows)}" if shown < len(sample.rows) else ""
    lines += [""] * (height - 2 - len(lines))
    lines += ["; ".join(part for part in (below, sample.note) if part), HELP]
    return [line[:width] for line in lines]


def scrolled(first: int, count: int, page_rows: int) -> int:
    """The first row that is shown: the last page is full."""
    return max(0, min(first, count - page_rows))


def pressed(choice: Choice, key: str, *, page: int) -> Choice | None:
    """The choice after a key; None to end."""
    if key in ("q", "Q", "\x03", "\x1b"):
        return None
    if key in SORT_KEYS:
        return choice._replace(sort=SORT_KEYS[key], first=0)
    if key in VIEW_KEYS:
        return choice._replace(view=VIEW_KEYS[key], first=0)
    moves = {"down": 1, "up": -1, "pagedown": page, "pageup": -page}
    if key in moves:
        return choice._replace(first=max(0, choice.first + moves[key]))
    if key == "r":
        return choice._replace(is_reversed=not choice.is_reversed)
    return choice._replace(is_frozen=not choice.is_frozen) if key == " " else choice
