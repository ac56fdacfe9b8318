"""Logs and files are followed over the deaths of those who give them: each byte once, whatever happens to files."""

from __future__ import annotations

import base64
import json
import random
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from yurt.cli.api.client import AgentAddress, ApiClient
from yurt.cli.api.frames import ENDED, FileSource, LogSource
from yurt.cli.commands.alloc.following import Bounds, StartPosition, other_servers, print_source
from yurt.cli.errors import BrokenOff
from yurt.client.files.streams import LogFile, place_at

ALLOC = "11111111-2222-3333-4444-555555555555"
PIECE = 7
"""Bytes of a frame."""
FAST = Bounds(patience_s=10.0, silence_s=5.0, pause_s=0.001)
NAME = "alloc/logs/web.stdout."


class Node:
    """The files of a task, and what happens when they are asked for."""

    def __init__(self, *parts: bytes) -> None:
        self.files = dict(enumerate(parts))
        self.written = b"".join(parts)
        self.breaks: list[int | None] = []
        """After how many frames the answers break off, one after another; the last ones come to their end."""
        self.before_stream: Callable[[], None] = lambda: None
        self.says_why = False
        """Answers that break off say that their agent stops, and end."""
        self.quiet = threading.Event()
        """Set: an answer that breaks off falls silent instead."""
        self.over = threading.Event()
        self.members: list[str] = []

    def write(self, data: bytes) -> None:
        """The task writes to its newest file."""
        self.files[max(self.files)] += data
        self.written += data

    def rotate(self) -> None:
        """The task goes on in a new file."""
        self.files[max(self.files) + 1] = b""

    def remove_oldest(self) -> None:
        """The oldest file goes."""
        del self.files[min(self.files)]

    def answer(self, path: str, query: dict[str, str]) -> Any:
        """A listing, an entry, or the frames of a stream."""
        if path == "/v1/agent/members":
            rows = [{"Status": "alive", "Tags": {"region": "global", "http_addr": each}} for each in self.members]
            return {"ServerRegion": "global", "Members": rows}
        match path.split("/")[4]:
            case "ls":
                return [{"Name": f"web.stdout.{number}", "Size": len(data)} for number, data in self.files.items()]
            case "stat":
                return {"Size": len(self.files[0])}
            case "stream":
                return self.file_frames(int(query["offset"]))
        self.before_stream()
        return self.log_frames(int(query["offset"]))

    def log_frames(self, offset: int) -> list[dict[str, Any]]:
        files = [LogFile(number, f"{NAME}{number}", len(data)) for number, data in sorted(self.files.items())]
        place = place_at(files, offset, "start")
        return [
            frame(f"{NAME}{number}", data, at)
            for number, data in sorted(self.files.items())
            if number >= place.number
            for at in range(place.offset if number == place.number else 0, len(data), PIECE)
        ]

    def file_frames(self, offset: int) -> list[dict[str, Any]]:
        data, event = self.files[0], []
        if offset > len(data):
            event, offset = [{"File": "x", "FileEvent": "file truncated", "Offset": offset}], 0
        return event + [frame("x", data, at) for at in range(offset, len(data), PIECE)]


def frame(name: str, data: bytes, at: int) -> dict[str, Any]:
    return {
        "File": name,
        "Data": base64.b64encode(data[at : at + PIECE]).decode(),
        "Offset": min(at + PIECE, len(data)),
    }


def handler_of(node: Node) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 65536

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            found = node.answer(parts.path, query)
            is_stream = isinstance(found, list) and "/ls/" not in parts.path
            self.send_response(200)
            if not is_stream:
                data = json.dumps(found).encode()
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
                self.wfile.flush()
                return
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self._stream(found, node.breaks.pop(0) if node.breaks and query["follow"] == "true" else None)

        def _stream(self, frames: list[dict[str, Any]], count: int | None) -> None:
            for each in [{}, *frames][: None if count is None else count + 1]:
                self._chunk(json.dumps(each).encode() + b"\n")
            if count is not None and node.says_why:
                self._chunk(json.dumps({ENDED: "the agent is stopping"}).encode() + b"\n")
            if count is None or node.says_why:
                self._chunk(b"")
            elif node.quiet.is_set():
                self.wfile.flush()
                node.over.wait(30)
            self.close_connection = True

        def _chunk(self, data: bytes) -> None:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


Serve = Callable[[Node], ApiClient]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """An agent that gives what a node has."""
    running: list[tuple[ThreadingHTTPServer, threading.Thread, ApiClient, Node]] = []

    def start(node: Node) -> ApiClient:
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(node))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        api = ApiClient(AgentAddress(address=f"http://127.0.0.1:{server.server_address[1]}"))
        running.append((server, thread, api, node))
        return api

    yield start
    for server, thread, api, node in running:
        node.over.set()
        api.close()
        server.shutdown()
        thread.join(timeout=5)
        server.server_close()


LOG = LogSource(ALLOC, "web", "stdout")
FILE = FileSource(ALLOC, "x")


def test_a_log_goes_on_where_it_broke_off(serve: Serve, capfdbinary: Any) -> None:
    node = Node(b"the first file, whole\n", b"the second, begun\n")
    node.breaks = [2, 3, 0, None]
    print_source(serve(node), LOG, StartPosition(), follow=True, bounds=FAST)
    shown, said = capfdbinary.readouterr()
    assert shown == node.written
    assert said.count(b"Following goes on where an agent answers") == 3 == said.count(b"Following again, through ")


def test_a_log_goes_on_where_its_agent_stopped(serve: Serve, capfdbinary: Any) -> None:
    node = Node(b"the first file, whole\n", b"the second, begun\n")
    node.breaks, node.says_why = [2, 0, None], True
    print_source(serve(node), LOG, StartPosition(), follow=True, bounds=FAST)
    shown, said = capfdbinary.readouterr()
    assert shown == node.written
    assert said.count(b"ended: the agent is stopping. Following goes on where an agent answers") == 2


@pytest.mark.parametrize("seed", range(25))
def test_whatever_is_written_and_rotated_meanwhile_is_shown_once(serve: Serve, capfdbinary: Any, seed: int) -> None:
    chance = random.Random(seed)
    node = Node(b"begun\n")

    def goes_on() -> None:
        for _ in range(chance.randrange(4)):
            node.write(chance.randbytes(chance.randrange(20)))
            if chance.random() < 0.3:
                node.rotate()

    node.before_stream = goes_on
    node.breaks = [chance.randrange(6) for _ in range(12)]
    print_source(serve(node), LOG, StartPosition(), follow=True, bounds=FAST)
    assert capfdbinary.readouterr()[0] == node.written


def test_a_file_that_goes_between_listing_and_answer_makes_no_gap(serve: Serve, capfdbinary: Any) -> None:
    node = Node(b"0123456", b"abcdefg", b"ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    node.breaks = [3, None]
    went: list[int] = []

    def goes() -> None:
        went.append(1)
        if len(went) == 2:
            node.remove_oldest()

    node.before_stream = goes
    print_source(serve(node), LOG, StartPosition(), follow=True, bounds=FAST)
    shown, said = capfdbinary.readouterr()
    assert (shown, len(went)) == (node.written, 3)
    assert b"missing" not in said


def test_what_was_removed_meanwhile_is_said_to_be_missing(serve: Serve, capfdbinary: Any) -> None:
    node = Node(b"0123456789", b"abcdefg")
    node.breaks = [1, 0, None]
    node.before_stream = lambda: node.remove_oldest() if len(node.breaks) == 1 else None
    print_source(serve(node), LOG, StartPosition(), follow=True, bounds=FAST)
    shown, said = capfdbinary.readouterr()
    assert shown == b"0123456abcdefg"
    assert b"may be missing: the file was removed" in said


def test_another_server_goes_on_when_the_one_asked_is_dead(serve: Serve, capfdbinary: Any) -> None:
    first, second = Node(b"one, two, three\n"), Node(b"one, two, three\n")
    first.breaks = [1, *[0] * 99]
    first.quiet.set()
    other = serve(second)
    first.members = [other.connection.address.removeprefix("http://")]
    bounds = FAST._replace(silence_s=0.3)
    print_source(serve(first), LOG, StartPosition(), follow=True, bounds=bounds)
    shown, said = capfdbinary.readouterr()
    assert shown == b"one, two, three\n"
    assert b"did not answer in time" in said


def test_a_file_that_was_cut_short_meanwhile_begins_again(serve: Serve, capfdbinary: Any) -> None:
    node = Node(b"0123456789")
    node.breaks = [1, 0, None]
    api = serve(node)
    whole = node.file_frames

    def frames(offset: int) -> list[dict[str, Any]]:
        if offset:
            node.files[0] = b"new"
        return whole(offset)

    node.file_frames = frames  # type: ignore[method-assign]
    print_source(api, FILE, StartPosition(), follow=True, bounds=FAST)
    assert capfdbinary.readouterr()[0] == b"0123456new"


@pytest.mark.parametrize("follow", [True, False])
@pytest.mark.parametrize(("begin", "expected"), [
    (StartPosition(lines=0), b""), (StartPosition(lines=2), b"8\n9\n"),
    (StartPosition(lines=300), b"".join(b"%d\n" % n for n in range(10))),
    (StartPosition(characters=3), b"\n9\n"), (StartPosition(characters=500), b"".join(b"%d\n" % n for n in range(10))),
])  # fmt: skip
def test_the_end_is_cut_exactly(
    serve: Serve, capfdbinary: Any, begin: StartPosition, expected: bytes, follow: bool
) -> None:
    node = Node(b"0\n1\n2\n3\n", b"", b"4\n5\n6\n", b"7\n8\n9\n")
    node.breaks = [0, 1]
    print_source(serve(node), LOG, begin, follow=follow, bounds=FAST)
    assert capfdbinary.readouterr()[0] == expected


def test_many_lines_are_cut_over_many_frames(serve: Serve, capfdbinary: Any) -> None:
    node = Node(b"".join(b"%04d\n" % number for number in range(400)), b"x" * 300 + b"\nlast")
    print_source(serve(node), LOG, StartPosition(lines=3), follow=True, bounds=FAST)
    assert capfdbinary.readouterr()[0] == b"0399\n" + b"x" * 300 + b"\nlast"


def test_following_is_given_up_when_nobody_goes_on(serve: Serve, capfdbinary: Any) -> None:
    node = Node(b"0123456789")
    api = serve(node)
    node.breaks = [1]

    def refuses(path: str, query: dict[str, str]) -> Any:
        raise ConnectionAbortedError

    def once() -> None:
        node.answer = refuses  # type: ignore[method-assign]

    node.before_stream = once
    with pytest.raises(BrokenOff, match=r"Nobody went on for 0\.05 s"):
        print_source(api, LOG, StartPosition(), follow=True, bounds=FAST._replace(patience_s=0.05))
    assert capfdbinary.readouterr()[0] == b"0123456"


def test_servers_of_other_regions_and_on_other_loopbacks_are_not_asked(serve: Serve) -> None:
    node = Node()
    node.members = ["10.1.1.1:4646", "127.0.0.1:4646", "[::1]:4646", ""]
    near = serve(node)
    assert [each.connection.address for each in other_servers(near)] == [
        "http://10.1.1.1:4646", "http://127.0.0.1:4646", "http://[::1]:4646",
    ]  # fmt: skip
    east = ApiClient(near.connection._replace(region="east"))
    assert other_servers(east) == []
    east.close()
    assert other_servers(ApiClient(AgentAddress(address="unix:///nowhere"))) == []
