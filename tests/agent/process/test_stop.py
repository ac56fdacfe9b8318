"""The orderly stop of an agent ends with code 0, however many files its tasks have left."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

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


def test_a_temporary_data_directory_with_many_files_is_removed_before_the_limit(tmp_path: Path) -> None:
    ports = "\n".join(f"{name} = {quiet_port()}" for name in ("http", "rpc", "serf"))
    (tmp_path / "agent.hcl").write_text(f"ports {{\n{ports}\n}}\n")
    command = [sys.executable, "-c", SLOW_REMOVAL, str(tmp_path / "agent.hcl")]
    log = tmp_path / "log"
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as process:
        try:
            wait_for("the first screen", lambda: "will stream in below" in log.read_text())
            process.send_signal(signal.SIGINT)
            code = process.wait(WAIT_LIMIT_S)
        finally:
            process.kill()

    assert (code, "Timeout" in log.read_text()) == (0, False), log.read_text()
