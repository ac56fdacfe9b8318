"""Measures who may do what on a real server and writes docs/reference/access.json, access_calls.json and their page.

`python -m docs.access_matrix`, or `make access`. With `--changed` only rows that are missing or whose need has changed,
and the calls between agents.
Read the diff: each line is a route, and each word in it a caller who may use it.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from yurt.testing.access.call_matrix import measure_calls, text_of_calls
from yurt.testing.access.matrix import measure, names_of_rows, outdated_rows, read_matrix, text_of

from docs import generate

MATRIX, CALLS = generate.REFERENCE / "access.json", generate.REFERENCE / "access_calls.json"


def main(arguments: list[str]) -> int:
    """Measure and write; the exit code."""
    CALLS.write_text(text_of_calls(asyncio.run(measure_calls())))
    MATRIX.write_text(text_of(_with_changed() if "--changed" in arguments else asyncio.run(measure())))
    return generate.main([])


def _with_changed() -> dict[str, Any]:
    """The matrix of the file, with the outdated rows measured again."""
    known, names = read_matrix(MATRIX.read_text()), names_of_rows()
    found = asyncio.run(measure(selected=outdated_rows(known)))
    if found["callers"] != known["callers"]:
        return asyncio.run(measure())
    rows = known["rows"] | found["rows"]
    return {"callers": found["callers"], "rows": {name: rows[name] for name in names}}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
