"""Frames, positions, log files, image names and reports; no engine is needed here."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, cast

import pytest
from yurt.sdk.containers.address import EngineAddress
from yurt.sdk.containers.common import parse_stamp, signal_name
from yurt.sdk.containers.frames import Piece, StreamFrames, since
from yurt.sdk.containers.logfiles import LogFiles, Position, PositionFile, fitting
from yurt.sdk.driver import LogRotation
from yurt.sdk.errors import Conflict, DriverError, NotFound, YurtError
from yurt_driver_docker.images import ImageName, PullProgress, parse_image, pull_failure
from yurt_driver_docker.logs import LogReader, Repetitions, advance
from yurt_driver_docker.reports import exit_result, task_stats

STAMP = b"2026-01-02T03:04:05.000000006Z"
AT = 1767323045_000000006


def frame(stream: int, data: bytes) -> bytes:
    return bytes([stream, 0, 0, 0]) + len(data).to_bytes(4, "big") + data


@pytest.mark.parametrize("cut", range(1, 60))
def test_frames_come_out_whole_however_the_bytes_arrive(cut: int) -> None:
    data = frame(1, STAMP + b" out\n") + frame(2, STAMP + b" err\n")
    frames = StreamFrames(is_terminal=False, has_stamps=True)
    pieces = [*frames.feed(data[:cut]), *frames.feed(data[cut:])]
    assert pieces == [Piece("stdout", STAMP, b"out\n"), Piece("stderr", STAMP, b"err\n")]


def test_a_damaged_stream_is_noticed() -> None:
    with pytest.raises(ValueError, match="damaged"):
        StreamFrames(is_terminal=False, has_stamps=True).feed(b"HTTP/1.1 200 OK\r\n")


def test_the_lines_of_a_terminal_lose_their_times_and_long_ones_stay_whole() -> None:
    frames = StreamFrames(is_terminal=True, has_stamps=True)
    long = b"x" * 16384
    pieces = frames.feed(STAMP + b" a\r\n" + STAMP + b" " + long + STAMP + b" y\r\n" + STAMP + b" rest") + frames.end()
    assert b"".join(piece.data for piece in pieces) == b"a\r\n" + long + b"y\r\nrest"


def test_times_are_nanoseconds_and_go_back_to_the_engine_as_they_came() -> None:
    assert parse_stamp(STAMP) == AT
    assert parse_stamp(b"2026-01-02T04:04:05.000000006+01:00") == AT
    assert (since(AT), parse_stamp(b"no time")) == ("1767323045.000000006", 0)


def piece(stream: str, second: int, data: bytes) -> Piece:
    return Piece(stream, b"2026-01-02T03:04:%02dZ" % second, data)


class Reading:
    """A reader's steps; `hours` is how far the clock of the machine was set back."""

    def __init__(self, position: Position | None = None, *, is_here: bool = True, hours: int = 0) -> None:
        self.hours = hours
        self.position = position or Position()
        self.skip = {stream: same for stream, (_, same) in self.position.reached.items()}
        self.repetitions = Repetitions(
            self.position, is_here=lambda: is_here, clock=lambda: 3600_000_000_000 * (24 - self.hours)
        )

    def read(self, *pieces: Piece) -> bytes:
        """The output that is written of one batch."""
        written = list[Piece]()
        for fresh in self.repetitions.new_runs(list(pieces), self.skip):
            for stream in ("stdout", "stderr"):
                if of_stream := [each for each in fresh if each.stream == stream]:
                    advance(self.position, of_stream)
            written += fresh
        return b"".join(each.data for each in written)


ALL = [
    piece("stdout", 5, b"a"), piece("stdout", 5, b"b"), piece("stderr", 4, b"e"), piece("stdout", 5, b"c"),
    piece("stderr", 6, b"f"), piece("stdout", 7, b"d"),
]  # fmt: skip


@pytest.mark.parametrize("first", range(len(ALL) + 1))
@pytest.mark.parametrize("second", range(len(ALL) + 1))
def test_who_takes_over_skips_exactly_what_was_written(first: int, second: int) -> None:
    position = Position()
    ends = (first, max(first, second), len(ALL))
    assert b"".join(Reading(position).read(*ALL[:end]) for end in ends) == b"abecfd"


def test_what_the_engine_repeats_is_written_once() -> None:
    reader = Reading()
    assert b"".join(reader.read(each) for each in ALL) == b"abecfd"
    assert reader.read(*ALL[3:], piece("stdout", 8, b"g"), piece("stderr", 8, b"h")) == b"gh"
    assert reader.read(piece("stdout", 9, b"i"), *ALL[2:], piece("stdout", 9, b"i"), piece("stdout", 9, b"j")) == b"ij"


def test_a_line_that_the_engine_repeats_alone_is_written_once() -> None:
    reader, alone = Reading(), piece("stdout", 5, b"a\n")
    assert reader.read(alone, alone) == b"a\n"
    assert reader.read(piece("stdout", 6, b"a\n")) == b"a\n"
    parts = [piece("stdout", 7, b"x"), piece("stdout", 7, b"x"), piece("stdout", 7, b"x\n")]
    assert reader.read(*parts) == b"xxx\n"
    assert reader.read(*parts, piece("stdout", 8, b"b\n")) == b"b\n"


def test_a_repetition_right_behind_a_reconnection_is_written_once() -> None:
    reader = Reading(Position(reached={"stdout": (AT - 6, 1)}))
    assert reader.read(piece("stdout", 5, b"a"), piece("stdout", 6, b"b"), piece("stdout", 7, b"c")) == b"bc"
    reader.skip = {"stdout": 1}
    repeated = (piece("stdout", 8, b"d"), piece("stdout", 9, b"e"))
    assert reader.read(piece("stdout", 7, b"c"), *repeated, *repeated, piece("stdout", 10, b"f")) == b"def"


def test_output_without_a_time_goes_on_with_the_piece_before_it() -> None:
    """A line of a terminal beyond 1 MiB is cut where no time stands."""
    reader, rest = Reading(), Piece("stdout", b"", b"b")
    assert reader.read(piece("stdout", 5, b"a"), rest) == b"ab"
    assert reader.position.reached == {"stdout": (AT - 6, 1)}
    assert Reading(reader.position).read(piece("stdout", 5, b"a"), piece("stdout", 6, b"c")) == b"c"


def test_a_clock_that_is_set_back_behind_a_reconnection_loses_nothing() -> None:
    reader = Reading(Position(reached={"stdout": (AT - 6, 1)}))
    assert reader.read(piece("stdout", 5, b"a")) == b""
    assert reader.read(piece("stdout", 3, b"b")) == b"b"


def test_a_clock_that_was_set_back_between_two_readers_loses_nothing() -> None:
    first = Reading()
    first.read(piece("stdout", 5, b"a"))
    later = Reading(first.position, hours=1)
    assert later.read(piece("stdout", 5, b"a"), piece("stdout", 9, b"b"), piece("stdout", 7, b"c")) == b"bc"


def test_messages_behind_a_step_of_the_clock_are_no_repetition() -> None:
    reader = Reading()
    assert reader.read(piece("stdout", 9, b"a"), piece("stderr", 9, b"e")) == b"ae"
    reader.hours = 1
    assert reader.read(piece("stdout", 9, b"b")) == b"b"  # it was written before the step
    assert reader.read(piece("stdout", 3, b"c"), piece("stderr", 3, b"f"), piece("stdout", 4, b"d")) == b"cfd"
    assert reader.read(piece("stdout", 3, b"c"), piece("stdout", 4, b"d"), piece("stdout", 5, b"g")) == b"g"


def test_the_clock_of_another_machine_may_go_back() -> None:
    assert Reading(is_here=False).read(piece("stdout", 9, b"a"), piece("stdout", 3, b"b")) == b"ab"


class RemovedContainer:
    """An engine that refuses the output of its container."""

    target = EngineAddress("unix:///none")

    def __init__(self, error: YurtError) -> None:
        self.error = error

    def stream(self, method: str, path: str, *, query: Mapping[str, str]) -> AbstractAsyncContextManager[None]:
        raise self.error


@pytest.mark.parametrize("error", [NotFound("no such container"), Conflict("it is marked for removal")])
async def test_the_output_of_a_container_that_somebody_removes_ends(tmp_path: Path, error: YurtError) -> None:
    reader = LogReader(
        cast(Any, RemovedContainer(error)), "c", files=lambda: opened(tmp_path), ledger_path=str(tmp_path / "l" / "c"),
        is_terminal=False, is_here=lambda: True,
    )  # fmt: skip
    async with asyncio.timeout(60):
        await reader.run(is_running)
    assert reader.done.is_set()


async def is_running() -> bool:
    return True


@pytest.mark.parametrize(
    ("data", "room", "is_empty", "taken"),
    [(b"ab\ncd\n", 9, False, 6), (b"ab\ncd\n", 5, False, 3), (b"abcdef", 4, False, 0), (b"abcdef", 4, True, 4)],
)
def test_lines_stay_whole_where_they_fit(data: bytes, room: int, is_empty: bool, taken: int) -> None:
    assert fitting(memoryview(data), room, is_empty=is_empty) == taken


def opened(folder: Path, *, places: dict[str, tuple[int, int]] | None = None) -> LogFiles:
    files = LogFiles(str(folder), "web", LogRotation(max_files=2, max_bytes=10))
    files.open(places or {})
    return files


def test_files_rotate_and_the_oldest_go(tmp_path: Path) -> None:
    files = opened(tmp_path)
    for text in (b"1111\n", b"2222\n", b"3333\n", b"4444\n", b"5555\n"):
        files.write("stdout", text)
    files.close()
    assert sorted(path.name for path in tmp_path.glob("*stdout*")) == ["web.stdout.1", "web.stdout.2"]
    assert (tmp_path / "web.stdout.1").read_bytes() == b"3333\n4444\n"


def test_what_was_written_but_not_noted_is_cut_off(tmp_path: Path) -> None:
    files = opened(tmp_path)
    for text in (b"1111\n", b"2222\n", b"3333\n"):
        files.write("stdout", text)
    files.close()
    opened(tmp_path, places={"stdout": (0, 5), "stderr": (0, 0)}).close()
    assert (tmp_path / "web.stdout.0").read_bytes() == b"1111\n"
    assert not (tmp_path / "web.stdout.1").exists()


@pytest.mark.parametrize("trap", ["link", "fifo"])
def test_output_never_goes_through_what_the_task_put_there(tmp_path: Path, trap: str) -> None:
    logs, target = tmp_path / "logs", tmp_path / "passwd"
    logs.mkdir()
    target.write_text("root")
    (logs / "web.stdout.0").symlink_to(target) if trap == "link" else os.mkfifo(logs / "web.stdout.0")
    files = opened(logs)
    files.write("stdout", b"hello\n")
    files.close()
    assert (target.read_text(), (logs / "web.stdout.0").read_text()) == ("root", "hello\n")


def test_a_log_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "logs").symlink_to("/tmp")
    with pytest.raises(OSError, match="logs"):
        opened(tmp_path / "logs")


def test_a_torn_note_of_the_position_begins_anew(tmp_path: Path) -> None:
    ledger = PositionFile(str(tmp_path / "state" / "id"))
    assert ledger.load() == Position()
    noted = Position(reached={"stdout": (7, 2)}, files={"stdout": (1, 9)})
    ledger.store(noted)
    assert ledger.load() == noted
    os.pwrite(ledger.file, b"{torn", 0)
    assert ledger.load() == Position()
    ledger.close()


@pytest.mark.parametrize(
    ("text", "name", "registry"),
    [
        ("redis", ImageName("redis", "latest"), "docker.io"),
        ("redis:7", ImageName("redis", "7"), "docker.io"),
        ("team/app:1", ImageName("team/app", "1"), "docker.io"),
        ("localhost:5000/app", ImageName("localhost:5000/app", "latest"), "localhost:5000"),
        ("https://ghcr.io/a/b:2", ImageName("ghcr.io/a/b", "2"), "ghcr.io"),
        ("a/b@sha256:ff", ImageName("a/b", "sha256:ff"), "docker.io"),
    ],
)
def test_names_of_images(text: str, name: ImageName, registry: str) -> None:
    assert (parse_image(text), parse_image(text).registry) == (name, registry)


def test_a_digest_is_written_with_an_at() -> None:
    assert (parse_image("a@sha256:ff").text, parse_image("a:1").text) == ("a@sha256:ff", "a:1")


def test_the_progress_of_a_pull_is_told() -> None:
    progress = PullProgress()
    for layer in ("a", "b"):
        progress.take({"id": layer, "status": "Pulling fs layer"})
    progress.take({"id": "a", "status": "Downloading", "progressDetail": {"current": 3 << 20, "total": 9 << 20}})
    progress.take({"id": "a", "status": "Pull complete"})
    assert str(progress) == "1 of 2 layers complete, 3.0 MiB downloaded"


def test_a_missing_image_is_final_and_a_broken_line_is_not() -> None:
    name = parse_image("a:1")
    assert type(pull_failure(name, "manifest unknown")) is DriverError
    assert type(pull_failure(name, "connection reset by peer")) is not DriverError


@pytest.mark.parametrize(("code", "signal"), [(0, 0), (3, 0), (128, 0), (137, 9), (143, 15), (255, 0)])
def test_a_killing_signal_is_read_from_the_exit_code(code: int, signal: int) -> None:
    result = exit_result({"State": {"ExitCode": code, "FinishedAt": STAMP.decode(), "OOMKilled": False}})
    assert (result.exit_code, result.signal, result.finished_at) == (code, signal, AT)


def test_signals_are_known_by_both_names() -> None:
    assert signal_name("hup") == signal_name("SIGHUP") == "SIGHUP"
    with pytest.raises(DriverError, match="SIGNONSENSE"):
        signal_name("SIGNONSENSE")


@pytest.mark.parametrize("detail", [{"rss": 5, "swap": 1}, {"anon": 5, "swap": 1}])
def test_stats_of_both_cgroup_versions(detail: dict[str, int]) -> None:
    cpu = {"cpu_usage": {"usage_in_usermode": 7, "usage_in_kernelmode": 8}}
    given = {"memory_stats": {"usage": 9, "stats": detail}, "cpu_stats": cpu, "pids_stats": {"current": 2}}
    stats = task_stats(given, at=parse_stamp(STAMP))  # type: ignore[arg-type]
    assert (stats.rss_bytes, stats.swap_bytes, stats.cpu_user_ns, stats.cpu_system_ns, stats.pids) == (5, 1, 7, 8, 2)
