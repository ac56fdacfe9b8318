"""Checks a snapshot archive in a child process with bounded time and memory (`archive_child`)."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import IO, Final

from yurt.sdk.errors import Invalid, Unavailable
from yurt.storage.archive import Archive, TableFacts

CHECK_LIMIT_S: Final = 600.0
TOO_MUCH: Final = "the snapshot takes more time or memory than checking one of its size may use"


async def check_archive(source: IO[bytes], state: IO[bytes]) -> Archive:
    """Check an archive and write its framed state to an empty file, rewound to the start; raises Invalid."""
    child = await asyncio.create_subprocess_exec(
        *_command(source, state), pass_fds=(source.fileno(), state.fileno()),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        async with asyncio.timeout(CHECK_LIMIT_S):
            output, _ = await child.communicate()
    except TimeoutError:
        raise Invalid(TOO_MUCH) from None
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    state.seek(0)  # Parent and child share the file position, which the child has moved.
    return _answer(output)[0]


def check_archive_here(source: IO[bytes], state: IO[bytes]) -> tuple[Archive, tuple[TableFacts, ...]]:
    """`check_archive` for the command line, with the number of rows of each table."""
    fds = (source.fileno(), state.fileno())
    try:
        done = subprocess.run(
            _command(source, state), pass_fds=fds, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, timeout=CHECK_LIMIT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Invalid(TOO_MUCH) from None
    state.seek(0)
    return _answer(done.stdout)


def _command(source: IO[bytes], state: IO[bytes]) -> list[str]:
    child = "yurt.storage.archive_child"
    return [sys.executable, "-P", "-m", child, str(source.fileno()), str(state.fileno())]


def _answer(output: bytes) -> tuple[Archive, tuple[TableFacts, ...]]:
    if not output:
        raise Invalid(TOO_MUCH)
    try:
        answer = json.loads(output)
    except ValueError:
        raise Unavailable("the process that checks snapshots answered with something else") from None
    if "error" in answer:
        raise Invalid(answer["error"])
    tables = tuple(TableFacts(name, rows) for name, rows in answer.pop("tables"))
    return Archive(**answer), tables
