"""Parses job files for clients, each in a child process, since an expression may use any amount of time and memory."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from yurt.http.call import Call
from yurt.http.errors import Refused

PARSE_TIMEOUT_S = 10.0


async def parse_text(call: Call, source: str, variables: str, *, canonicalize: bool) -> dict[str, Any]:
    """The job of a job file as JSON data; raises Refused with the parser's findings, or when it takes too long."""
    request = json.dumps({"source": source, "variables": variables, "canonicalize": canonicalize}).encode()
    async with call.context.parsers:
        output = await _run_child(request)
    try:
        answer = json.loads(output)
    except ValueError:
        raise Refused(400, "Failed to parse job: the job file takes more time or memory than parsing may use") from None
    if "error" in answer:
        raise Refused(400, f"Failed to parse job: {answer['error']}")
    job: dict[str, Any] = answer["job"]
    return job


async def _run_child(request: bytes) -> bytes:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "yurt.api.parse_child",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        async with asyncio.timeout(PARSE_TIMEOUT_S):
            output, _ = await child.communicate(request)
    except TimeoutError:
        raise Refused(400, f"Failed to parse job: it took longer than {PARSE_TIMEOUT_S:.0f} seconds") from None
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    return output
