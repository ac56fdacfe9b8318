"""The headers that every answer of the API has, and the count of answers by status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiohttp import hdrs, web
from multidict import CIMultiDictProxy

from yurt.http.dispatcher import has_cors
from yurt.http.edge.security_headers import make_inert
from yurt.runtime.metrics import Metrics
from yurt.sdk.errors import ERROR_HEADER, NO_ERROR, reason_of_status

COMPRESS_MIN: Final = 1024
"""Bytes from which on a body is compressed for clients that accept it."""


def accepts_gzip(headers: CIMultiDictProxy[str]) -> bool:
    """Whether a request accepts a compressed answer."""
    accepted = headers.get(hdrs.ACCEPT_ENCODING)
    return accepted is not None and "gzip" in accepted.lower()


def count_response(metrics: Metrics, status: int) -> None:
    """Count an answer that begins."""
    metrics.count("http.response", labels=(("code", str(status)),))


def complete_headers(request: web.Request, response: web.StreamResponse, own: Mapping[str, str]) -> None:
    """Add the operator's own headers, the reason of an error, and what keeps an answer inert in browsers."""
    if own:
        response.headers.update(own)
    if response.status >= NO_ERROR:
        response.headers.setdefault(ERROR_HEADER, reason_of_status(response.status))
    make_inert(request, response)
    if hdrs.ACCESS_CONTROL_ALLOW_ORIGIN in response.headers and has_cors(request):
        response.headers[hdrs.ACCESS_CONTROL_ALLOW_METHODS] = "HEAD, GET"
        response.headers[hdrs.ACCESS_CONTROL_ALLOW_HEADERS] = "*"
