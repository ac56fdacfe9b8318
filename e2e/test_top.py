"""`yurt top` on a terminal: pictures that follow the agent, keys, and a terminal that is left as it was."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator
from typing import Any

import pytest
from yurt.testing.agent import YURT, Agent, raw_exec_job, register, running_agent, wait_for

ROWS, COLUMNS = 24, 100
ALTERNATE_SCREEN, NORMAL_SCREEN = "\x1b[?1049h", "\x1b[?1049l"
HOME = "\x1b[H"


def restore_interrupt() -> None:
    """What a shell runs in the background inherits that SIGINT is ignored, the tests included."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """A terminal with `yurt top` on it."""

    def __init__(self, agent: Agent) -> None:
        self.main, self._side = pty.openpty()
        self.resize(ROWS, COLUMNS)
        self.before = termios.tcgetattr(self._side)
        self.written = ""
        command = [*YURT, "top", f"-address={agent.address}", "-interval=500ms"]
        self.process = subprocess.Popen(
            command, stdin=self._side, stdout=self._side, stderr=self._side, env=agent.environment(), close_fds=True,
            preexec_fn=restore_interrupt,  # noqa: PLW1509 - pytest has no other thread here that holds a lock
        )  # fmt: skip

    def resize(self, rows: int, columns: int) -> None:
        """Give the terminal another size."""
        fcntl.ioctl(self.main, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, key: str) -> None:
        """Press a key; what was written before is forgotten."""
        self.read()
        self.written = ""
        os.write(self.main, key.encode())

    def read(self) -> str:
        """Everything that was written since the last key."""
        while select.select([self.main], [], [], 0.05)[0]:
            self.written += os.read(self.main, 65_536).decode(errors="replace")
        return self.written

    def wait_for(self, text: str, *, without: str = "") -> None:
        """Wait until the last picture has a text, and does not have another."""

        def is_shown() -> bool:
            picture = self.read().rpartition(HOME)[2]
            return text in picture and not (without and without in picture)

        wait_for(f"{text!r} on the terminal", is_shown, timeout_s=60)

    def attributes(self) -> list[Any]:
        """The terminal's present settings."""
        return termios.tcgetattr(self._side)

    def close(self) -> None:
        """End what still runs, and close both ends."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(30)
        os.close(self.main)
        os.close(self._side)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with running_agent(tmp_path_factory.mktemp("top")) as found:
        register(found, raw_exec_job("trains", "sleep", "600"))
        found.running("trains", 1)
        yield found


@pytest.fixture
def terminal(agent: Agent) -> Iterator[Terminal]:
    made = Terminal(agent)
    yield made
    made.close()


def test_keys_change_the_view_and_q_leaves_the_terminal_as_it_was(agent: Agent, terminal: Terminal) -> None:
    terminal.wait_for("trains.g[0]")
    assert ALTERNATE_SCREEN in terminal.written, "from the begin"
    assert terminal.attributes() != terminal.before, "keys come one by one and are not shown"
    terminal.press("o")
    (node,) = agent.get("/v1/nodes")
    terminal.wait_for(node["Name"], without="trains")
    terminal.press("j")
    terminal.wait_for("trains")
    terminal.press("q")
    assert terminal.process.wait(30) == 0
    assert NORMAL_SCREEN in terminal.read()
    assert terminal.attributes() == terminal.before


def test_pictures_follow_the_agent_and_the_size_of_the_terminal(agent: Agent, terminal: Terminal) -> None:
    terminal.wait_for("trains.g[0]")
    register(agent, raw_exec_job("comes-later", "sleep", "600"))
    terminal.wait_for("comes-later.g[0]")
    terminal.resize(10, 60)
    terminal.press("n")
    terminal.wait_for("comes-later")
    agent.call("DELETE", "/v1/job/comes-later?purge=true")
    terminal.press("r")
    terminal.wait_for("trains", without="comes-later")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_leaves_the_terminal_as_it_was(terminal: Terminal, number: signal.Signals) -> None:
    terminal.wait_for("trains.g[0]")
    terminal.process.send_signal(number)
    terminal.process.wait(30)
    assert NORMAL_SCREEN in terminal.read()
    assert terminal.attributes() == terminal.before
