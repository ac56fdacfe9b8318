"""What tests learn about the processes that they started."""

from __future__ import annotations

import os
import subprocess
import threading

import psutil
from yurt.testing.agent import wait_for
from yurt.testing.processes import descendants


def test_descendants_are_those_of_all_threads_and_of_children() -> None:
    before, started = descendants(), list[subprocess.Popen[bytes]]()
    release = threading.Event()

    def start() -> None:
        started.append(subprocess.Popen(["sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE))
        release.wait(60)  # the child stays this thread's while it lives

    thread = threading.Thread(target=start)
    thread.start()
    try:
        wait_for("a child", lambda: started and started[0].stdout)
        (child,) = started
        assert child.stdout is not None
        grandchild = int(child.stdout.readline())
        assert descendants() - before == {child.pid, grandchild}
        assert descendants() == {each.pid for each in psutil.Process(os.getpid()).children(recursive=True)}
    finally:
        release.set()
        thread.join()
    os.kill(grandchild, 9)
    child.wait()
    child.stdout.close()
    wait_for("the end of both", lambda: descendants() == before)
