"""Sizes of quota specifications."""

import pytest
from yurt.api.sizes import parse_mib


@pytest.mark.parametrize(
    ("text", "mib"), [("512", 512), ("-1", -1), ("10 GiB", 10_240), ("2tb", 2 << 20), (" 3 MB ", 3), ("0", 0)]
)
def test_a_size_is_a_number_of_mib(text: str, mib: int) -> None:
    assert parse_mib(text) == mib


@pytest.mark.parametrize("text", ["", "many", "1.5 GiB", "10 KiB", "GiB", "1" * 16])
def test_another_text_is_not_a_size(text: str) -> None:
    assert parse_mib(text) is None
