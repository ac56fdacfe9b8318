"""The warm-up of a zygote: what its own children do late must not disturb it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the executor needs Linux")

LATE_CHILDREN = """
import os, signal, sys, time
from yurt.executor import shim, warm_up
from yurt.executor.forking import Zygote

def leave_late(ack_fd):
    os.close(ack_fd)
    time.sleep(0.05)
    os._exit(0)

def take_later(self, ack_fd):
    time.sleep(0.1)
    return take_request(self, ack_fd)

take_request = shim.Shim.take_request
shim.Shim.take_request = take_later
warm_up.leave = leave_late
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
null = os.open(os.devnull, os.O_RDWR)
zygote = Zygote(shim.Shim(request_fd=null, reply_fd=null, lifeline_fd=-1))
warm_up.rehearse(zygote.keep_one_ready, os.fsencode(sys.argv[1]))
"""


def test_a_child_of_the_warm_up_that_ends_late_does_not_end_the_zygote(tmp_path: Path) -> None:
    """At a high load a child ends after its pipe is closed; its SIGCHLD once ended one zygote in 400."""
    done = subprocess.run(
        [sys.executable, "-c", LATE_CHILDREN, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []
