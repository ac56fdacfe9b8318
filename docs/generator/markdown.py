"""Tables and words that every page uses, and the check that no word is missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

UNITS = ((3_600_000_000_000, "h"), (60_000_000_000, "m"), (1_000_000_000, "s"), (1_000_000, "ms"))


def code(text: str) -> str:
    """Inline code, safe inside a table."""
    fence = "``" if "`" in text else "`"
    escaped = text.replace("\n", " ").replace("|", "\\|")
    return f"{fence}{escaped}{fence}"


def cell(text: str) -> str:
    """A text that does not end the cell it stands in."""
    return " ".join(text.split()).replace("|", "\\|")


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; its cells are markdown already."""
    lines = [f"| {' | '.join(header)} |", "|" + "---|" * len(header)]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines)


def page(*parts: str) -> str:
    """The parts of a page, one empty line between them."""
    return "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"


def duration(nanoseconds: int) -> str:
    """`90m` or `30s`, the largest unit that leaves no rest."""
    return next(
        (f"{nanoseconds // size}{unit}" for size, unit in UNITS if nanoseconds and nanoseconds % size == 0), "0s"
    )


def notes(text: str) -> dict[str, str]:
    """Lines of `name  sentence` as a dictionary; a line that begins with spaces goes on."""
    found: dict[str, str] = {}
    name = ""
    for line in text.strip().splitlines():
        if line[:1] == " ":
            found[name] += " " + line.strip()
            continue
        name, _, sentence = line.partition(" ")
        found[name] = sentence.strip()
    return found


def require(what: str, known: Iterable[str], told: Iterable[str]) -> None:
    """Raises ValueError when the words and the code do not have the same names."""
    known, told = set(known), set(told)
    if known != told:
        raise ValueError(f"{what}: no words for {sorted(known - told)}, words for nothing {sorted(told - known)}")
