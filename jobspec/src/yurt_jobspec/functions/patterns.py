"""Regular expressions of the RE2 kind on Python's engine.

Python can backtrack for a very long time where RE2 cannot, so patterns that invite it (a repeated group that itself repeats) and constructs
that RE2 lacks are refused, and texts are bounded.
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
_NESTED_REPEAT = re.compile(r"\([^()]*(?<!\\)[*+][^()]*\)(?:[*+]|\{\d*,)")
_CANNOT = "the pattern uses what regular expressions of this language do not have"


@lru_cache(maxsize=64)
def compile_pattern(pattern: str, argument: int) -> re.Pattern[str]:
    """The pattern, compiled. Raises FunctionError that blames the argument."""
    if _REFUSED.search(pattern):
        raise FunctionError(f"{_CANNOT}: no look-around, no back references", argument)
    if _NESTED_REPEAT.search(pattern):
        raise FunctionError("a repeated group must not itself hold a repetition", argument)
    translated = _NAMED_CLASS.sub(lambda found: _POSIX.get(found[1], found[0]), pattern)
    translated = translated.replace(r"\z", r"\Z").replace("(?<", "(?P<")
    try:
        return re.compile(translated, re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise FunctionError(f"invalid regular expression: {error}", argument) from None


def expand(template: str, found: re.Match[str]) -> str:
    """The replacement text with $1, $name and ${name} filled in; unknown groups are empty."""

    def group(reference: re.Match[str]) -> str:
        if reference[1]:
            return "$"
        name = reference[2] or reference[3]
        try:
            return found[int(name) if name.isdecimal() else name] or ""
        except (IndexError, KeyError):
            return ""

    return _REFERENCE.sub(group, template)
