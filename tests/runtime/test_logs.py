"""Log lines."""

from __future__ import annotations

import logging

import pytest
from yurt.runtime.logs import NomadFormatter


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
