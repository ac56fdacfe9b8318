"""A misspelt choice is suggested, and never its opposite."""

from __future__ import annotations

import pytest
from yurt.rules.problems import near_hint
from yurt.rules.validation.task import LIFECYCLE_HOOKS


@pytest.mark.parametrize(
    ("word", "choices", "meant"),
    [
        ("prestrat", LIFECYCLE_HOOKS, "prestart"),
        ("prestop", LIFECYCLE_HOOKS, ""),
        ("poststrat", LIFECYCLE_HOOKS, "poststart"),
        ("PreStart", LIFECYCLE_HOOKS, "prestart"),
        ("brige", ("host", "bridge"), "bridge"),
        ("INFOO", ("info", "warn"), "info"),
        ("tesk", ("task", "test"), ""),
        ("zzz", ("task", ""), ""),
        ("anything", (), ""),
    ],
)
def test_the_choice_that_a_word_means(word: str, choices: tuple[str, ...], meant: str) -> None:
    assert near_hint(word, choices) == (f' (did you mean "{meant}"?)' if meant else "")
