"""Processes of this machine that a test looks for by their command lines, and ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psutil

IsMeant = Callable[[list[str]], bool]
END_LIMIT_S = 10.0


def processes(is_meant: IsMeant) -> list[psutil.Process]:
    """The processes whose command line, a list of words that may be empty, is meant."""
    return [each for each in psutil.process_iter(["cmdline"]) if is_meant(each.info["cmdline"] or [])]


@contextmanager
def ended_at_exit(is_meant: IsMeant) -> Iterator[None]:
    """Whatever processes are meant at the end of the block are terminated, with a bound."""
    try:
        yield
    finally:
        found = processes(is_meant)
        for process in found:
            with suppress(psutil.NoSuchProcess):
                process.terminate()
        psutil.wait_procs(found, timeout=END_LIMIT_S)
