"""`alloc exec`: commands in running tasks, by websocket and by the command line, and what is left when a side dies."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import fcntl
import hashlib
import json
import os
import pty
import signal
import socket
import struct
import subprocess
import termios
import time
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
from yurt.cli.api.websocket import switch
from yurt.testing.agent import Agent, raw_exec_job, register, running_agent, wait_for
from yurt.testing.processes import odd_duration

LIMIT_S = 60.0


@pytest.fixture(scope="module")
def task(dev_agent: Agent) -> str:
    """A running raw_exec task's allocation."""
    job = raw_exec_job("shell", "/bin/sleep", "3600")
    job["TaskGroups"][0]["Tasks"][0]["Resources"]["MemoryMB"] = 500  # for a hundred commands at once
    register(dev_agent, job)
    return str(dev_agent.running("shell", 1)[0]["ID"])


def processes_with(word: str) -> list[int]:
    """The processes that have a word among their arguments."""
    return [process.pid for process in psutil.process_iter() if word in command_line(process)]


def command_line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


class Talk:
    """One websocket session, frame by frame."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def send(self, frame: dict[str, Any]) -> None:
        await self.socket.send_str(json.dumps(frame))

    async def give(self, data: bytes, *, is_last: bool = False) -> None:
        part: dict[str, Any] = {"data": base64.b64encode(data).decode()} if data else {}
        await self.send({"stdin": part | ({"close": True} if is_last else {})})

    async def frames(self) -> list[dict[str, Any]]:
        return [json.loads(message.data) async for message in self.socket]

    async def until(self, text: bytes) -> bytes:
        """What comes on stdout until it holds a text."""
        found = b""
        async with asyncio.timeout(LIMIT_S):
            while text not in found:
                frame = json.loads((await self.socket.receive()).data)
                found += base64.b64decode(frame.get("stdout", {}).get("data", ""))
        return found


def talk_to(agent: Agent, alloc: str, command: list[str], scene: Callable[[Talk], Any], **query: str) -> Any:
    """Play a scene over one session."""

    async def play() -> Any:
        asked = {"task": "main", "command": json.dumps(command), **query}
        url = f"{agent.address}/v1/client/allocation/{alloc}/exec"
        async with (
            asyncio.timeout(LIMIT_S),
            aiohttp.ClientSession() as session,
            session.ws_connect(url, params=asked, timeout=aiohttp.ClientWSTimeout(ws_close=1.0)) as socket,
        ):
            return await scene(Talk(socket))

    return asyncio.run(play())


SH = '["/bin/sh"]'
UNKNOWN = "11111111-2222-4333-8444-555555555555"
REFUSALS = [
    (UNKNOWN, {"task": "main", "command": SH}, 404, f'Unknown allocation "{UNKNOWN}"'),
    ("", {"task": "main", "command": SH}, 500, "UUID must be 36 characters"),
    ("alloc", {"task": "nope", "command": SH}, 404, "nope"),
    ("alloc", {"command": SH}, 400, "missing parameter: task"),
    ("alloc", {"task": "main"}, 400, "command must be a JSON list of texts"),
    ("alloc", {"task": "main", "command": "/bin/sh"}, 400, "command must be a JSON list of texts"),
    ("alloc", {"task": "main", "command": "[1]"}, 400, "command must be a JSON list of texts"),
    ("alloc", {"task": "main", "command": "[]"}, 400, "command must name a program"),
    ("alloc", {"task": "main", "command": '[""]'}, 400, "command must name a program"),
    ("alloc", {"task": "main", "command": SH, "tty": "maybe"}, 400, "tty"),
    ("alloc", {"task": "main", "command": '["/no/such/program"]'}, 500, "/no/such/program"),
]
"""Which allocation, the query, and the refusal."""


@pytest.mark.parametrize(("which", "query", "status", "text"), REFUSALS)
def test_a_session_that_cannot_begin_is_refused_with_the_reason(
    dev_agent: Agent, task: str, which: str, query: dict[str, str], status: int, text: str
) -> None:
    alloc = task if which == "alloc" else which or "short"
    answer = upgraded(dev_agent, alloc, query)
    assert (answer[0], text in answer[1]) == (status, True), answer


def test_a_command_in_a_task_that_has_ended_is_refused(dev_agent: Agent) -> None:
    register(dev_agent, raw_exec_job("over", "/bin/true") | {"Type": "batch"})
    wait_for("its end", lambda: [row["ClientStatus"] for row in dev_agent.allocs("over")] == ["complete"])
    (alloc,) = dev_agent.allocs("over")
    status, text = upgraded(dev_agent, alloc["ID"], {"task": "main", "command": SH})
    assert (status, text) == (400, 'Task "main" is not running: it is dead')


@pytest.mark.parametrize("frame", ['{"tty_size":{"height":"x"}}', "{", '{"stdin":{"data":5}}'])
def test_a_frame_that_is_none_closes_the_session_with_the_reason(dev_agent: Agent, task: str, frame: str) -> None:
    async def scene(talk: Talk) -> tuple[int | None, Any]:
        await talk.socket.send_str(frame)
        while (message := await talk.socket.receive()).type is aiohttp.WSMsgType.TEXT:
            pass
        return message.data, message.extra

    code, reason = talk_to(dev_agent, task, ["cat"], scene)
    assert (code, str(reason).startswith("no frame of exec: ")) == (1007, True), (code, reason)


@pytest.mark.parametrize("size", [{"height": 0, "width": 0}, {"height": -5, "width": 10**9}])
def test_a_terminal_of_an_impossible_size_goes_on(dev_agent: Agent, task: str, size: dict[str, int]) -> None:
    async def scene(talk: Talk) -> bytes:
        await talk.send({"tty_size": size})
        await talk.give(b"echo a-$((40+2))\n")
        return await talk.until(b"a-42")

    assert b"a-42" in talk_to(dev_agent, task, ["/bin/sh"], scene, tty="true")


def upgraded(agent: Agent, alloc: str, query: dict[str, str], headers: dict[str, str] | None = None) -> tuple[int, str]:
    """Status and text with which a websocket is refused, after the upgrade or before it."""
    parts = urllib.parse.urlsplit(agent.address)
    target = f"/v1/client/allocation/{alloc}/exec?{urllib.parse.urlencode(query)}"
    with socket.create_connection((parts.hostname, parts.port), LIMIT_S) as opened:
        status, text, _, _ = switch(opened, target, parts.netloc, headers or {})
    return status, text


def test_frames_are_those_of_nomad(dev_agent: Agent, task: str) -> None:
    async def scene(talk: Talk) -> tuple[list[dict[str, Any]], int | None]:
        await talk.send({})
        await talk.give(b"from outside\n", is_last=True)
        return await talk.frames(), talk.socket.close_code

    script = "cat; echo $NOMAD_TASK_NAME >&2; exit 5"
    frames, code = talk_to(dev_agent, task, ["/bin/sh", "-c", script], scene)

    *said, last = frames
    for stream, data in (("stdout", b"from outside\n"), ("stderr", b"main\n")):  # nothing orders one after the other
        parts = [frame[stream] for frame in said if stream in frame]
        assert parts == [{"data": base64.b64encode(data).decode()}, {"close": True}]
    assert (len(said), last) == (4, {"exited": True, "result": {"exit_code": 5}})
    assert code == 1000


def test_a_terminal_has_the_size_that_the_client_tells(dev_agent: Agent, task: str) -> None:
    async def scene(talk: Talk) -> bytes:
        await talk.send({"tty_size": {"height": 33, "width": 101}})
        await talk.give(b"stty size; tty\n")
        await talk.until(b"33 101\r\n")
        await talk.send({"tty_size": {"height": 20, "width": 80}})
        await talk.give(b"stty size; exit 3\n")
        return await talk.until(b"20 80\r\n")

    assert b"20 80" in talk_to(dev_agent, task, ["/bin/sh"], scene, tty="true")


def test_a_browser_sends_its_handshake_first(dev_agent: Agent, task: str) -> None:
    async def scene(talk: Talk) -> list[dict[str, Any]]:
        await talk.send({"version": 1, "auth_token": ""})
        await talk.give(b"", is_last=True)
        return await talk.frames()

    frames = talk_to(dev_agent, task, ["cat"], scene, ws_handshake="true")
    assert frames[-1] == {"exited": True, "result": {"exit_code": 0}}


def refusal(agent: Agent, alloc: str, headers: dict[str, str] | None = None, **query: str) -> tuple[int, str]:
    """How the agent refuses a session."""
    return upgraded(agent, alloc, query, headers)


def test_what_cannot_be_done_is_refused_before_the_command_runs(dev_agent: Agent, task: str) -> None:
    assert refusal(dev_agent, task, command='["true"]')[0] == 400
    assert refusal(dev_agent, task, task="main")[0] == 400
    assert refusal(dev_agent, task, task="main", command='{"a":1}')[0] == 400
    assert refusal(dev_agent, task, task="main", command="[]")[0] == 400
    assert refusal(dev_agent, task, task="other", command='["true"]')[0] == 404
    assert refusal(dev_agent, "0" * 8 + "-0000-0000-0000-" + "0" * 12, task="main", command='["true"]')[0] == 404
    status, text = refusal(dev_agent, task, task="main", command='["/no/such/program"]')
    assert (status, "No such file or directory" in text) == (500, True)


def test_a_foreign_page_gets_no_shell(dev_agent: Agent, task: str) -> None:
    status, text = refusal(dev_agent, task, {"Origin": "http://evil.example"}, task="main", command='["true"]')
    assert (status, "evil.example" in text) == (403, True)


def test_a_client_that_vanishes_takes_its_command_along(dev_agent: Agent, task: str) -> None:
    word = odd_duration()
    script = f"trap '' HUP; sleep {word} & sleep {word}"

    async def scene(talk: Talk) -> None:
        await asyncio.to_thread(wait_for, "both", lambda: len(processes_with(word)) >= 2)
        transport = talk.socket._response.connection.transport  # type: ignore[union-attr]
        transport.abort()  # type: ignore[union-attr]

    talk_to(dev_agent, task, ["/bin/sh", "-c", script], scene)
    wait_for("nothing left", lambda: not processes_with(word))


def test_a_client_that_vanishes_while_its_input_is_not_taken(dev_agent: Agent, task: str) -> None:
    word = odd_duration()

    async def scene(talk: Talk) -> None:
        await asyncio.to_thread(wait_for, "the command", lambda: processes_with(word))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                while True:
                    await talk.give(b"x" * 65536)
        talk.socket._response.connection.transport.abort()  # type: ignore[union-attr]

    talk_to(dev_agent, task, ["/bin/sleep", word], scene)
    wait_for("nothing left", lambda: not processes_with(word))


def test_a_slow_reader_holds_the_command_up_and_costs_no_memory(dev_agent: Agent, task: str) -> None:
    assert dev_agent.process is not None
    agent = psutil.Process(dev_agent.process.pid)
    size = 100_000_000

    async def scene(talk: Talk) -> tuple[int, int]:
        await talk.socket.receive()
        before = agent.memory_info().rss
        cpu = wait_until_quiet(agent)
        assert cpu < 0.5
        grown = agent.memory_info().rss - before
        taken = 0
        async for message in talk.socket:
            taken += len(base64.b64decode(json.loads(message.data).get("stdout", {}).get("data", "")))
        return grown, taken

    grown, taken = talk_to(dev_agent, task, ["/usr/bin/head", "-c", str(size), "/dev/zero"], scene)
    assert taken > size * 0.9
    assert grown < 20_000_000


def wait_until_quiet(process: psutil.Process) -> float:
    """Wait until a process does next to nothing; its share of a core then."""
    for _ in range(40):
        share = process.cpu_percent(interval=0.2) / 100
        if share < 0.3:
            return share
    return share


def test_a_hundred_sessions_at_once(dev_agent: Agent, task: str) -> None:
    assert dev_agent.process is not None
    before = psutil.Process(dev_agent.process.pid).num_fds()

    async def one(session: aiohttp.ClientSession, number: int) -> bool:
        asked = {"task": "main", "command": '["cat"]', "tty": "true" if number % 2 else "false"}
        url = f"{dev_agent.address}/v1/client/allocation/{task}/exec"
        async with session.ws_connect(url, params=asked) as socket:
            talk = Talk(socket)
            await talk.give(f"number {number}\n".encode())
            await talk.until(f"number {number}".encode())
            await started.wait()
            await talk.give(b"", is_last=True)
            frames = await talk.frames()
        return bool(frames[-1] == {"exited": True, "result": {"exit_code": 0}})

    async def all_of_them() -> list[bool]:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            asyncio.get_running_loop().call_later(2.0, started.set)
            return await asyncio.gather(*(one(session, number) for number in range(100)))

    started = asyncio.Event()
    assert all(asyncio.run(all_of_them()))
    wait_for("no descriptor left", lambda: psutil.Process(dev_agent.process.pid).num_fds() <= before + 2)  # type: ignore[union-attr]


def test_the_command_line_passes_streams_and_the_exit_code(dev_agent: Agent, task: str) -> None:
    data = os.urandom(5_000_000)
    passed = subprocess.run(
        [*dev_agent.command, "alloc", "exec", task, "cat"],
        input=data, capture_output=True, env=dev_agent.environment(), timeout=60, check=False,
    )  # fmt: skip
    failed = dev_agent.cli("exec", "-i=false", "-job", "shell", "sh", "-c", "cat; echo out; echo err >&2; exit 7")

    assert passed.returncode == 0, passed.stderr
    assert hashlib.sha256(passed.stdout).digest() == hashlib.sha256(data).digest()
    assert (failed.returncode, failed.stdout, failed.stderr) == (7, "out\n", "err\n")


def test_the_command_line_says_what_is_wrong(dev_agent: Agent, task: str) -> None:
    missing = dev_agent.cli("alloc", "exec", task, "/no/such/program")
    no_command = dev_agent.cli("alloc", "exec", task)
    no_input = dev_agent.cli("alloc", "exec", "-i=false", "-t", task, "sh")
    escape = dev_agent.cli("alloc", "exec", "-e", "ab", task, "sh")

    assert (missing.returncode, "No such file or directory" in missing.stderr) == (1, True)
    assert (no_command.returncode, "at least two arguments" in no_command.stderr) == (1, True)
    assert "-t needs -i" in no_input.stderr
    assert '-e takes one character, or "none"' in escape.stderr


class Terminal:
    """The command line at a terminal of its own."""

    def __init__(self, agent: Agent, *words: str) -> None:
        self.ours, theirs = pty.openpty()
        self.resize(24, 80)
        self.before = termios.tcgetattr(self.ours)
        self.process = subprocess.Popen(
            [*agent.command, *words],
            stdin=theirs, stdout=theirs, stderr=theirs, env=agent.environment(), start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        os.set_blocking(self.ours, False)
        self.seen = b""

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: bytes) -> None:
        os.write(self.ours, text)

    def shows(self, text: bytes) -> bool:
        """Read what there is; whether the screen has shown a text."""
        with contextlib.suppress(OSError):
            self.seen += os.read(self.ours, 65536)
        return text in self.seen

    def wait_shows(self, text: bytes) -> None:
        wait_for(f"{text!r} on the screen", lambda: self.shows(text))

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        os.close(self.ours)


@pytest.fixture
def terminal(dev_agent: Agent, task: str) -> Iterator[Callable[..., Terminal]]:
    """Opens terminals, and closes them."""
    opened: list[Terminal] = []

    def open_one(*words: str) -> Terminal:
        opened.append(Terminal(dev_agent, "alloc", "exec", *words))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


def test_a_shell_at_a_terminal(terminal: Callable[..., Terminal], task: str) -> None:
    word = odd_duration()
    screen = terminal(task, "/bin/sh")
    screen.type(b"stty size\n")
    screen.wait_shows(b"24 80")
    screen.resize(40, 132)
    screen.process.send_signal(signal.SIGWINCH)
    screen.type(b"echo $((6 * 7)); until stty size | grep '40 13[2]'; do sleep 0.05; done\n")
    screen.wait_shows(b"42\r\n")
    screen.wait_shows(b"40 132")
    screen.type(f"sleep {word}\n".encode())
    wait_for("the command", lambda: processes_with(word))
    screen.type(b"\x03")
    wait_for("the end of the command", lambda: not processes_with(word))
    screen.type(b"exit 9\n")

    assert screen.process.wait(LIMIT_S) == 9
    assert termios.tcgetattr(screen.ours) == screen.before


def test_the_escape_ends_a_session(terminal: Callable[..., Terminal], task: str) -> None:
    word = odd_duration()
    screen = terminal(task, "/bin/sh", "-c", f"echo ready; exec sleep {word}")
    screen.wait_shows(b"ready")
    screen.type(b"x~.y\r")
    screen.type(b"~.")

    screen.process.wait(LIMIT_S)
    screen.wait_shows(b"Left the session")
    assert screen.process.returncode == 1
    assert termios.tcgetattr(screen.ours) == screen.before
    wait_for("nothing left", lambda: not processes_with(word))


def test_a_signal_puts_the_terminal_back(terminal: Callable[..., Terminal], task: str) -> None:
    screen = terminal("-e", "none", task, "/bin/sh", "-c", "echo ready; exec cat")
    screen.wait_shows(b"ready")
    screen.type(b"~.hello\r")
    screen.wait_shows(b"~.hello\r\n~.hello")
    screen.process.terminate()

    assert screen.process.wait(LIMIT_S) == 128 + signal.SIGTERM
    assert termios.tcgetattr(screen.ours) == screen.before


def test_the_end_of_a_task_ends_its_sessions(dev_agent: Agent) -> None:
    register(dev_agent, raw_exec_job("short", "/bin/sleep", "3600"))
    alloc = dev_agent.running("short", 1)[0]["ID"]
    word = odd_duration()
    session = subprocess.Popen(
        [*dev_agent.command, "alloc", "exec", "-i=false", alloc, "sleep", word], env=dev_agent.environment()
    )
    wait_for("the command", lambda: len(processes_with(word)) > 1)
    dev_agent.call("DELETE", "/v1/job/short")

    assert session.wait(LIMIT_S) != 0
    wait_for("nothing left", lambda: not processes_with(word))


@pytest.mark.parametrize("way", ["interrupt", "kill"])
def test_the_end_of_the_agent_leaves_no_command(tmp_path: Path, way: str) -> None:
    word = odd_duration()
    with running_agent(tmp_path) as agent:
        register(agent, raw_exec_job("shell", "/bin/sleep", "3600"))
        alloc = agent.running("shell", 1)[0]["ID"]
        session = subprocess.Popen(
            [*agent.command, "alloc", "exec", "-i=false", alloc, "sleep", word],
            env=agent.environment(), stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        wait_for("the command", lambda: len(processes_with(word)) > 1)
        began = time.monotonic()
        getattr(agent, way)()
        _, said = session.communicate(timeout=LIMIT_S)

    assert session.returncode != 0, said
    assert time.monotonic() - began < LIMIT_S
    wait_for("nothing left", lambda: processes_with(word) == [])
