"""The names of job files for completion in the web UI's editor, from the table that reads job files."""

from __future__ import annotations

import json

from yurt_jobspec.schema import TABLE

VARIABLE = {"type": "string", "default": "any", "description": "string"}


def _kind(words: list[str]) -> str:
    """`block X` leads to X; an argument shows its kind."""
    if words[0] in ("block", "blocks", "keyed"):
        return f"> {words[1]}"
    return words[0].rstrip("?!")


def _names(table: str) -> dict[str, str]:
    """The names of one block with their kinds; labels and what cannot be written are left out."""
    rows = (line.split() for line in table.splitlines() if line.strip())
    return {row[0]: _kind(row[2:]) for row in rows if row[0] != "-" and row[2] != "label"}


def module_text() -> str:
    """The JavaScript module with the schema."""
    schema = {name: _names(table) for name, table in TABLE.items()} | {"Variable": VARIABLE}
    text = json.dumps(schema, indent=1)
    return (
        "/** What a job file may contain, by block; made from the table that reads job files by `make docs`. */\n"
        f"export const SCHEMA = {text};\n"
    )
