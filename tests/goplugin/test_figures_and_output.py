"""Figures between Nomad's form and ours, output on its way to a host's FIFOs, and errors that say whether to retry."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from hypothesis import given
from hypothesis import strategies as st
from yurt.goplugin.connection import STATUS_KEY, is_recoverable
from yurt.goplugin.convert import cores_of, duration_fields, duration_of, exit_message, exit_of
from yurt.goplugin.messages import SHARED, driver_message, message_class
from yurt.goplugin.output_pump import OutputPump, TaskOutput, unread
from yurt.goplugin.stats import UseMeter, stats_message
from yurt.sdk.driver import ExitResult, TaskStats
from yurt.sdk.value import Duration, UnixNano

SECOND = 1_000_000_000


def used(at_s: int, *, user_s: float, rss: int = 4096) -> TaskStats:
    return TaskStats(at=UnixNano(at_s * SECOND), rss_bytes=rss, cpu_user_ns=round(user_s * SECOND))


def test_percent_of_a_core_adds_up_to_time() -> None:
    meter, figures = UseMeter(), [used(10, user_s=0), used(12, user_s=1), used(14, user_s=3)]
    read = [
        meter.read(stats_message("t", now, before), now=now.at)
        for before, now in zip([None, *figures], figures, strict=False)
    ]
    assert [each.cpu_user_ns for each in read] == [0, SECOND, 3 * SECOND]
    assert read[-1].rss_bytes == 4096


@given(st.lists(st.tuples(st.integers(1, 59), st.floats(0, 100)), min_size=2, max_size=8))
def test_figures_survive_the_way_there_and_back(steps: list[tuple[int, float]]) -> None:
    meter, at_s, user_s = UseMeter(), 100, 0.0
    before = used(at_s, user_s=user_s)
    meter.read(stats_message("t", before, None), now=before.at)
    for span_s, more_s in steps:
        at_s, user_s = at_s + span_s, user_s + more_s
        now = used(at_s, user_s=user_s)
        got = meter.read(stats_message("t", now, before), now=now.at)
        before = now
    assert got.cpu_user_ns == pytest.approx(user_s * SECOND, rel=1e-6, abs=10)


@given(st.integers(0, 10**18))
def test_durations_survive(value: int) -> None:
    request = driver_message("StopTaskRequest", timeout=duration_fields(Duration(value)))
    assert duration_of(request.timeout) == value


@given(st.integers(-(2**31), 2**31 - 1), st.integers(0, 64), st.booleans(), st.text(max_size=20))
def test_ends_survive(code: int, signal: int, oom: bool, error: str) -> None:
    result = ExitResult(exit_code=code, signal=signal, oom_killed=oom, error=error, finished_at=UnixNano(5))
    assert exit_of(exit_message(result), error, at=UnixNano(5)) == result


@pytest.mark.parametrize(("text", "cores"), [("", ()), ("3", (3,)), ("0-2,5", (0, 1, 2, 5))])
def test_cores_are_read(text: str, cores: tuple[int, ...]) -> None:
    assert cores_of(text) == cores


def test_an_error_says_in_its_details_that_a_retry_may_help() -> None:
    def status(recoverable: bool) -> bytes:
        detail = AnyMessage()
        detail.Pack(message_class(f"{SHARED}.RecoverableError")(recoverable=recoverable))
        made = message_class("google.rpc.Status")(code=2)
        made.details.add(type_url=detail.type_url, value=detail.value)
        return bytes(made.SerializeToString())

    assert is_recoverable([("other", "x"), (STATUS_KEY, status(True))])
    assert not is_recoverable([(STATUS_KEY, status(False))])
    assert not is_recoverable([(STATUS_KEY, b"\xff damaged")])
    assert not is_recoverable([])


@pytest.fixture
def fifo(tmp_path: Path) -> str:
    path = str(tmp_path / "out.fifo")
    os.mkfifo(path)
    return path


async def test_output_is_carried_over_rotated_files_and_restarts(tmp_path: Path, fifo: str) -> None:
    reader = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
    base = tmp_path / "web.stdout"
    (tmp_path / "web.stdout.0").write_bytes(b"one\n")
    pump = OutputPump(base, fifo)
    await pump.drain()
    (tmp_path / "web.stdout.0").write_bytes(b"one\ntwo\n")
    (tmp_path / "web.stdout.1").write_bytes(b"three\n")
    await pump.drain()
    pump.close()
    (tmp_path / "web.stdout.1").write_bytes(b"three\nfour\n")
    later = OutputPump(base, fifo)
    await later.drain()
    later.close()
    assert os.read(reader, 1000) == b"one\ntwo\nthree\nfour\n"
    os.close(reader)


async def test_files_that_were_rotated_away_are_passed_over(tmp_path: Path, fifo: str) -> None:
    reader = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
    for number in (5, 6):
        (tmp_path / f"web.stdout.{number}").write_bytes(b"%d\n" % number)
    pump = OutputPump(tmp_path / "web.stdout", fifo)
    await pump.drain()
    pump.close()
    assert os.read(reader, 1000) == b"5\n6\n"
    os.close(reader)


@pytest.mark.parametrize("text", [b"all of it\n", b""])
async def test_a_reader_finds_the_end_of_the_output_when_the_task_has_ended(tmp_path: Path, text: bytes) -> None:
    fifos = [str(tmp_path / name) for name in ("out", "err")]
    for path in fifos:
        os.mkfifo(path)
    output = TaskOutput(tmp_path / "logs", "t", "web", (fifos[0], fifos[1]))
    (output.logs_dir / "web.stdout.0").write_bytes(text)

    async with asyncio.TaskGroup() as group:
        finishing = group.create_task(output.finish())
        await asyncio.sleep(0.05)  # The host opens its pipes later than a short task ends.
        readers = [group.create_task(asyncio.to_thread(Path(path).read_bytes)) for path in fifos]
        await finishing

    assert [reader.result() for reader in readers] == [text, b""]
    await output.finish()
    output.remove()


async def test_what_a_full_pipe_took_is_not_sent_twice_when_the_task_ends(tmp_path: Path) -> None:
    fifos = [str(tmp_path / name) for name in ("out", "err")]
    for path in fifos:
        os.mkfifo(path)
    output = TaskOutput(tmp_path / "logs", "t", "web", (fifos[0], fifos[1]))
    text = b"".join(b"line %06d\n" % number for number in range(12_000))  # more than a pipe and a half holds
    (output.logs_dir / "web.stdout.0").write_bytes(text)
    pump = output._pumps[0]
    following = asyncio.create_task(pump.follow())
    reader = os.open(fifos[0], os.O_RDONLY | os.O_NONBLOCK)
    try:
        while pump._fd < 0 or unread(pump._fd) < 60_000:  # noqa: ASYNC110 - a pipe, not an event
            await asyncio.sleep(0.01)
        got = os.read(reader, 10_000)
        while unread(pump._fd) < 60_000:  # noqa: ASYNC110 - the pipe takes a part of the next piece
            await asyncio.sleep(0.01)
        following.cancel()
        while len(got) < len(text):
            carrying = asyncio.create_task(pump.carry())
            await asyncio.sleep(0.01)
            got += os.read(reader, 100_000)
            carrying.cancel()
    finally:
        os.close(reader)
    assert got == text
    output.remove()


def test_a_task_whose_output_goes_nowhere_writes_no_logs(tmp_path: Path) -> None:
    output = TaskOutput(tmp_path, "t", "web", (os.devnull, os.devnull))
    assert output.rotation.disabled
    output.remove()
    assert list(tmp_path.iterdir()) == []
