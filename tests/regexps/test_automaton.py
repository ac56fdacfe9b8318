"""Regular expressions are RE2's, and no pattern takes long."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from random import Random
from types import FrameType
from typing import TYPE_CHECKING

import pytest
from yurt.regexps import TEXT_MAX, Regexp, compiled, problem
from yurt.scheduler.constraints.operators import answers, holds

if TYPE_CHECKING:
    from _typeshed import TraceFunction


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("^host-[0-9]+$", "host-42", True),
        ("^host-[0-9]+$", "host-42x", False),
        ("", "", True),
        ("a|b|", "zzz", True),
        ("^(?:ab)*$", "ababab", True),
        ("^(?:ab)*$", "ababa", False),
        ("^a{2,3}$", "aaaa", False),
        ("^a{2,}$", "aaaa", True),
        ("a{,2}", "a{,2}", True),
        (r"^\d{3}\.\w+\s$", "123.a_1 ", True),
        (r"^\D\W\S$", "a-1", True),
        ("(?i)LinuX", "gnu/linux", True),
        ("(?i:L)inux", "linux", True),
        ("(?i:L)inux", "lINUX", False),
        ("^.$", "\n", False),
        ("(?s)^.$", "\n", True),
        ("(?m)^b$", "a\nb\nc", True),
        ("^b$", "a\nb\nc", False),
        (r"\bcat\b", "a cat.", True),
        (r"\bcat\b", "concat", False),
        (r"\Bcat", "concat", True),
        ("[[:alpha:]]+[^[:digit:]]", "ab!", True),
        ("^[]a-]+$", "]-a", True),
        (r"^[\d\-x]+$", "1-x", True),
        (r"^[^\D]+$", "12a", False),
        (r"^\pL\p{Lu}\P{N}$", "éÉ!", True),
        (r"^\x41\x{1F600}\101$", "A\U0001f600A", True),
        (r"^\Qa.b*\E$", "a.b*", True),
        ("(?P<name>a)(?<other>b)", "ab", True),
        ("^a*?b+?$", "aab", True),
        ("(?U)a+", "a", True),
    ],
)
def test_a_pattern_matches_as_re2_does(pattern: str, text: str, expected: bool) -> None:
    assert Regexp(pattern).search(text) is expected


@pytest.mark.parametrize(
    "pattern",
    ["(", ")", "a**", "*", "[a", "[z-a]", "a{3,2}", "a{1001}", r"\1", r"(?=a)", r"(?<!a)", r"\k", "(?P<>a)", r"\p{Xx}",
     "\\", "(" * 200, "((a{100}){100}){100}", "a" * 3000, r"\x{110000}", "[[:nope:]]", "(?z)"],
)  # fmt: skip
def test_what_re2_refuses_is_no_pattern_and_says_why(pattern: str) -> None:
    assert problem(pattern) and compiled(pattern) is None
    assert not holds("regexp", "a", pattern)


def lines_run(action: Callable[[], object], most: int) -> int:
    """The lines of Python that an action runs: its work, whatever else the machine does; fails above `most`."""
    count = 0

    def counted(frame: FrameType, event: str, _: object) -> TraceFunction:
        nonlocal count
        count += 1
        if count > most:
            pytest.fail(f"more than {most} lines run")
        return counted

    before = sys.gettrace()
    sys.settrace(counted)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


PLACES_MAX, LINES_OF_PLACE = 1500, 20
"""Places of the programs of `HOSTILE`, and lines that the automaton runs for one of them, both with room to spare."""
HOSTILE = ("(a+)+$", "(a|a)*$", "(.*)*x", "(a?){500}a{500}$", "(x+x+)+y", "(?:(?:a*)*)*$b")


@pytest.mark.parametrize("pattern", HOSTILE)
def test_a_hostile_pattern_costs_at_most_its_size_for_each_character(pattern: str) -> None:
    for length in (30, 120):
        text = "a" * length + "!"
        most = (length + 2) * PLACES_MAX * LINES_OF_PLACE
        lines_run(lambda text=text: Regexp(pattern).search(text), most)  # type: ignore[misc]


def test_the_count_of_lines_ends_an_engine_that_tries_all_ways() -> None:
    def is_all_a(text: str) -> bool:
        """`(a+)+$` with backtracking."""
        return not text or any(text[:end] == "a" * end and is_all_a(text[end:]) for end in range(1, len(text) + 1))

    with pytest.raises(pytest.fail.Exception):
        lines_run(lambda: is_all_a("a" * 50 + "!"), 100_000)


def test_random_patterns_agree_with_pythons_own() -> None:
    random = Random(5)
    pieces = ("a", "b", "-", ".", "[ab]", "[^a]", r"\d", r"\w", r"\b", "1", "(?:a|b1)", "(a-)", "^", "$", "a*", "b+?",
              "(?:ab)?", "a{2}", "[a-z]{1,3}", "|", r"\W")  # fmt: skip
    for _ in range(3000):
        pattern = "".join(random.choice(pieces) for _ in range(random.randrange(1, 7)))
        text = "".join(random.choice("ab1-_ z") for _ in range(random.randrange(9)))
        expected = re.compile(pattern.replace("$", r"\Z"), re.ASCII).search(text) is not None
        assert Regexp(pattern).search(text) is expected, (pattern, text)


@pytest.mark.parametrize("pattern", ["^host-[0-9]+$", "", "a$", r"\bb", "^.?$", "(ab)+$"])
def test_many_texts_get_the_answers_that_each_gets_alone(pattern: str) -> None:
    random = Random(11)
    texts: list[str | None] = [f"host-{number}" for number in range(200)]
    texts += [None, "", "a" * TEXT_MAX, "a" * (TEXT_MAX + 1)]
    texts += ["".join(random.choice("ab- ") for _ in range(random.randrange(6))) for _ in range(300)]
    expected = [text is not None and Regexp(pattern).search(text) for text in texts]
    assert answers("regexp", pattern, texts) == expected
