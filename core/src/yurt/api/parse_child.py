"""A process that parses one job file: it can be killed, and its time and memory are bounded.

It reads one JSON object {"source", "variables", "canonicalize"} from standard input and writes one back:
{"job"} or {"error"}.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
from pathlib import Path
from typing import Any

CPU_LIMIT_S = 10
MEMORY_LIMIT = 1 << 30


def parse_request(request: dict[str, Any]) -> dict[str, Any]:
    """The answer to one request."""
    from yurt_jobspec import JobspecError, parse_job, with_unset_fields

    variables: str = request["variables"]
    with tempfile.TemporaryDirectory(prefix="yurt-parse-") as folder:
        file = Path(folder, "variables.hcl")
        file.write_text(variables)
        try:
            job = parse_job(
                request["source"], filename="input.hcl", var_files=[file] if variables else [], base_dir=None
            )
        except JobspecError as error:
            return {"error": str(error)}
    if request["canonicalize"]:
        from yurt.rules.canonical import canonicalize_job

        job = canonicalize_job(job)
    return {"job": with_unset_fields(job)}


def main() -> int:
    """Serve the one request on standard input."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    try:
        answer = parse_request(json.load(sys.stdin))
    except (MemoryError, RecursionError):
        answer = {"error": "the job file needs more memory than parsing may use"}
    json.dump(answer, sys.stdout)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
