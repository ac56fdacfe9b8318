"""The keys of booked devices: what is no share is a whole device."""

from __future__ import annotations

import pytest
from yurt.state.usage import BookedShare, share_of


@pytest.mark.parametrize(
    ("key", "share"),
    [
        ("gpu|mps|1000|20", BookedShare("gpu", "mps", 1000, 20, 0)),
        ("gpu|mps|1000|20|250", BookedShare("gpu", "mps", 1000, 20, 250)),
        ("a|b|mps|1000|20", BookedShare("a|b", "mps", 1000, 20, 0)),
        ("gpu", None), ("u|m|x|1", None), ("u|m|²|²", None), ("u|m|\N{ARABIC-INDIC DIGIT ONE}|1", None),
        ("u|m|1|" + "9" * 20, None), ("u|m|1|" + "9" * 5_000, None),
    ],
)  # fmt: skip
def test_a_share_is_read_from_its_key(key: str, share: BookedShare | None) -> None:
    assert share_of(key) == share
