"""The orderly stop of an agent ends, with code 0 however many files its tasks have left."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from yurt.testing.agent import WAIT_LIMIT_S, wait_for
from yurt.testing.unique_ports import quiet_port

SLOW_REMOVAL = """
import os, shutil, sys, time
from yurt.agent.process import end_limit
from yurt.cli.main import main

end_limit.EndLimit.__init__.__kwdefaults__["limit_s"] = 0.1
remove = shutil.rmtree

def remove_slowly(path, *args, **settings):
    if "yurt-dev-" in str(path) and os.path.exists(path):
        time.sleep(end_limit.LAST_WORDS_S + 1.0)
    remove(path, *args, **settings)

shutil.rmtree = remove_slowly
sys.exit(main(["agent", "-dev", "-config", sys.argv[1]]))
"""


OCCUPIED_THREADS = """
import asyncio, sys, time
from yurt.agent import run
from yurt.agent.process import end_limit
from yurt.cli.main import main

end_limit.EndLimit.__init__.__kwdefaults__["limit_s"] = 0.1
from yurt.agent.node import Parts
from yurt.plugins import manager
manager.CLOSE_LIMIT_S = 0.1
stop = Parts.stop

async def stop_with_threads_that_hang(parts, *, leaves):
    for _ in range(100):
        asyncio.get_running_loop().run_in_executor(None, time.sleep, 600)
    if sys.argv[2] == "a part":
        await asyncio.to_thread(print)
    await stop(parts, leaves=leaves)

if sys.argv[2] == "a part":
    run.STOP_PARTS_LIMIT_S = 1.0
Parts.stop = stop_with_threads_that_hang
sys.exit(main(["agent", "-dev", "-config", sys.argv[1]]))
"""


@pytest.mark.parametrize(("waiting", "code"), [("a part", 1), ("no part", 0)])
def test_an_agent_ends_though_packages_occupy_all_threads(tmp_path: Path, waiting: str, code: int) -> None:
    """The removal of a temporary data directory waits for none of them."""
    assert ended(tmp_path, OCCUPIED_THREADS, waiting) == code
    assert "the agent ends with work that does not end" in (tmp_path / "log").read_text()


def test_a_temporary_data_directory_with_many_files_is_removed_before_the_limit(tmp_path: Path) -> None:
    code, log = ended(tmp_path, SLOW_REMOVAL), (tmp_path / "log").read_text()
    assert (code, "Timeout" in log) == (0, False), log


def ended(folder: Path, program: str, *arguments: str) -> int:
    """The exit code of a dev agent that is interrupted once it has started; its output is in `log`."""
    ports = "\n".join(f"{name} = {quiet_port()}" for name in ("http", "rpc", "serf"))
    (folder / "agent.hcl").write_text(f"ports {{\n{ports}\n}}\n")
    command = [sys.executable, "-c", program, str(folder / "agent.hcl"), *arguments]
    log = folder / "log"
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as process:
        try:
            wait_for("the first screen", lambda: "will stream in below" in log.read_text())
            process.send_signal(signal.SIGINT)
            return process.wait(WAIT_LIMIT_S)
        finally:
            process.kill()
