"""A program that barely exceeds its memory limit is not killed: its events tell why it stands still."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from yurt.testing.agent import Agent, raw_exec_job, register, running_agent, wait_for
from yurt.testing.services.engines import DockerEngine, PodmanEngine, missing

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


PYTHON = "/usr/bin/python3"
PARTS = ("/usr", "/lib", "/lib64")
"""The folders of the host without which its Python does not run in a container."""


def thrashing_job() -> dict[str, Any]:
    """A process at its limit."""
    job = raw_exec_job("thrash", sys.executable, "-S", "-c", PROGRAM, kind="batch")
    job["TaskGroups"][0]["Tasks"][0]["Resources"] = {"CPU": 100, "MemoryMB": 32}
    return job


def explanation(agent: Agent) -> str | None:
    """The text of the event about memory of the job."""
    events = [
        event
        for alloc in agent.allocs("thrash")
        for state in (alloc["TaskStates"] or {}).values()
        for event in state["Events"]
    ]
    return next((event["DisplayMessage"] for event in events if event["Type"] == "Memory Pressure"), None)


def explained(agent: Agent) -> str:
    """The text, once it is there; the job is stopped."""
    text = wait_for("the event about memory", lambda: explanation(agent), LIMIT_S)
    agent.cli("job", "stop", "-purge", "-detach", "thrash")
    return text


def test_a_task_that_stands_still_at_its_limit_is_explained(dev_agent: Agent) -> None:
    register(dev_agent, thrashing_job())
    text = explained(dev_agent)
    assert "limit of 32 MiB (memory)" in text and text.endswith("raise memory")


def test_it_is_explained_without_a_history_of_usage(tmp_path: Path) -> None:
    client = {"options": {"driver.raw_exec.enable": "1", "usage_history": "off"}}
    with running_agent(tmp_path, extra={"client": client}) as agent:
        register(agent, thrashing_job())
        assert "limit of 32 MiB (memory)" in explained(agent)


@contextlib.contextmanager
def running_engine(driver: str, folder: Path) -> Iterator[DockerEngine | PodmanEngine]:
    """An engine with a small image."""
    made = DockerEngine(folder) if driver == "docker" else PodmanEngine(folder)
    try:
        made.start()
        made.import_image()
        yield made
    finally:
        made.stop()


@pytest.mark.parametrize("driver", ["docker", "podman"])
def test_a_container_that_stands_still_at_its_limit_is_explained(driver: str, tmp_path: Path) -> None:
    needs = ("dockerd", "containerd", "docker") if driver == "docker" else ("podman", "runc", "conmon")
    if reason := missing(*needs, "busybox"):
        pytest.skip(reason)
    if not Path(PYTHON).exists():
        pytest.skip(f"this machine has no {PYTHON} to mount in a container")
    (tmp_path / "engine").mkdir()
    (tmp_path / "agent").mkdir()
    with running_engine(driver, tmp_path / "engine") as engine:
        config = (
            {"endpoint": engine.endpoint} if isinstance(engine, DockerEngine) else {"socket_path": str(engine.socket)}
        )
        job = thrashing_job()
        job["TaskGroups"][0]["Tasks"][0] |= {
            "Driver": driver,
            "Config": {
                "image": engine.image, "command": PYTHON, "args": ["-S", "-c", PROGRAM.replace("local/", "/local/")],
                "volumes": [f"{part}:{part}:ro" for part in PARTS], "network_mode": "none",
            },
        }  # fmt: skip
        plugin = [{driver: [{"config": [config]}]}]
        with running_agent(tmp_path / "agent", extra={"plugin": plugin}) as agent:
            register(agent, job)
            assert "limit of 32 MiB (memory)" in explained(agent)
