"""A process ends although work does not end that its event loop waits for when it closes."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

LEFT_WORK = """
import asyncio, atexit, ctypes, logging, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from yurt.agent.process.end_limit import EndLimit
from yurt.runtime.supervise import contained

limit = EndLimit(lambda: print("closed"), limit_s=float(sys.argv[1]))
pool = ThreadPoolExecutor(2, thread_name_prefix="engine")
logging.getLogger().addHandler(logging.StreamHandler())

async def deaf():
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

def keep_lock():
    logging.getLogger().handlers[0].acquire()
    time.sleep(600)

async def main():
    if sys.argv[2] == "task":
        main.left = asyncio.create_task(deaf(), name="a deaf task")
    if sys.argv[2] == "unnamed":
        main.left = asyncio.create_task(contained(deaf()))
    if sys.argv[2] == "thread":
        main.left = asyncio.get_running_loop().run_in_executor(None, time.sleep, 600)
    if sys.argv[2] == "pool":
        pool.submit(int).result()
        pool.submit(time.sleep, 600)
    if sys.argv[2] == "lock":
        pool.submit(keep_lock)
    if sys.argv[2] == "exit":
        atexit.register(time.sleep, 600)
    await asyncio.sleep(0)
    limit.begin(code=int(sys.argv[3]), failure=sys.argv[4])
    if sys.argv[2] == "interpreter":
        ctypes.PyDLL(None).sleep(600)

with asyncio.Runner() as runner:
    runner.run(main())
limit.failure = "" if sys.argv[2] == "pool" else limit.failure
print("ended by itself")
"""


def ended(limit_s: float, left: str, code: int = 0, failure: str = "") -> subprocess.CompletedProcess[str]:
    """A process that leaves work of a kind behind."""
    command = [sys.executable, "-c", LEFT_WORK, str(limit_s), left, str(code), failure]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("left", "named", "code"),
    [("task", "a deaf task", 0), ("thread", "BaseEventLoop.shutdown_default_executor", 1), ("unnamed", "deaf", 0)],
)
def test_work_that_does_not_end_is_named_and_left(left: str, named: str, code: int) -> None:
    began = time.monotonic()

    process = ended(0.1, left, code)

    assert (process.returncode, process.stdout) == (code, "closed\n"), process.stderr
    assert f"the agent ends with work that does not end: limit_s=0.1 work={named}" in process.stderr
    assert time.monotonic() - began < 30


@pytest.mark.parametrize(("left", "named"), [("pool", "thread engine_0"), ("exit", "")])
def test_what_the_interpreter_waits_for_at_its_end_is_named_and_left(left: str, named: str) -> None:
    process = ended(0.3, left, 3)

    assert (process.returncode, process.stdout) == (3, "ended by itself\nclosed\n"), process.stderr
    assert process.stderr == f"the agent ends with work that does not end: limit_s=0.3 work={named}\n"


@pytest.mark.parametrize("left", ["lock", "interpreter"])
def test_a_thread_that_keeps_what_the_last_words_need_is_left_too(left: str) -> None:
    """A lock of the log, or the interpreter's own."""
    began = time.monotonic()

    process = ended(0.1, left)

    assert process.returncode == 1
    assert "Timeout (0:00:02.1" in process.stderr
    assert time.monotonic() - began < 30


def test_a_failed_start_that_leaves_a_thread_says_why_it_failed() -> None:
    process = ended(0.1, "thread", 1, "Port 4646 is in use")

    assert (process.returncode, process.stdout) == (1, "closed\n")
    assert process.stderr.endswith("\n==> Port 4646 is in use\n")


def test_a_process_whose_work_has_ended_ends_by_itself() -> None:
    process = ended(30, "none")

    assert (process.returncode, process.stdout, process.stderr) == (0, "ended by itself\n", "")


def test_a_process_whose_output_nobody_reads_is_left_too() -> None:
    command = [sys.executable, "-c", LEFT_WORK, "0.1", "task", "3", ""]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        process.stdout.close()
        try:
            assert process.wait(60) == 3
        finally:
            process.kill()
