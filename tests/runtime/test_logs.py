"""Log lines."""

from __future__ import annotations

import json
import logging

import pytest
from yurt.runtime.log_tap import json_line, text_line
from yurt.runtime.logs import JsonFormatter, NomadFormatter

PLACED = logging.LogRecord("yurt.http", logging.INFO, "/opt/core/yurt/http/server.py", 75, "ready", (), None)


def line_of(text: str) -> str:
    record = logging.LogRecord("yurt.http", logging.INFO, "", 0, "request: path=%s", (text,), None)
    return NomadFormatter().format(record)


@pytest.mark.parametrize(
    "text", ["/v1/x\n2026-11-28T00:00:00Z [ERROR] forged", "\r", "\x1b[2J", "\x85", "\u2028", "\x00"]
)
def test_a_text_of_a_stranger_begins_no_line_and_controls_no_terminal(text: str) -> None:
    line = line_of(text)
    assert len(line.splitlines()) == 1
    assert line.isprintable()


def test_a_line_shows_what_was_there() -> None:
    assert line_of("/v1/jöb\n\x1b").endswith("[INFO]  http: request: path=/v1/jöb\\n\\x1b")


def test_a_line_names_its_line_of_source_where_that_is_wanted() -> None:
    assert NomadFormatter(has_location=True).format(PLACED).endswith("[INFO]  http/server.py:75: http: ready")
    assert text_line(PLACED, has_location=True).endswith("[INFO]  http/server.py:75: yurt.http: ready\n")
    for line in (JsonFormatter(has_location=True).format(PLACED), json_line(PLACED, has_location=True)):
        assert json.loads(line)["@caller"] == "http/server.py:75"
    for line in (NomadFormatter().format(PLACED), JsonFormatter().format(PLACED), text_line(PLACED), json_line(PLACED)):
        assert "server.py" not in line
