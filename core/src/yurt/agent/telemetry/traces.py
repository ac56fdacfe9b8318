"""Exports traces: the leader of a region reads the changes of its log and sends the spans that they end.

Nothing is measured on the way of a request: where no collector is configured, traces cost nothing. Spans wait in a
queue of bounded length; what a collector does not take in time is dropped and counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from contextlib import aclosing
from typing import Final, Protocol

from yurt.agent.telemetry.settings import TraceSettings
from yurt.agent.telemetry.spans import Span, is_sampled, spans_of
from yurt.runtime.env import Env
from yurt.runtime.metrics import Metrics
from yurt.runtime.supervise import keep_running
from yurt.runtime.turns import Turns
from yurt.sdk.errors import Conflict, Unavailable
from yurt.server.log.current_leader import CurrentLeader
from yurt.server.log.event_buffer import Event, EventBuffer
from yurt.server.log.replica import Replica

log = logging.getLogger(__name__)

QUEUE_MAX: Final = 20_000
"""Spans that wait for the collector; the oldest is dropped beyond that."""
BATCH: Final = 512
"""Spans of one request."""
CHANGES_A_SLICE: Final = 200
"""Rows examined before the loop gets a turn: a millisecond."""
INTERVAL_S: Final = 1.0
COMPLAINT_S: Final = 60.0
"""How often a collector that cannot be reached is logged."""


class Exporter(Protocol):
    """A connection to a collector."""

    def send(self, spans: Sequence[Span]) -> None:
        """Send spans, in a thread; raises Unavailable."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class ChangeSource(Protocol):
    """The parts of a server that traces are made from."""

    @property
    def events(self) -> EventBuffer:
        """The changes of the log."""
        ...

    @property
    def replica(self) -> Replica:
        """The state."""
        ...

    @property
    def leader(self) -> CurrentLeader:
        """Whether this server leads: each span is sent once."""
        ...

    @property
    def metrics(self) -> Metrics:
        """The metrics that count spans."""
        ...


class TraceExport:
    """Reads changes, and sends their spans in batches."""

    def __init__(self, source: ChangeSource, exporter: Exporter, env: Env, *, sample_ratio: float) -> None:
        self._source = source
        self._exporter = exporter
        self._env = env
        self._sample_ratio = sample_ratio
        self._turns = Turns()
        self._queue: deque[Span] = deque()
        self._complained_at = float("-inf")

    async def run(self) -> None:
        """Export until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(keep_running("reading changes for traces", self._read, pause=self._pause))
            group.create_task(keep_running("sending traces", self._send, pause=self._pause))

    async def _pause(self) -> None:
        await self._env.sleep(INTERVAL_S)

    async def _read(self) -> None:
        """Follow the log from now on; what this server did not see, after a restore for example, is left out."""
        try:
            async with aclosing(self._source.events.subscribe(self._source.replica.state.index + 1)) as events:
                async for event in events:
                    await self._take(event)
        except Conflict as error:
            log.info("traces leave out changes: reason=%s", error)

    async def _take(self, event: Event) -> None:
        if not self._source.leader.is_local:
            return
        find = self._source.replica.state.evals.get
        async for changes in self._turns.slices(event.changes, CHANGES_A_SLICE):
            for span in spans_of(changes, find):
                if is_sampled(span.trace_id, self._sample_ratio):
                    self._queue.append(span)
        if (excess := len(self._queue) - QUEUE_MAX) > 0:
            for _ in range(excess):
                self._queue.popleft()
            self._source.metrics.count("agent.traces.dropped", excess)

    async def _send(self) -> None:
        """Send the queued spans in batches, until the queue is empty or a batch fails."""
        while self._queue:
            batch = [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]
            try:
                await self._env.in_thread(self._exporter.send, batch)
            except Unavailable as error:
                self._source.metrics.count("agent.traces.dropped", len(batch))
                self._complain(error)
                return
            self._source.metrics.count("agent.traces.sent", len(batch))

    def _complain(self, error: Unavailable) -> None:
        now_s = self._env.monotonic()
        if now_s - self._complained_at >= COMPLAINT_S:
            self._complained_at = now_s
            log.warning("traces cannot be sent: error=%s", error)


async def run_traces(settings: TraceSettings, source: ChangeSource, env: Env) -> None:
    """Export a server's traces until cancelled."""
    from yurt.agent.telemetry.otlp import OtlpExporter

    exporter = await env.in_thread(lambda: OtlpExporter(settings.endpoint, settings.resource, ca_file=settings.ca_file))
    try:
        await TraceExport(source, exporter, env, sample_ratio=settings.sample_ratio).run()
    finally:
        exporter.close()
