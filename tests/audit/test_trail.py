"""Delivery: who waits for a line, and what happens to lines that cannot be written."""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from yurt.audit.files import AuditFile
from yurt.audit.settings import AuditSettings, AuditSinkSettings, FilterSettings
from yurt.audit.trail import WAITING_MAX, AuditTrail
from yurt.runtime.env import RealEnv
from yurt.sdk.errors import Invalid, Unavailable
from yurt.sdk.value import replace


class Counted(Counter[str]):
    def count(self, name: str, by: int = 1) -> None:
        self[name] += by


@asynccontextmanager
async def running(*sinks: AuditSinkSettings, counts: Counted | None = None) -> AsyncIterator[AuditTrail]:
    trail = AuditTrail(AuditSettings(sinks=sinks), RealEnv(), counts if counts is not None else Counted())
    trail.open()
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(trail.run())
        yield trail
        trail.stop()


def sink(path: Path, **changes: object) -> AuditSinkSettings:
    return replace(AuditSinkSettings(name="audit", path=str(path / "audit.log")), **changes)


def break_writes(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Writes fail while the list holds True."""
    broken, real = [True], AuditFile.write

    def write(self: AuditFile, lines: bytes, now_ns: int) -> None:
        if broken[0]:
            raise OSError(28, "No space left on device")
        real(self, lines, now_ns)

    monkeypatch.setattr(AuditFile, "write", write)
    return broken


async def test_an_enforced_line_is_in_the_file_when_the_caller_goes_on(tmp_path: Path) -> None:
    async with running(sink(tmp_path)) as trail:
        await trail.write(b'{"n":1}\n')
        assert (tmp_path / "audit.log").read_bytes() == b'{"n":1}\n'


def threads_counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was written in threads."""
    written, real = [], RealEnv.in_thread

    async def in_thread(self: RealEnv, function: Any, *args: Any) -> Any:
        written.append(args[0].decode())
        return await real(self, function, *args)

    monkeypatch.setattr(RealEnv, "in_thread", in_thread)
    return written


async def test_enforced_lines_are_written_at_once_and_behind_those_that_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_threads = threads_counted(monkeypatch)
    async with running(sink(tmp_path)) as trail:
        await trail.write(b"1\n")
        trail.post(b"2\n")
        await trail.write(b"3\n")
        await trail.write(b"4\n")
    assert (tmp_path / "audit.log").read_bytes() == b"1\n2\n3\n4\n"
    assert in_threads == ["2\n3\n"]


async def test_a_disk_that_holds_up_writes_is_written_to_in_a_thread_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_threads = threads_counted(monkeypatch)
    monkeypatch.setattr("yurt.audit.trail.SLOW_WRITE_S", 0.0)
    async with running(sink(tmp_path)) as trail:
        for line in (b"1\n", b"2\n", b"3\n"):
            await trail.write(line)
        assert in_threads == ["2\n", "3\n"]
    assert (tmp_path / "audit.log").read_bytes() == b"1\n2\n3\n"


async def test_after_a_while_a_disk_that_was_slow_is_written_to_at_once_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_threads = threads_counted(monkeypatch)
    monkeypatch.setattr("yurt.audit.trail.SLOW_WRITE_S", 0.0)
    monkeypatch.setattr("yurt.audit.trail.THREAD_S", 0.0)
    async with running(sink(tmp_path)) as trail:
        for line in (b"1\n", b"2\n"):
            await trail.write(line)
    assert (tmp_path / "audit.log").read_bytes() == b"1\n2\n"
    assert in_threads == []


async def test_an_enforced_line_that_is_not_written_fails_its_caller_until_the_disk_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken, counts = break_writes(monkeypatch), Counted()
    caplog.set_level(logging.INFO)
    async with running(sink(tmp_path), counts=counts) as trail:
        for _ in range(2):
            with pytest.raises(Unavailable, match="audit log cannot be written"):
                await trail.write(b'{"n":1}\n')
        broken[0] = False
        await trail.write(b'{"n":2}\n')
    assert (tmp_path / "audit.log").read_bytes() == b'{"n":2}\n'
    assert counts == {"audit.failed": 2, "audit.lines": 1}
    told = [record.getMessage() for record in caplog.records if "audit" in record.getMessage()]
    assert told == [
        "audit log cannot be written: sink=audit error=No space left on device",
        "audit log is written again: sink=audit",
    ]


async def test_a_file_that_cannot_be_looked_at_is_a_failed_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_gone(self: AuditFile) -> bool:
        raise OSError(116, "Stale file handle")

    counts = Counted()
    async with running(sink(tmp_path), counts=counts) as trail:
        with monkeypatch.context() as broken:
            broken.setattr(AuditFile, "_is_gone", is_gone)
            with pytest.raises(Unavailable):
                await trail.write(b"{}\n")
        assert counts["audit.failed"] == 1


async def test_a_best_effort_sink_fails_nobody_and_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    break_writes(monkeypatch)
    counts = Counted()
    async with running(sink(tmp_path, is_enforced=False), counts=counts) as trail:
        for _ in range(3):
            await trail.write(b"{}\n")
    assert counts == {"audit.failed": 3}


async def test_one_failing_enforced_sink_is_enough_and_the_others_get_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = AuditFile.write

    def write(self: AuditFile, lines: bytes, now_ns: int) -> None:
        if self.settings.name == "bad":
            raise OSError(5, "Input/output error")
        real(self, lines, now_ns)

    monkeypatch.setattr(AuditFile, "write", write)
    bad = sink(tmp_path / "bad", name="bad")
    async with running(bad, sink(tmp_path)) as trail:
        with pytest.raises(Unavailable):
            await trail.write(b"{}\n")
    assert (tmp_path / "audit.log").read_bytes() == b"{}\n"


def read_all(folder: Path) -> list[dict[str, int]]:
    """The lines of all files, the oldest first."""
    files = sorted(folder.iterdir(), key=lambda each: (each.name == "audit.log", each.name))
    assert len(files) > 20
    return [json.loads(line) for each in files for line in each.read_text().splitlines()]


async def test_no_line_is_lost_or_torn_when_many_write_while_files_are_exchanged(tmp_path: Path) -> None:
    async def write(trail: AuditTrail, writer: int) -> None:
        for number in range(50):
            await trail.write(json.dumps({"writer": writer, "n": number}).encode() + b"\n")

    async with running(sink(tmp_path, rotate_bytes=500)) as trail, asyncio.TaskGroup() as group:
        for writer in range(20):
            group.create_task(write(trail, writer))
    found = read_all(tmp_path)
    assert Counter((each["writer"], each["n"]) for each in found) == Counter(
        (writer, number) for writer in range(20) for number in range(50)
    )
    own = [each["n"] for each in found if each["writer"] == 7]
    assert own == sorted(own)


async def test_after_a_reopening_lines_go_to_the_file_of_the_name(tmp_path: Path) -> None:
    async with running(sink(tmp_path)) as trail:
        await trail.write(b'{"n":1}\n')
        (tmp_path / "audit.log").rename(tmp_path / "moved.log")
        await trail.write(b'{"n":2}\n')
        trail.reopen()
        await trail.write(b'{"n":3}\n')
    assert (tmp_path / "moved.log").read_bytes() == b'{"n":1}\n{"n":2}\n'
    assert (tmp_path / "audit.log").read_bytes() == b'{"n":3}\n'


async def test_a_reopening_that_fails_keeps_the_old_file(tmp_path: Path) -> None:
    async with running(sink(tmp_path)) as trail:
        await trail.write(b'{"n":1}\n')
        (tmp_path / "audit.log").rename(tmp_path / "moved.log")
        (tmp_path / "audit.log").mkdir()
        trail.reopen()
        await trail.write(b'{"n":2}\n')
    assert (tmp_path / "moved.log").read_bytes() == b'{"n":1}\n{"n":2}\n'


async def test_lines_that_nobody_waits_for_are_in_the_file_after_the_stop(tmp_path: Path) -> None:
    async with running(sink(tmp_path, is_enforced=False)) as trail:
        for _ in range(100):
            trail.post(b"{}\n")
    assert (tmp_path / "audit.log").read_bytes() == b"{}\n" * 100


async def test_more_lines_than_may_wait_are_counted_or_refused(tmp_path: Path) -> None:
    counts = Counted()
    trail = AuditTrail(AuditSettings(sinks=(sink(tmp_path),)), RealEnv(), counts)
    for _ in range(WAITING_MAX + 5):
        trail.post(b"{}\n")
    with pytest.raises(Unavailable):
        await trail.write(b"{}\n")
    assert counts["audit.failed"] == 6


def test_files_that_cannot_be_opened_are_told_together(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    bad = [sink(tmp_path / "file", name=name) for name in ("one", "two")]
    trail = AuditTrail(AuditSettings(sinks=tuple(bad)), RealEnv(), Counted())
    with pytest.raises(Invalid) as caught:
        trail.open()
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == ['audit sink "one"', 'audit sink "two"']


@pytest.mark.parametrize(
    ("operation", "stage", "endpoint", "is_omitted"),
    [
        ("GET", "OperationComplete", "/v1/metrics", True),
        ("PUT", "OperationComplete", "/v1/metrics", False),
        ("GET", "OperationComplete", "/v1/metrics/x", False),
        ("GET", "OperationComplete", "/v1/evaluation/1/allocations", True),
        ("GET", "OperationComplete", "/v1/evaluation/1", False),
        ("DELETE", "OperationReceived", "/v1/job/web", True),
        ("DELETE", "OperationComplete", "/v1/job/web", False),
    ],
)
def test_a_line_is_left_out_when_a_filter_matches_all_three_parts(
    tmp_path: Path, operation: str, stage: str, endpoint: str, is_omitted: bool
) -> None:
    filters = (
        FilterSettings(name="a", endpoints=("/v1/metrics",), stages=("*",), operations=("get",)),
        FilterSettings(name="b", endpoints=("/v1/evaluation/*/allocations",), stages=("*",), operations=("*",)),
        FilterSettings(name="c", endpoints=("*",), stages=("OperationReceived",), operations=("DELETE",)),
    )
    trail = AuditTrail(AuditSettings(sinks=(sink(tmp_path),), filters=filters), RealEnv(), Counted())
    assert trail.omits(operation, stage, endpoint) is is_omitted
