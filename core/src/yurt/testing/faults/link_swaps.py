"""A folder and a symbolic link that swap their names continuously, as a hostile task may do in its allocation."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

AT_FDCWD, RENAME_EXCHANGE = -100, 2
PROGRAM = """
import ctypes, sys
libc, first, second = ctypes.CDLL(None), sys.argv[1].encode(), sys.argv[2].encode()
print("swapping", flush=True)
parent = int(sys.argv[3])
import os
while os.getppid() == parent:
    for _ in range(1000):
        libc.renameat2(-100, first, -100, second, 2)
"""


def exchange(first: Path, second: Path) -> None:
    """Swap two names atomically."""
    libc = ctypes.CDLL(None, use_errno=True)
    done = libc.renameat2(AT_FDCWD, os.fsencode(first), AT_FDCWD, os.fsencode(second), RENAME_EXCHANGE)
    assert done == 0, os.strerror(ctypes.get_errno())


@contextmanager
def swapping(first: Path, second: Path) -> Iterator[None]:
    """Swap two names continuously in a separate process that ends with this one."""
    command = [sys.executable, "-I", "-S", "-c", PROGRAM, str(first), str(second), str(os.getpid())]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"swapping\n"
        yield
    finally:
        process.kill()
        process.communicate()
