"""Parts of aiohttp that its documentation does not promise, and that repeated reads and the gate of websockets need."""

from __future__ import annotations

import inspect

import pytest
from aiohttp import http_writer, web, web_server
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import RawRequestMessage
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from aiohttp.web_protocol import RequestHandler
from multidict import CIMultiDict
from yurt.http.edge import first_message, protocol
from yurt.http.plain_reads import fast_path

ADVICE = (
    "aiohttp has changed: read its `web_protocol.py`, then adapt `yurt.http.edge.protocol` and "
    "`yurt.http.plain_reads.fast_path`, or lower the bound of aiohttp in core/pyproject.toml"
)


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("_waiter", RequestHandler.start),
        ("_messages", RequestHandler.start),
        ("self._close = True", RequestHandler.close),
        ("self._force_close = True", RequestHandler.force_close),
        ("conn.close()", web_server.Server.pre_shutdown),
        ("_next_keepalive_close_time", RequestHandler._process_keepalive),
        ("self._request_count += 1", RequestHandler.data_received),
        ("self._request_count += 1", RequestHandler.finish_response),
        ("finish_response", RequestHandler._handle_request),
        ("_manager", RequestHandler.start),
        ("_logging_enabled", RequestHandler.start),
        ("requests_count", RequestHandler.start),
    ],
)
def test_a_connection_still_works_with_the_part(name: str, where: object) -> None:
    assert name in inspect.getsource(where), f"{name}: {ADVICE}"  # type: ignore[arg-type]


def test_a_connection_still_has_its_parts() -> None:
    for name in ("_waiter", "_messages", "_next_keepalive_close_time", "_request_count", "_manager"):
        assert name in RequestHandler.__slots__, f"{name}: {ADVICE}"
    assert isinstance(RequestHandler.writing_paused, property), ADVICE
    assert "requests_count" in inspect.getsource(web_server.Server.__init__), ADVICE


def test_a_request_and_its_head_are_still_made_of_the_same_arguments() -> None:
    names = "method path version headers raw_headers should_close compression upgrade chunked url"
    message = RawRequestMessage(*names.split())  # type: ignore[arg-type]
    assert all(getattr(message, name) == name for name in names.split()), ADVICE
    request = list(inspect.signature(web.Request).parameters)
    assert request[:6] == ["message", "payload", "protocol", "payload_writer", "task", "loop"], ADVICE
    assert "_match_info" in web.Request.ATTRS, ADVICE
    assert "_match_info" in inspect.getsource(web.Application._handle), ADVICE
    assert web.RequestKey("a") is not None, ADVICE


def test_no_body_is_still_one_object() -> None:
    assert EMPTY_PAYLOAD is protocol.EMPTY_PAYLOAD and isinstance(EMPTY_PAYLOAD, StreamReader), ADVICE


@pytest.mark.parametrize("number", [*range(9), *range(10, 32), 127])
def test_a_header_with_a_control_character_is_still_refused(number: int) -> None:
    assert fast_path._serialize_headers is http_writer._serialize_headers, ADVICE
    with pytest.raises(ValueError, match="control character"):
        http_writer._serialize_headers("HTTP/1.1 200 OK", CIMultiDict({"A": f"b{chr(number)}"}))


SOCKET_ADVICE = ADVICE.replace("`yurt.http.edge.protocol` and ", "`yurt.http.edge.first_message`, ")


@pytest.mark.parametrize(
    ("part", "where"),
    [
        ("request._protocol", web.WebSocketResponse._post_start),
        ("request.protocol.set_parser(", web.WebSocketResponse._post_start),
        ("request.protocol.keep_alive(", web.WebSocketResponse._post_start),
        ("self._post_start(request, ", web.WebSocketResponse.prepare),
        ("_payload_parser.feed_data(self._message_tail)", RequestHandler.set_parser),
        ("self._resume_reading_if_drained()", RequestHandler.set_parser),
        ("_message_tail", RequestHandler.data_received),
        ("eof, tail = self._payload_parser.feed_data(data)", RequestHandler.data_received),
        ("_payload_parser.feed_eof()", RequestHandler.connection_lost),
        ("self.transport.close()", RequestHandler.force_close),
        ("if not self._reading_paused:", BaseProtocol._resume_reading_for_buffer),
        ("self._reading_paused = True", BaseProtocol.pause_reading),
        ("if not self._upgraded:", BaseProtocol.pause_reading),
        ("not self._buffer_paused", BaseProtocol.resume_reading),
    ],
)
def test_a_connection_still_treats_the_parser_of_a_websocket_as_the_gate_expects(part: str, where: object) -> None:
    assert part in inspect.getsource(where), f"{part}: {SOCKET_ADVICE}"  # type: ignore[arg-type]


def test_the_gate_still_overrides_a_method_of_the_same_arguments() -> None:
    own, theirs = first_message.FirstMessageSocket._post_start, web.WebSocketResponse._post_start
    assert list(inspect.signature(own).parameters) == list(inspect.signature(theirs).parameters), SOCKET_ADVICE
    given = list(inspect.signature(RequestHandler.set_parser).parameters)
    assert given == ["self", "parser", "data_received_cb"], SOCKET_ADVICE
    assert given == list(inspect.signature(first_message._GatedRequest.set_parser).parameters), SOCKET_ADVICE
