"""What is freed goes back to the system: large blocks at once, also those that come after the first, holes in time."""

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


HOLES = """
import asyncio
import os
from yurt.agent.heap import keep_giving_back, keep_large_blocks_apart

keep_large_blocks_apart()

def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

async def main():
    apart = b"x" * (300 << 20)  # No part of the heap, however large.
    blocks = [bytes(4000) for _ in range(10_000)]
    blocks[:-1] = []  # The last one keeps the heap's end where it is.
    full = resident_bytes()
    giving_back = asyncio.ensure_future(keep_giving_back(pause_s=0.01))
    for _ in range({looks}):
        await asyncio.sleep(0.02)
        if full - resident_bytes() > 20 << 20:
            break
    giving_back.cancel()
    print((full - resident_bytes()) >> 20)

asyncio.run(main())
"""
HEAPS = """
import ctypes, os, sys, threading
from yurt.agent.heap import keep_large_blocks_apart

if {is_told}:
    keep_large_blocks_apart()
for _ in range(3):
    thread = threading.Thread(target=lambda: bytes(4000))
    thread.start()
    thread.join()
libc = ctypes.CDLL(None)
libc.fdopen.restype = ctypes.c_void_p
stream = ctypes.c_void_p(libc.fdopen(1, b"w"))
libc.malloc_info(0, stream)
libc.fflush(stream)
"""


def said(program: str) -> str:
    """What a Python of its own prints."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    if "malloc_info" in done.stderr:
        pytest.skip("this C library does not tell of its heaps")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc is told how to give back")
def test_what_many_small_things_have_left_free_goes_back_in_time() -> None:
    assert int(said(HOLES.replace("{looks}", "0"))) < 2  # Less than nothing when other parts of Python have grown.
    assert int(said(HOLES.replace("{looks}", "500"))) > 20


def test_all_threads_share_one_heap() -> None:
    assert said(HEAPS.replace("{is_told}", "False")).count("<heap nr=") > 1
    assert said(HEAPS.replace("{is_told}", "True")).count("<heap nr=") == 1
