"""A normal user without cgroups runs tasks too; as root this becomes nobody, else all tests of the folder show it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

import pytest

SCRIPT = """
import asyncio, os, sys
from yurt.executor import ProcessExecutor, ProcessSpec
from yurt.sdk.errors import DriverError
from yurt.sdk.value import seconds

async def main(folder):
    executor = ProcessExecutor(state_dir=folder, dev=True)
    def spec(number, script, **changes):
        return ProcessSpec(
            task_id=f"alloc/web/{number}", argv=("/bin/sh", "-c", script), env={"PATH": os.defpath}, cwd="/",
            logs_dir=folder, log_name=f"web{number}", **changes,
        )
    await executor.start(spec(1, "exit 3"))
    print(executor.cgroup_mode, (await executor.wait("alloc/web/1")).exit_code)
    await executor.start(spec(2, "setsid sleep 1000 & exec sleep 1000"))
    stats = await executor.stats("alloc/web/2")
    print(stats.rss_bytes > 0, stats.pids >= 1)
    await executor.stop("alloc/web/2", signal_name="SIGTERM", timeout=seconds(5))
    print((await executor.wait("alloc/web/2")).signal)
    try:
        await executor.start(spec(3, "true", user="root"))
    except DriverError as error:
        print(error)
    await executor.close()

asyncio.run(main(sys.argv[1]))
"""


def as_nobody(python: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script as nobody, with the modules that this test has."""
    return subprocess.run(
        [python, "-c", *arguments],
        user="nobody",
        group="nogroup",
        extra_groups=[],
        env={"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        cwd="/",
        check=False,
    )


def interpreter_for_nobody() -> str | None:
    """An interpreter of this version that nobody may run with our modules."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, f"/usr/bin/{version}"):
        try:
            if as_nobody(python, "import yurt.executor, sys; print(sys.version_info[:2])").returncode == 0:
                return python
        except (PermissionError, FileNotFoundError):
            continue
    return None


@pytest.mark.skipif(os.geteuid() != 0, reason="all tests of this folder run as a normal user already")
def test_a_normal_user_runs_stops_and_counts_tasks() -> None:
    python = interpreter_for_nobody()
    if python is None:
        pytest.skip("nobody may not run this interpreter, or may not read this checkout")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        answer = as_nobody(python, SCRIPT, folder)
    lines = answer.stdout.splitlines()
    assert lines[:3] == ["none 3", "True True", "15"], answer.stderr
    assert 'as user "root"' in lines[3]
