"""What the user types at a session: `~.` ends it, `~~` is one `~`, everything else goes through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yurt.cli.terminal.session import Escapes


@pytest.mark.parametrize(
    ("typed", "sent", "is_over"),
    [
        (b"ls\r", b"ls\r", False),
        (b"~.", b"", True),
        (b"ls\r~.rest", b"ls\r", True),
        (b"a~.b", b"a~.b", False),
        (b"~~.", b"~.", False),
        (b"\n~x", b"\n~x", False),
        (b"\r~\r~.", b"\r~\r", True),
    ],
)
def test_the_escape_counts_at_the_start_of_a_line(typed: bytes, sent: bytes, is_over: bool) -> None:
    escapes = Escapes(b"~")
    assert (escapes.feed(typed), escapes.is_over) == (sent, is_over)


@given(st.binary(max_size=40).map(lambda data: data.replace(b"x", b"~").replace(b"y", b"\r")), st.integers(0, 40))
def test_it_does_not_matter_how_the_keys_arrive(typed: bytes, at: int) -> None:
    whole, parts = Escapes(b"~"), Escapes(b"~")
    sent = parts.feed(typed[:at])
    if not parts.is_over:
        sent += parts.feed(typed[at:])
    assert (whole.feed(typed), whole.is_over) == (sent, parts.is_over)


@given(st.binary(max_size=40))
def test_without_an_escape_everything_goes_through(typed: bytes) -> None:
    escapes = Escapes(b"")
    assert (escapes.feed(typed), escapes.is_over) == (typed, False)
