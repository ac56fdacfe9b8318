"""The environment of a start request is encoded in one pass, and equals that of single encodings."""

from __future__ import annotations

import os

import pytest
from yurt.executor.spec import encoded


@pytest.mark.parametrize(
    "env", [{}, {"A": ""}, {"A": "1", "B": "", "C": "a=b"}, {"Ä": "\udcff\udcfe", "B": "\udcc3", "C": "\udca4"}]
)
def test_an_environment_is_encoded_as_each_of_its_texts(env: dict[str, str]) -> None:
    assert encoded(env) == {os.fsencode(key): os.fsencode(value) for key, value in env.items()}


def test_a_text_with_a_nul_is_refused_and_not_mixed_up() -> None:
    with pytest.raises(ValueError, match="argument"):
        encoded({"A": "1\0B", "C": "2"})
