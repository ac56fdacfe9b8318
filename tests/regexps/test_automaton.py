"""Regular expressions are RE2's, and no pattern takes long."""

from __future__ import annotations

import re
import time
from random import Random

import pytest
from yurt.regexps import TEXT_MAX, Regexp, compiled, problem
from yurt.scheduler.constraints.operators import answers, holds


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


def test_hostile_patterns_take_no_time() -> None:
    hostile = ("(a+)+$", "(a|a)*$", "(.*)*x", "(a?){500}a{500}$", "(x+x+)+y", "(?:(?:a*)*)*$b")
    started = time.process_time()
    for pattern in hostile:
        for length in (50, 500, 4000):
            assert not Regexp(pattern).search("a" * length + "!") or "x" not in pattern
    assert time.process_time() - started < 5


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
