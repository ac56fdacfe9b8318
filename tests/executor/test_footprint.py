"""What a task costs while it sleeps: the memory that its shim shares with nobody, and no more modules than it needs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

HALF_A_MEGABYTE = 524_288
TASKS = 10


def own_bytes(pid: int) -> int:
    """Memory of a process that no other process shares."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except FileNotFoundError:
        pytest.skip("this kernel does not tell what a process has for itself")
    return 1024 * sum(map(int, re.findall(r"^Private_\w+: +(\d+) kB$", text, re.MULTILINE)))


async def test_a_sleeping_task_costs_less_than_half_a_megabyte(workshop: Any) -> None:
    handles = [await workshop.executor.start(workshop.spec("sleep", "1000")) for _ in range(TASKS)]

    sizes = sorted(own_bytes(handle.shim_pid) for handle in handles)

    assert sizes[TASKS // 2] < HALF_A_MEGABYTE
    for handle in handles:
        await workshop.executor.destroy(handle.task_id)


async def test_the_log_file_is_there_before_the_task_writes(workshop: Any) -> None:
    handle = await workshop.executor.start(workshop.spec("sleep", "1000"))

    assert workshop.stdout() == ""
    await workshop.executor.destroy(handle.task_id)


async def test_a_shim_stays_small_while_its_task_logs(workshop: Any, eventually: Any) -> None:
    handle = await workshop.executor.start(workshop.spec("sh", "-c", "echo one; echo two; exec sleep 1000"))
    await eventually(lambda: workshop.stdout() == "one\ntwo\n")

    assert own_bytes(handle.shim_pid) < 1.25 * HALF_A_MEGABYTE
    await workshop.executor.destroy(handle.task_id)
