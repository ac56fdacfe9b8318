"""The child process that checks one snapshot archive: killable, with bounded time and memory.

Its arguments are two file descriptors: the archive, and an empty file for the framed state. It writes one JSON object
to standard output: {"id", "state_index", "term", "version", "size", "tables"} or {"error"}. What it says yes to was
decoded whole.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from typing import Any

from yurt.sdk.errors import Invalid
from yurt.storage.archive import bound_memory, state_of, table_facts, unpack

CPU_LIMIT_S = 600


def check(archive: int, state: int) -> dict[str, Any]:
    """Unpack, check and decode an archive."""
    try:
        with os.fdopen(archive, "rb") as source, os.fdopen(state, "r+b") as out:
            found = unpack(source, out)
            out.flush()
            bound_memory(found.size)
            tables = table_facts(state_of(found, out))
    except Invalid as error:
        return {"error": str(error)}
    except MemoryError:
        return {"error": "the snapshot needs more memory than one of its size may use"}
    return {**found._asdict(), "tables": tables}


def main() -> int:
    """Serve a single request from standard input."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S))
    bound_memory(0)
    json.dump(check(int(sys.argv[1]), int(sys.argv[2])), sys.stdout)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
