"""A program that barely exceeds its memory limit is not killed: its events tell why it stands still."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from yurt.testing.agent import Agent, raw_exec_job, register, wait_for

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="limits need root on Linux"),
    pytest.mark.skipif(not Path("/proc/pressure/memory").exists(), reason="this kernel does not count memory stalls"),
]
LIMIT_S = 90.0
PROGRAM = """
import mmap, os, random
with open("local/data", "wb") as file:
    for _ in range(48):
        file.write(os.urandom(1 << 20))
    file.flush()
    os.fsync(file.fileno())
with open("local/data", "rb") as file:
    pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
print("begin", flush=True)
while True:
    sum(pages[random.randrange(len(pages) // 4096) * 4096] for _ in range(1000))
"""
"""Reads 48 MiB of a file at random, of which the limit holds a part."""


def test_a_task_that_stands_still_at_its_limit_is_explained(dev_agent: Agent) -> None:
    job = raw_exec_job("thrash", sys.executable, "-S", "-c", PROGRAM, kind="batch")
    job["TaskGroups"][0]["Tasks"][0]["Resources"] = {"CPU": 100, "MemoryMB": 32}
    register(dev_agent, job)

    def explained() -> str | None:
        events = [
            event
            for alloc in dev_agent.allocs("thrash")
            for state in (alloc["TaskStates"] or {}).values()
            for event in state["Events"]
        ]
        return next((event["DisplayMessage"] for event in events if event["Type"] == "Memory Pressure"), None)

    text = wait_for("the event about memory", explained, LIMIT_S)
    dev_agent.cli("job", "stop", "-purge", "-detach", "thrash")
    assert "limit of 32 MiB (memory)" in text and text.endswith("raise memory")
