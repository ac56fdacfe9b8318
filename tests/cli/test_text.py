"""Times, durations, sizes and columns look as Nomad's."""

from __future__ import annotations

import pytest
from yurt.cli.suggest import nearest
from yurt.cli.terminal.screen import columns, key_values
from yurt.cli.terminal.text import (
    HOUR,
    MINUTE,
    SECOND,
    ago,
    bytes_text,
    go_duration,
    ordinal,
    parse_duration,
    parse_time,
    two_units,
)


@pytest.mark.parametrize(
    ("span", "shown"),
    [
        (0, "0s"),
        (59 * SECOND, "59s"),
        (5 * MINUTE + 3 * SECOND, "5m3s"),
        (HOUR, "1h"),
        (26 * HOUR + 30 * SECOND, "1d2h"),
        (40 * 24 * HOUR, "1mo10d"),
    ],
)
def test_a_span_shows_its_two_largest_units(span: int, shown: str) -> None:
    assert two_units(span) == shown


def test_a_time_that_never_was_is_not_available() -> None:
    assert ago(0) == "N/A"
    assert parse_time("0001-01-01T00:00:00Z") == 0
    assert parse_time(None) == 0


def test_rfc_3339_is_read_to_the_nanosecond() -> None:
    assert parse_time("1970-01-01T00:00:01.5Z") == 1_500_000_000
    assert parse_time("1970-01-01T01:00:00.000000001+01:00") == 1


@pytest.mark.parametrize("text", ["1h0m0s", "1m30s", "250ms", "1.5s", "0s"])
def test_durations_are_written_as_they_are_read(text: str) -> None:
    assert go_duration(parse_duration(text)) == text


def test_a_duration_is_exact() -> None:
    assert parse_duration("2562047h47m16.854775807s") == (1 << 63) - 1


def test_what_is_no_duration_is_refused() -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration("5 minutes")


def test_sizes_and_ordinals() -> None:
    assert [bytes_text(n) for n in (0, 1023, 1024, 1536, 300 * 1024**2)] == [
        "0 B",
        "1023 B",
        "1 KiB",
        "1.5 KiB",
        "300 MiB",
    ]
    assert [ordinal(n) for n in (1, 2, 3, 4, 11, 21)] == ["1st", "2nd", "3rd", "4th", "11th", "21st"]


def test_columns_are_aligned_with_two_spaces_and_no_trailing_blanks() -> None:
    assert columns([["ID", "Status"], ["long-name", "x"]]) == "ID         Status\nlong-name  x"


def test_keys_are_padded_to_one_width_and_nothing_is_shown_as_none() -> None:
    assert key_values([("ID", "x"), ("Status", ""), ("On", True)]) == "ID     = x\nStatus = <none>\nOn     = true"


def test_further_lines_of_a_value_begin_below_its_first() -> None:
    assert key_values([("Keys", "one\ntwo\n"), ("ID", "x")]) == "Keys = one\n       two\nID   = x"


def test_the_nearest_word_is_found_only_when_it_is_near() -> None:
    assert nearest("stauts", ["status", "stop"]) == "status"
    assert nearest("zzz", ["status", "stop"]) == ""
