"""How aiohttp handles the connections of the HTTP API: its options, and the debug line for each request."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web
from aiohttp.abc import AbstractAccessLogger


class RequestLog(AbstractAccessLogger):
    """A debug line for each request, formatted only while the log or a monitor reads debug lines."""

    @property
    def enabled(self) -> bool:
        """Whether requests are logged; read once per connection."""
        return any(handler.level <= logging.DEBUG for handler in logging.getLogger().handlers)

    def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
        """`request complete: method=GET path=/v1/jobs ...`; the query may hold secrets and is left out."""
        text = "request complete: method=%s path=%s status=%d duration=%.1fms"
        self.logger.debug(text, request.method, request.path, response.status, time * 1000)


HTTP_OPTIONS: Final[Mapping[str, Any]] = {
    "access_log": logging.getLogger("yurt.http"), "access_log_class": RequestLog, "auto_decompress": False,
}  # fmt: skip
"""The options of aiohttp's RequestHandler."""
