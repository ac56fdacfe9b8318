"""Large blocks go back to the system when they are freed, also those that come after the first."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
import ctypes
from yurt.agent.heap import give_back, keep_large_blocks_apart

class Told(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")]

told = ctypes.CDLL(None).mallinfo2
told.restype = Told
if {is_told}:
    keep_large_blocks_apart()
before = told().arena
for _ in range(3):
    block = bytes(4 << 20)
    del block
block = bytes(4 << 20)
give_back()
print((told().arena - before) >> 20)
"""


def grown_mib(*, is_told: bool) -> int:
    """By how much the heap itself grows when large blocks come and go."""
    script = textwrap.dedent(PROGRAM).replace("{is_told}", str(is_told))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    if "mallinfo2" in done.stderr:
        pytest.skip("this C library does not tell how large its heap is")
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_large_blocks_that_come_and_go_do_not_make_the_heap_larger() -> None:
    assert grown_mib(is_told=False) > 1
    assert grown_mib(is_told=True) <= 0
