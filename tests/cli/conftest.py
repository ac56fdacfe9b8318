"""A small HTTP server with fixed answers, and a way to run commands against it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from yurt.cli.main import main


class FixedApi:
    """Answers by path; keeps what was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.next_token = ""
        self.asked: list[tuple[str, str, dict[str, str], Any]] = []
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # Head and body in one segment: the second would wait 40 ms for an acknowledgement.

            def _answer(self) -> None:
                path, _, query = self.path.partition("?")
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                api.asked.append((self.command, self.path, dict(self.headers), json.loads(body) if body else None))
                found = api.answers.get(path)
                if callable(found):
                    found = found(query)
                status, data = (404, b"not found") if found is None else api.encoded(found)
                self.send_response(status)
                if isinstance(found, tuple) and len(found) > 2:
                    self.send_header("X-Yurt-Error", found[2])
                self.send_header("Content-Length", str(len(data)))
                self.send_header("X-Nomad-Index", "7")
                if api.next_token:
                    self.send_header("X-Nomad-NextToken", api.next_token)
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_PUT = do_DELETE = _answer  # noqa: N815 - the names that http.server calls

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})

    @staticmethod
    def encoded(found: Any) -> tuple[int, bytes]:
        """(status, text) is an error, and the third its reason; a function makes the answer from the query."""
        if isinstance(found, bytes):
            return 200, found
        if isinstance(found, tuple):
            return found[0], str(found[1]).encode()
        return 200, json.dumps(found).encode()


@pytest.fixture
def api() -> Iterator[FixedApi]:
    fixed = FixedApi()
    fixed.thread.start()
    yield fixed
    fixed.server.shutdown()
    fixed.thread.join(timeout=5)
    fixed.server.server_close()


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(api: FixedApi, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command against the fixed answers: exit code, standard output, standard error."""
    for name in ("NOMAD_TOKEN", "NOMAD_NAMESPACE", "NOMAD_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NOMAD_ADDR", api.address)
    monkeypatch.setenv("TZ", "UTC")

    def call(*words: str) -> tuple[int, str, str]:
        code = main(list(words))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call
