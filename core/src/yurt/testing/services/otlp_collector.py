"""A trace collector for tests: receives spans over OTLP/HTTP on loopback."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from gzip import decompress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

PATH: Final = "/v1/traces"


class OtlpCollector:
    """The received spans; `status` is the HTTP status of the next answers."""

    def __init__(self) -> None:
        self.status = 200
        self.address = ""
        self.requests: list[Any] = []
        """`ResourceSpans` messages, in the order of their arrival."""
        self.headers: list[dict[str, str]] = []

    @property
    def endpoint(self) -> str:
        """The URL for spans."""
        return f"http://{self.address}{PATH}"

    def spans(self) -> list[Any]:
        """All received spans."""
        return [span for part in self.requests for scope in part.scope_spans for span in scope.spans]


@contextmanager
def otlp_collector() -> Iterator[OtlpCollector]:
    """Run a collector in a thread during the block."""
    collector = OtlpCollector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = decompress(body)
            if collector.status == 200 and self.path == PATH:
                collector.headers.append({name.lower(): text for name, text in self.headers.items()})
                collector.requests += ExportTraceServiceRequest.FromString(body).resource_spans
            self.send_response(collector.status if self.path == PATH else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Tests print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector.address = "{}:{}".format(*server.server_address)
        running = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        running.start()
        try:
            yield collector
        finally:
            server.shutdown()
            running.join()
