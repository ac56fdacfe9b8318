"""Traces are sent by the leader only, in batches, to a collector that is a real HTTP server on loopback."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace

import pytest
import pytest_asyncio
from yurt.agent.telemetry import traces
from yurt.agent.telemetry.otlp import OtlpExporter
from yurt.agent.telemetry.spans import Span, SpanEvent
from yurt.agent.telemetry.traces import TraceExport
from yurt.runtime.env import RealEnv
from yurt.runtime.metrics import Metrics
from yurt.sdk.errors import Unavailable
from yurt.sdk.value import UnixNano
from yurt.server.log.event_buffer import Event, EventBuffer
from yurt.state import Change
from yurt.structs.evaluation import Evaluation
from yurt.testing.services.otlp_collector import otlp_collector

LIMIT_S = 20.0
SECOND = 1_000_000_000


def a_span(number: int, *, error: str = "") -> Span:
    return Span(
        name="task start",
        trace_id=uuid.UUID(int=number).int,
        span_id=number,
        parent_id=number + 1,
        start=UnixNano(SECOND),
        end=UnixNano(3 * SECOND),
        attributes={"yurt.task": "web"},
        events=(SpanEvent("Received", UnixNano(2 * SECOND), "received"),),
        error=error,
    )


def test_a_collector_gets_spans_with_all_their_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=k1")
    with otlp_collector() as collector:
        exporter = OtlpExporter(collector.endpoint, {"service.name": "yurt", "yurt.region": "global"})
        exporter.send([a_span(7, error="no such image"), a_span(8)])
        exporter.close()
    failed, fine = collector.spans()
    assert int.from_bytes(failed.trace_id, "big") == 7 and int.from_bytes(failed.parent_span_id, "big") == 8
    assert (failed.start_time_unix_nano, failed.end_time_unix_nano) == (SECOND, 3 * SECOND)
    assert [(event.name, event.time_unix_nano) for event in failed.events] == [("Received", 2 * SECOND)]
    assert (failed.status.message, failed.status.code, fine.status.code) == ("no such image", 2, 0)
    resource = {each.key: each.value.string_value for each in collector.requests[0].resource.attributes}
    assert resource == {"service.name": "yurt", "yurt.region": "global"}
    assert collector.headers[0]["api-key"] == "k1"


def test_a_refusal_is_raised_with_its_reason() -> None:
    with otlp_collector() as collector:
        exporter = OtlpExporter(collector.endpoint, {})
        collector.status = 403
        with pytest.raises(Unavailable, match="403"):
            exporter.send([a_span(7)])
        exporter.close()


class Kept:
    """An exporter that keeps what it gets, or refuses it."""

    def __init__(self) -> None:
        self.batches: list[Sequence[Span]] = []
        self.refuses = False

    def send(self, spans: Sequence[Span]) -> None:
        if self.refuses:
            raise Unavailable("connection refused")
        self.batches.append(spans)

    def close(self) -> None:
        pass


class Source:
    """The parts of a server that leads, with a log of evaluations."""

    def __init__(self) -> None:
        self.events = EventBuffer(10)
        self.state = SimpleNamespace(index=1, evals={})
        self.replica = SimpleNamespace(state=self.state)
        self.leader = SimpleNamespace(is_local=True)
        self.metrics = Metrics()
        self.exporter = Kept()

    def end(self, *numbers: int) -> None:
        """One command that ends evaluations."""
        self.state.index += 1
        changes = []
        for number in numbers:
            row = Evaluation(id=str(uuid.UUID(int=number)), triggered_by="job-register")
            self.state.evals[row.id] = row
            changes.append(Change("evals", row.id, row, Evaluation(id=row.id, status="complete")))
        self.events.add(Event(self.state.index, tuple(changes), "EvaluationUpdated"))

    def counted(self) -> dict[str, int]:
        return {count.name: count.value for count in self.metrics.counts()}

    async def until(self, sent: int) -> None:
        async with asyncio.timeout(LIMIT_S):
            while sum(map(len, self.exporter.batches)) < sent:  # noqa: ASYNC110 - what is sent is in a thread
                await asyncio.sleep(0.01)


@pytest_asyncio.fixture
async def source(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Source]:
    monkeypatch.setattr(traces, "INTERVAL_S", 0.01)
    made = Source()
    export = TraceExport(made, made.exporter, RealEnv(), sample_ratio=1.0)
    running = asyncio.create_task(export.run())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    yield made
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_the_spans_of_many_changes_are_sent_in_batches(source: Source) -> None:
    source.end(*range(1, traces.BATCH + 300))
    await source.until(traces.BATCH + 299)
    assert max(map(len, source.exporter.batches)) <= traces.BATCH
    assert source.counted() == {"nomad.agent.traces.sent": traces.BATCH + 299}


async def test_only_the_leader_sends(source: Source) -> None:
    source.leader.is_local = False
    source.end(1)
    await asyncio.sleep(0.05)
    source.leader.is_local = True
    source.end(2)
    await source.until(1)
    assert [span.trace_id for batch in source.exporter.batches for span in batch] == [2]


async def test_what_a_collector_does_not_take_is_dropped_counted_and_logged_once(
    source: Source, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(traces, "QUEUE_MAX", 3)
    source.exporter.refuses = True
    with caplog.at_level(logging.WARNING):
        source.end(1, 2, 3, 4, 5)
        await _dropped(source, 5)
        source.end(6)
        await _dropped(source, 6)
    assert caplog.text.count("traces cannot be sent: error=connection refused") == 1
    source.exporter.refuses = False
    source.end(7)
    await source.until(1)


async def _dropped(source: Source, count: int) -> None:
    async with asyncio.timeout(LIMIT_S):
        while source.counted().get("nomad.agent.traces.dropped", 0) < count:  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.01)


async def test_a_reader_that_misses_changes_goes_on_with_the_next_ones(source: Source) -> None:
    source.events.break_off(source.state.index)
    await asyncio.sleep(0.05)
    source.end(9)
    await source.until(1)
