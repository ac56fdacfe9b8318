"""A process ends although work does not end that its event loop waits for when it closes."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

LEFT_WORK = """
import asyncio, sys, threading, time
from yurt.agent.process.end_limit import EndLimit
from yurt.runtime.supervise import contained

limit = EndLimit(lambda: print("closed"), limit_s=float(sys.argv[1]))

async def deaf():
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

async def main():
    if sys.argv[2] == "task":
        main.left = asyncio.create_task(deaf(), name="a deaf task")
    if sys.argv[2] == "unnamed":
        main.left = asyncio.create_task(contained(deaf()))
    if sys.argv[2] == "thread":
        main.left = asyncio.get_running_loop().run_in_executor(None, time.sleep, 600)
    await asyncio.sleep(0)
    limit.begin(code=int(sys.argv[3]))

with asyncio.Runner() as runner:
    runner.run(main())
limit.lift()
time.sleep(0.2)
print("ended by itself")
"""


def ended(limit_s: float, left: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """A process that leaves work of a kind behind."""
    command = [sys.executable, "-c", LEFT_WORK, str(limit_s), left, str(code)]
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


def test_a_process_whose_work_has_ended_goes_on_past_the_limit() -> None:
    process = ended(0.1, "none")

    assert (process.returncode, process.stdout, process.stderr) == (0, "ended by itself\n", "")


def test_a_process_whose_output_nobody_reads_is_left_too() -> None:
    command = [sys.executable, "-c", LEFT_WORK, "0.1", "task", "3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        process.stdout.close()
        try:
            assert process.wait(60) == 3
        finally:
            process.kill()
