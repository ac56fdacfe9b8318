"""A command whose reader goes away (`yurt ... | head -1`) ends quietly, also while it follows a silent stream."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest
from yurt.cli import main
from yurt.cli.declaration import CliCommand, Invocation
from yurt.cli.errors import OutputClosed
from yurt.cli.terminal.closed_output import EXIT_CLOSED_PIPE
from yurt.cli.terminal.screen import Screen

ALLOC = "11111111-2222-3333-4444-555555555555"
BOUND_S = 15
"""Less than the silence after which a followed log counts as broken."""
LINE = b"first\n"
STREAMS = {
    "/v1/agent/monitor": LINE,
    "/v1/agent/monitor/export": LINE,
    f"/v1/client/fs/logs/{ALLOC}": json.dumps(
        {"File": "alloc/logs/web.stdout.0", "Offset": len(LINE), "Data": base64.b64encode(LINE).decode()}
    ).encode(),
}
ANSWERS = {
    "/v1/allocations": [{"ID": ALLOC, "Namespace": "default"}],
    f"/v1/allocation/{ALLOC}": {
        "ID": ALLOC, "Namespace": "default", "TaskGroup": "web", "TaskStates": {"web": {"State": "running"}},
        "Job": {"TaskGroups": [{"Name": "web", "Tasks": [{"Name": "web"}]}]},
    },
}  # fmt: skip


@pytest.fixture
def agent() -> Iterator[str]:
    """The address of an agent whose streams send one line and fall silent."""
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            found = STREAMS.get(path) or (json.dumps(ANSWERS[path]).encode() if path in ANSWERS else None)
            self.send_response(404 if found is None else 200)
            self.end_headers()
            self.wfile.write(found or b"not found")
            if path in STREAMS:
                over.wait(2 * BOUND_S)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    over.set()
    server.shutdown()
    thread.join()
    server.server_close()


def _command(*words: str, address: str = "") -> list[str]:
    return [sys.executable, "-m", "yurt.cli.main", *words, *((f"-address={address}",) if address else ())]


def _closed_pipe() -> int:
    """The end to write to of a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer


@pytest.mark.parametrize("words", [("-help",), ("version",), ("job", "-help"), ("job", "run", "-help")])
def test_output_that_nobody_reads_ends_the_command_without_a_message(words: tuple[str, ...]) -> None:
    writer = _closed_pipe()
    done = subprocess.run(_command(*words), stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (EXIT_CLOSED_PIPE, b"")


def test_a_message_that_nobody_reads_ends_the_command_too() -> None:
    writer = _closed_pipe()
    done = subprocess.run(_command("nonsense"), stdout=writer, stderr=writer, timeout=60, check=False)
    os.close(writer)
    assert done.returncode == EXIT_CLOSED_PIPE


def test_a_line_that_nobody_reads_is_no_failure_of_a_file() -> None:
    """`operator snapshot state FILE | head -1` said that the file could not be read."""
    output = os.fdopen(_closed_pipe(), "w")
    with pytest.raises(OutputClosed):
        Screen(output, has_color=False, is_terminal=False).line("a row")
    with contextlib.suppress(BrokenPipeError):  # the row is still to be written
        output.close()


def test_a_connection_that_the_agent_closed_is_an_error_and_no_closed_output(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fails(_: Invocation) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(main, "find", lambda words: ("check", CliCommand("check", "Check", fails), []))
    assert main.main(["check"]) == 1
    assert capfd.readouterr().err == "The agent closed the connection.\n"


@pytest.mark.parametrize("words", [
    ("monitor",), ("monitor", "export", "-on-disk", "-follow"), ("alloc", "logs", "-f", ALLOC, "web"),
])  # fmt: skip
def test_a_command_that_follows_a_silent_stream_ends_with_its_reader(agent: str, words: tuple[str, ...]) -> None:
    if words[0] == "alloc":
        words = (*words[:-2], f"-address={agent}", *words[-2:])
    command = _command(*words, address="" if words[0] == "alloc" else agent)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == LINE
        process.stdout.close()
        try:
            assert process.wait(BOUND_S) == EXIT_CLOSED_PIPE
        finally:
            process.kill()
        assert process.stderr.read() == b""
