"""What a server loads before there is anything to schedule."""

from __future__ import annotations

import subprocess
import sys


def test_a_server_starts_without_numpy() -> None:
    program = "import sys, yurt.server.server, yurt.agent.run; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False", "numpy takes a fifth of an agent's start-up and a quarter of its memory"
