"""Standard output: colours when a terminal wants them, tables and key-value blocks in Nomad's layout.

Piped output is plain text with two spaces between columns, the same on every machine. On a terminal tables are drawn
by rich, which is imported only then.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from yurt.cli.errors import OutputClosed

_CODES = {"bold": "1", "red": "31", "green": "32", "yellow": "33", "cyan": "36", "dim": "2"}
_STATUS_STYLES = {
    "running": "green", "complete": "green", "ready": "green", "successful": "green", "alive": "green",
    "eligible": "green",
    "pending": "yellow", "blocked": "yellow", "initializing": "yellow", "paused": "yellow", "unknown": "yellow",
    "failed": "red", "lost": "red", "down": "red", "dead": "dim", "cancelled": "dim", "canceled": "dim",
    "ineligible": "yellow",
}  # fmt: skip


class Screen:
    """The standard output of a command."""

    def __init__(self, stream: TextIO, *, has_color: bool, is_terminal: bool) -> None:
        self.stream = stream
        self.has_color = has_color
        self.is_terminal = is_terminal

    @classmethod
    def standard(cls, *, no_color: bool, force_color: bool) -> Screen:
        """Standard output with the colours that flags and environment select."""
        environ = os.environ
        is_terminal = sys.stdout.isatty()
        is_plain = no_color or bool(environ.get("NOMAD_CLI_NO_COLOR") or environ.get("NO_COLOR"))
        is_forced = force_color or bool(environ.get("NOMAD_CLI_FORCE_COLOR"))
        has_color = not no_color and (is_forced or (is_terminal and not is_plain))
        return cls(sys.stdout, has_color=has_color, is_terminal=is_terminal)

    def line(self, text: str = "") -> None:
        """Print and flush one line; raises OutputClosed when its reader has gone."""
        try:
            self.stream.write(text + "\n")
            self.stream.flush()
        except BrokenPipeError:
            # A command that reads a file handles OSError as a failure of that file.
            raise OutputClosed from None

    def error(self, text: str) -> None:
        """One line on standard error."""
        self.stream.flush()
        print(self.style(text, "red"), file=sys.stderr, flush=True)

    def style(self, text: str, *names: str) -> str:
        """The text in bold or in a colour, where colours are on."""
        if not self.has_color or not text:
            return text
        return f"\033[{';'.join(_CODES[name] for name in names)}m{text}\033[0m"

    def title(self, text: str) -> None:
        """The bold title of a section, after a blank line."""
        self.line()
        self.line(self.style(text, "bold"))

    def pairs(self, rows: Iterable[Sequence[Any]]) -> None:
        """A block of `key = value`."""
        self.line(key_values(rows))

    def table(self, header: str, rows: Iterable[Sequence[Any]]) -> None:
        """A table; `header` joins the titles of the columns with `|`."""
        titles = header.split("|")
        cells = [[cell(value) for value in row] for row in rows]
        if self.is_terminal and self.has_color:
            self._rich_table(titles, cells)
        else:
            self.line(columns([titles, *cells]))

    def json(self, value: Any) -> None:
        """Indented JSON."""
        import json

        self.line(json.dumps(value, indent=4, ensure_ascii=False))

    def _rich_table(self, titles: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
        for title in titles:
            table.add_column(title, overflow="fold", no_wrap=title in ("ID", "Node ID", "Status"))
        for row in cells:
            table.add_row(*(Text(value, style=_STATUS_STYLES.get(value, "")) for value in row))
        Console(file=self.stream, force_terminal=True, highlight=False, soft_wrap=False).print(table)
        self.stream.flush()


def cell(value: Any) -> str:
    """A value in a table: booleans in lower case, an empty one as `<none>`."""
    if value is None or value == "":
        return "<none>"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Rows of equal length as aligned columns with two spaces between them."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def key_values(rows: Iterable[Sequence[Any]]) -> str:
    """`key = value` lines with the keys padded to one width; further lines of a value begin below its first."""
    pairs = [(str(key), cell(value)) for key, value in rows]
    width = max((len(key) for key, _ in pairs), default=0)
    below = "\n" + " " * (width + len(" = "))
    return "\n".join(f"{key.ljust(width)} = {below.join(value.splitlines())}" for key, value in pairs)
