"""Regular expressions in Go's syntax, by Python's engine.

Python's engine backtracks, so a hostile pattern may never end. The rendering process has a time limit: such a pattern
fails only its own template.
"""

from __future__ import annotations

import re
from functools import lru_cache

from yurt.client.templates.functions.arguments import text
from yurt.gotemplate import EvaluationFailure

_CLASSES = {
    "[:alnum:]": "0-9A-Za-z", "[:alpha:]": "A-Za-z", "[:ascii:]": "\\x00-\\x7f", "[:blank:]": "\\t ",
    "[:cntrl:]": "\\x00-\\x1f\\x7f", "[:digit:]": "0-9", "[:graph:]": "!-~", "[:lower:]": "a-z", "[:print:]": " -~",
    "[:punct:]": "!-/:-@\\[-`{-~", "[:space:]": "\\t\\n\\v\\f\\r ", "[:upper:]": "A-Z", "[:word:]": "0-9A-Za-z_",
    "[:xdigit:]": "0-9A-Fa-f",
}  # fmt: skip
_CLASS = re.compile(r"\[:[a-z]+:\]")
_NOT_RE2 = re.compile(r"\(\?<?[=!]|\(\?\(|\\[1-9]")
_GROUP = re.compile(r"\$(?:\$|([A-Za-z0-9_]+)|\{([A-Za-z0-9_]+)\})")
PATTERN_MAX = 10_000


@lru_cache(maxsize=128)
def pattern(expression: str) -> re.Pattern[str]:
    """The pattern, compiled."""
    if len(expression) > PATTERN_MAX:
        raise EvaluationFailure(f"the pattern is longer than {PATTERN_MAX} characters")
    if _NOT_RE2.search(expression.replace("\\\\", "")):
        raise EvaluationFailure(
            f"error parsing regexp: {expression!r} has a look-around or a back-reference, which Go's patterns lack"
        )
    plain = _CLASS.sub(lambda match: _CLASSES.get(match[0], match[0]), expression).replace("\\z", "\\Z")
    plain = plain.replace("(?U)", "").replace("(?<", "(?P<")
    try:
        return re.compile(plain, re.ASCII if "\\" in plain else 0)
    except (re.error, OverflowError, RecursionError) as error:
        raise EvaluationFailure(f"error parsing regexp: {expression!r}: {error}") from None


def expand(match: re.Match[str], replacement: str) -> str:
    """Go's `$1`, `${name}` and `$$` in a replacement."""

    def group(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        if not name:
            return "$"
        try:
            return match[int(name) if name.isdigit() else name] or ""
        except IndexError:
            return ""

    return _GROUP.sub(group, replacement)


def regex_match(expression: object, subject: object) -> bool:
    """Whether the pattern matches anywhere."""
    return pattern(text(expression)).search(text(subject)) is not None


def replace_all(expression: object, replacement: object, subject: object) -> str:
    """All matches replaced; `$1` is a group."""
    return pattern(text(expression)).sub(lambda match: expand(match, text(replacement)), text(subject))


def find(expression: object, subject: object) -> str:
    """The first match; empty for none."""
    found = pattern(text(expression)).search(text(subject))
    return found[0] if found else ""


def find_all(expression: object, subject: object, most: object) -> list[str]:
    """The matches, at most this many; -1 for all."""
    found = [match[0] for match in pattern(text(expression)).finditer(text(subject))]
    return found if not isinstance(most, int) or most < 0 else found[:most]


def split(expression: object, subject: object, most: object) -> list[str]:
    """The text between matches."""
    limit = most if isinstance(most, int) else -1
    if limit == 0:
        return []
    pieces: list[str] = []
    at = 0
    body = text(subject)
    for match in pattern(text(expression)).finditer(body):
        if 0 < limit <= len(pieces) + 1:
            break
        if match.end() == 0:
            continue
        pieces.append(body[at : match.start()])
        at = match.end()
    return [*pieces, body[at:]]
