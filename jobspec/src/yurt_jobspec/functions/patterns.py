"""Regular expressions in RE2's syntax on Python's engine.

Python can backtrack for a very long time where RE2 cannot. So a group may be repeated only if it holds neither a
repetition nor alternatives (that is where exponential time comes from), the length of the text is bounded by the
number of repetitions (that is where polynomial time comes from), and constructs that RE2 lacks are refused.
"""

from __future__ import annotations

import re
from functools import lru_cache

from .registry import FunctionError

_POSIX = {
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "alnum": "a-zA-Z0-9",
    "upper": "A-Z",
    "lower": "a-z",
    "space": r"\s",
    "punct": r"!-/:-@\[-`{-~",
    "word": r"\w",
    "xdigit": "0-9A-Fa-f",
    "blank": r" \t",
    "cntrl": r"\x00-\x1f\x7f",
    "graph": "!-~",
    "print": " -~",
}
_NAMED_CLASS = re.compile(r"\[:(\w+):\]")
_REFERENCE = re.compile(r"\$(?:(\$)|\{(\w+)\}|(\w+))")
_REFUSED = re.compile(r"\(\?(?:<?[=!]|P=|#|\()|(?<!\\)(?:\\\\)*\\[1-9]|[*+?}]\+")
_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|\[:\w+:\]|[^\]\\])*\]|\(\?:?|[()|*+]|\{\d*,?\d*\}", re.DOTALL)
MAX_TEXTS = (4 * 1024 * 1024, 100_000, 4_000)
"""Characters that a pattern with no, one, or more repetitions may be applied to."""
_CANNOT = "the pattern uses what regular expressions of this language do not have"


@lru_cache(maxsize=64)
def compile_pattern(pattern: str, argument: int) -> re.Pattern[str]:
    """The compiled pattern; raises FunctionError that names the argument."""
    if _REFUSED.search(pattern):
        raise FunctionError(f"{_CANNOT}: no look-around, no back references", argument)
    if _risky(pattern)[0]:
        raise FunctionError("a repeated group must hold neither a repetition nor alternatives", argument)
    translated = _NAMED_CLASS.sub(lambda found: _POSIX.get(found[1], found[0]), pattern)
    translated = translated.replace(r"\z", r"\Z").replace("(?<", "(?P<")
    try:
        return re.compile(translated, re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise FunctionError(f"invalid regular expression: {error}", argument) from None


def check_text(pattern: str, text: str) -> None:
    """Raise FunctionError for a text that is too long for the pattern."""
    most = MAX_TEXTS[min(_risky(pattern)[1], 2)]
    if len(text) > most:
        raise FunctionError(f"the text is too long for this pattern: at most {most} characters", 0)


def _risky(pattern: str) -> tuple[bool, int]:
    """Whether a repeated group contains a repetition or alternatives, and the number of repetitions."""
    groups = [False]
    closed = False
    repetitions = 0
    nested = False
    for found in _TOKEN.finditer(pattern):
        token = found[0]
        repeats = token in ("*", "+") or token.startswith("{")
        if repeats:
            nested |= closed and pattern[found.start() - 1] == ")"
            repetitions += 1
            groups[-1] = True
        closed = False
        if token.startswith("("):
            groups.append(False)
        elif token == "|":
            groups[-1] = True
        elif token == ")" and len(groups) > 1:
            closed = groups.pop()
            groups[-1] |= closed
    return nested, repetitions


def expand(template: str, found: re.Match[str]) -> str:
    """The replacement with $1, $name and ${name} substituted; unknown groups are empty."""

    def group(reference: re.Match[str]) -> str:
        if reference[1]:
            return "$"
        name = reference[2] or reference[3]
        try:
            return found[int(name) if name.isdecimal() else name] or ""
        except (IndexError, KeyError):
            return ""

    return _REFERENCE.sub(group, template)
