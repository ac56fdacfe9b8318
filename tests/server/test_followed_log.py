"""A followed log that goes on from its last byte once its node is reached again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from yurt.rpc.peer import ConnectionLost
from yurt.runtime.env import RealEnv
from yurt.sdk.errors import NotFound, Reason, Unavailable
from yurt.server.clients import followed_log
from yurt.server.clients.followed_log import FollowedLog, WantedLog
from yurt.structs.rpc import FILE_TRUNCATED, FileInfo, StreamFrame

LOST = "the connection to the other agent has ended"
Files = dict[int, bytes]


class Node:
    """A client that loses its connection at the end of each answer but the last."""

    def __init__(self, *answers: Files, removed_late: int | None = None) -> None:
        self.answers = list(answers)
        self.removed_late = removed_late
        """A file that is listed once more after its removal."""
        self.asked: list[tuple[int, str]] = []
        self.open = 0

    async def list_files(self, alloc_id: str, path: str) -> tuple[FileInfo, ...]:
        files = dict(self.answers[0])
        if self.removed_late is not None:
            files, self.removed_late = {self.removed_late: b"123"} | files, None
        sizes = {f"main.stdout.{number}": len(data) for number, data in files.items()} | {"main.stderr.0": 1_000}
        return tuple(FileInfo(name, False, size, "-rw-r--r--", 0) for name, size in sizes.items())

    async def stream_logs(
        self, alloc_id: str, task: str, *, offset: int, origin: str, **_: object
    ) -> AsyncGenerator[StreamFrame]:
        self.asked.append((offset, origin))
        files, skipped = self.answers[0], offset if origin == "start" else 0
        self.open += 1
        try:
            yield StreamFrame()
            for number, data in sorted(files.items()):
                if place := data[skipped:]:
                    yield StreamFrame(data=place, offset=skipped, file=f"alloc/logs/main.stdout.{number}")
                skipped = max(skipped - len(data), 0)
        finally:
            await asyncio.sleep(0)  # as a stream over a connection, which tells the other end
            self.open -= 1
        if len(self.answers) > 1:
            del self.answers[0]
            raise ConnectionLost(LOST)


def followed(node: Any, **find: Any) -> FollowedLog:
    return FollowedLog(WantedLog("a", "main", "stdout", 100, "end"), find.get("find", lambda: node), RealEnv())


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_log, "PAUSE_S", 0.001)


async def text(log: FollowedLog, node: Any) -> str:
    async with asyncio.timeout(20):
        return b"".join([frame.data async for frame in log.frames(node)]).decode()


@pytest.mark.parametrize(("answers", "found", "asked"), [
    (({0: b"123"}, {0: b"12345"}), "12345", (3, "start")),
    (({0: b"123"}, {0: b"1234", 1: b"5"}), "12345", (3, "start")),
    (({0: b"1", 1: b"23"}, {0: b"1", 1: b"234", 2: b"5"}), "12345", (3, "start")),
    (({0: b"1", 1: b"23"}, {1: b"234", 2: b"5"}), "12345", (2, "start")),
    (({0: b"123"}, {1: b"5"}), "1235", (0, "start")),
    (({0: b""}, {0: b"12345"}), "12345", (0, "start")),
    (({}, {0: b"12345"}), "12345", (0, "start")),
    (({0: b"123"}, {0: b"123"}, {0: b"12345"}), "12345", (3, "start")),
])  # fmt: skip
async def test_a_log_goes_on_from_its_last_byte(answers: tuple[Files, ...], found: str, asked: tuple[int, str]) -> None:
    node = Node(*answers)
    assert await text(followed(node), node) == found
    assert node.asked[-1] == asked


async def test_a_file_that_is_truncated_while_its_node_is_out_of_reach_is_read_from_its_beginning() -> None:
    node = Node({0: b"1", 1: b"234"}, {0: b"1", 1: b"56"})
    found = [frame async for frame in followed(node).frames(node) if frame != StreamFrame()]
    assert [frame.data for frame in found] == [b"1", b"234", b"", b"56"]
    assert found[2] == StreamFrame(offset=3, file="alloc/logs/main.stdout.1", file_event=FILE_TRUNCATED)


async def test_a_log_that_was_truncated_before_its_node_was_out_of_reach_is_read_from_its_beginning() -> None:
    class Truncated(Node):
        async def stream_logs(self, *args: Any, **options: Any) -> AsyncGenerator[StreamFrame]:
            name, is_first = "alloc/logs/main.stdout.0", len(self.answers) > 1
            if is_first:
                yield StreamFrame(data=b"123456", file=name)
                yield StreamFrame(offset=6, file=name, file_event=FILE_TRUNCATED)
            async for frame in super().stream_logs(*args, **options):
                yield frame

    node = Truncated({0: b""}, {0: b"longer than before"})
    assert await text(followed(node), node) == "123456longer than before"


async def test_a_file_that_is_removed_after_the_listing_costs_nothing_of_the_others() -> None:
    node = Node({1: b"123"}, {1: b"123456"}, removed_late=0)
    assert await text(followed(node), node) == "123456"
    assert [offset for offset, _ in node.asked] == [100, 6, 3]


async def test_a_file_that_is_removed_after_the_listing_hides_no_end_of_the_file_that_was_read() -> None:
    node = Node({1: b"123"}, {1: b"12345", 2: b"6789"}, removed_late=0)
    assert await text(followed(node), node) == "123456789"
    assert [offset for offset, _ in node.asked] == [100, 6, 3]


async def test_a_reader_that_leaves_closes_the_stream_of_the_node() -> None:
    node = Node({0: b"123"})
    frames = followed(node).frames(node)
    while not (await anext(frames)).data:
        pass
    assert node.open == 1
    await frames.aclose()
    assert node.open == 0


async def test_a_node_that_stays_out_of_reach_ends_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_log, "RESUME_S", 0.05)

    def find() -> Any:
        raise Unavailable("No path to node", reason=Reason.NO_PATH_TO_NODE)

    node, beats = Node({0: b"123"}, {}), list[StreamFrame]()
    with pytest.raises(Unavailable, match="No path to node"):
        async for frame in followed(node, find=find).frames(node):
            beats.append(frame)
    assert len([frame for frame in beats if not frame.data]) > 2, "heartbeats meanwhile"


async def test_a_refusal_and_a_node_that_never_answered_end_it_at_once() -> None:
    class Refuses:
        async def stream_logs(self, *_: object, **__: object) -> AsyncGenerator[StreamFrame]:
            raise error
            yield

    for error in (NotFound("gone"), ConnectionLost(LOST)):
        with pytest.raises(type(error)):
            await text(followed(Refuses()), Refuses())
