"""docs/architecture.md names packages and modules that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "architecture.md"
NAME = re.compile(r"`([a-z_][a-z0-9_/]*)`")


def names_of_tables() -> set[str]:
    """The names in the first columns of the tables whose rows are packages and modules."""
    found: set[str] = set()
    is_of_modules = False
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) < 3:
            is_of_modules = False
        elif cells[1] == "package or module":
            is_of_modules = True
        elif is_of_modules:
            found.update(NAME.findall(cells[1]))
    return found


def test_the_tables_name_modules_that_exist() -> None:
    names = names_of_tables()
    assert len(names) > 40, "the tables are read"
    folders = [
        path
        for top in ("core/src", "jobspec/src")
        for path in (ROOT / top).rglob("*")
        if path.suffix in ("", ".py", ".js")
    ]
    known = {path.stem for path in folders} | {path.name for path in folders}
    assert sorted(name for name in names if not set(name.strip("/").split("/")) <= known) == []
