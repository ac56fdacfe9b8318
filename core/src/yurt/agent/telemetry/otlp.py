"""Sends spans to a collector over OTLP/HTTP, with OpenTelemetry's own exporter (`pip install 'yurt[otlp]'`)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

from yurt.agent.telemetry.spans import Attributes, Span
from yurt.sdk.errors import Unavailable

SEND_LIMIT_S: Final = 4.0
"""Seconds that one request and its repetitions may take: an agent that stops waits for as long at most."""
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)


class _LastMessage(logging.Handler):
    """Records the package's last log message, because its exporter returns only success or failure."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the text of a record."""
        self.text = record.getMessage()


class OtlpExporter:
    """A connection to one collector. `send` blocks: call it in a thread."""

    def __init__(self, endpoint: str, resource: Attributes, *, ca_file: str = "") -> None:
        """`resource` are the attributes of the agent that sends.

        Headers, client certificates and compression come from the variables of OpenTelemetry's specification, such as
        `OTEL_EXPORTER_OTLP_HEADERS`: they may be secret, and the configuration is shown by the API.
        """
        self._complaint = _LastMessage()
        self._logger = logging.getLogger("opentelemetry.exporter")
        self._logger.addHandler(self._complaint)
        self._logger.propagate = False
        self._resource = Resource(dict(resource))
        self._exporter = OTLPSpanExporter(endpoint, certificate_file=ca_file or None, timeout=SEND_LIMIT_S)

    def send(self, spans: Sequence[Span]) -> None:
        """Send spans in one request; transient failures are repeated for `SEND_LIMIT_S`. Raises Unavailable."""
        try:
            outcome = self._exporter.export([self._converted(span) for span in spans])
        except Exception as error:  # Whatever the package raises, these spans are lost.
            raise Unavailable(f"{type(error).__name__}: {error}") from error
        if outcome is not SpanExportResult.SUCCESS:
            raise Unavailable(self._complaint.text or "the collector refused the spans")

    def close(self) -> None:
        """Close the connection; a request in progress is not repeated."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]
        self._logger.removeHandler(self._complaint)
        self._logger.propagate = True

    def _converted(self, span: Span) -> ReadableSpan:
        return ReadableSpan(
            span.name,
            context=_context(span.trace_id, span.span_id),
            parent=None if span.parent_id is None else _context(span.trace_id, span.parent_id),
            resource=self._resource,
            attributes=dict(span.attributes),
            events=[Event(event.name, {"message": event.message}, timestamp=event.time) for event in span.events],
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.UNSET),
            start_time=span.start,
            end_time=span.end,
        )


def _context(trace_id: int, span_id: int) -> SpanContext:
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=_SAMPLED)
