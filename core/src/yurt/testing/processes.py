"""Finds processes of this machine by command line or folder, and ends them."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import psutil

IsMeant = Callable[[list[str]], bool]
END_LIMIT_S = 10.0


def processes(is_meant: IsMeant) -> list[psutil.Process]:
    """The processes whose command line, a possibly empty list of words, satisfies the condition."""
    return [each for each in psutil.process_iter(["cmdline"]) if is_meant(each.info["cmdline"] or [])]


def processes_in(folder: str) -> list[psutil.Process]:
    """The processes that work in a folder, name it in their arguments, or are tasks with directories there."""
    return [each for each in psutil.process_iter(["cmdline", "cwd", "environ"]) if _is_in(folder, each.info)]


def _is_in(folder: str, info: Mapping[str, Any]) -> bool:
    words = [info["cwd"] or "", *(info["cmdline"] or []), (info["environ"] or {}).get("NOMAD_ALLOC_DIR", "")]
    return any(folder in word for word in words)


def descendants() -> set[int]:
    """The pids of all descendants of this process.

    Linux lists the children of a thread: that takes microseconds, while psutil reads the parent of every process there
    is, and each test asks twice.
    """
    if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        return {child.pid for child in psutil.Process().children(recursive=True)}
    found, fresh = set[int](), _children(os.getpid())
    while fresh:
        found |= fresh
        fresh = {child for pid in fresh for child in _children(pid)} - found
    return found


def _children(pid: int) -> set[int]:
    """The pids of a process's children over all its threads; empty once it has ended."""
    children = set[int]()
    with suppress(OSError):  # it may end at any moment
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError), open(f"/proc/{pid}/task/{thread}/children") as lines:
                children.update(map(int, lines.read().split()))
    return children


def odd_duration() -> str:
    """A number of seconds that identifies a `sleep` among all processes of the machine."""
    return f"9{os.getpid()}.{uuid.uuid4().int % 10**9:09d}"


@contextmanager
def ended_at_exit(is_meant: IsMeant) -> Iterator[None]:
    """Terminate all processes that satisfy the condition at the end of the block, within a time limit."""
    try:
        yield
    finally:
        found = processes(is_meant)
        for process in found:
            with suppress(psutil.NoSuchProcess):
                process.terminate()
        psutil.wait_procs(found, timeout=END_LIMIT_S)
