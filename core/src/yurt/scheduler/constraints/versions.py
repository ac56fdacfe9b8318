"""Version constraints: `>= 1.2, < 2`, `~> 1.2.3`, `!= 1.4`.

`version` reads versions generously (a leading v, any number of parts) and lets a pre-release satisfy only a
constraint that names a pre-release of the same version. `~>` lets the last part that is written grow, so that `~> 4`
admits 5.0; with a pre-release it admits pre-releases alone. `semver` reads strict Semantic Versioning 2.0, where
1.2.3-beta simply comes before 1.2.3.
"""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

CACHE = 1024
PESSIMISTIC = "~>"
_LOOSE = re.compile(r"v?([0-9]+(?:\.[0-9]+)*)(?:-?([0-9A-Za-z~][0-9A-Za-z.~-]*))?(?:\+[0-9A-Za-z.~-]+)?")
_STRICT = re.compile(r"v?([0-9]+(?:\.[0-9]+){0,2})(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z.-]+)?")
_CONSTRAINT = re.compile(r"\s*(=|!=|>=|<=|>|<|~>|)\s*([^\s=<>!~]\S*)\s*")
_DIGITS_MAX = 18


class ParsedVersion(msgspec.Struct, frozen=True):
    """Numeric parts, without trailing zeros after the third, and the pre-release text."""

    parts: tuple[int, ...]
    prerelease: str
    part_count: int
    """The number of parts in the text."""

    @property
    def order(self) -> tuple[tuple[int, ...], tuple[tuple[int, int, str], ...]]:
        """Compares versions: a release sorts after all of its pre-releases."""
        if not self.prerelease:
            return self.parts, ((2, 0, ""),)
        pieces = self.prerelease.split(".")
        return self.parts, tuple(
            (0, int(piece), "") if piece.isascii() and piece.isdigit() and len(piece) <= _DIGITS_MAX else (1, 0, piece)
            for piece in pieces
        )


def is_version_within(version: str, constraints: str, *, strict: bool) -> bool:
    """Whether a version satisfies all comma-separated constraints."""
    parsed, required = _version(version.strip(), strict), _constraints(constraints, strict)
    return (
        parsed is not None
        and required is not None
        and all(_meets(parsed, op, than, strict=strict) for op, than in required)
    )


def is_constraint(text: str, *, strict: bool) -> bool:
    """Whether a text is valid as comma-separated constraints."""
    return _constraints(text, strict) is not None


@lru_cache(maxsize=CACHE)
def _version(text: str, strict: bool) -> ParsedVersion | None:
    match = (_STRICT if strict else _LOOSE).fullmatch(text)
    if match is None or len(text) > 256:
        return None
    numbers = match[1].split(".")
    if any(len(number) > _DIGITS_MAX for number in numbers):
        return None
    parts = [int(number) for number in numbers]
    parts.extend([0] * (3 - len(parts)))
    while len(parts) > 3 and parts[-1] == 0:
        parts.pop()
    return ParsedVersion(tuple(parts), match[2] or "", len(numbers))


@lru_cache(maxsize=CACHE)
def _constraints(text: str, strict: bool) -> tuple[tuple[str, ParsedVersion], ...] | None:
    parsed = []
    for part in text.split(","):
        match = _CONSTRAINT.fullmatch(part)
        version = _version(match[2], strict) if match is not None else None
        if match is None or version is None:
            return None
        parsed.append((match[1] or "=", version))
    return tuple(parsed)


def _meets(version: ParsedVersion, operand: str, than: ParsedVersion, *, strict: bool) -> bool:
    if operand in ("=", "!="):
        return (version.order == than.order) == (operand == "=")
    if not strict and not _is_prerelease_allowed(version, than):
        return False
    if operand == PESSIMISTIC:
        return _is_close(version, than, strict=strict)
    return {
        ">": version.order > than.order,
        ">=": version.order >= than.order,
        "<": version.order < than.order,
        "<=": version.order <= than.order,
    }[operand]


def _is_close(version: ParsedVersion, than: ParsedVersion, *, strict: bool) -> bool:
    """Whether only the last part of the constraint is exceeded; a version with fewer parts does not match."""
    fixed = than.part_count - 1
    if than.prerelease and not version.prerelease and not strict:
        return False
    return (
        version.order >= than.order
        and version.parts[:fixed] == than.parts[:fixed]
        and max(3, version.part_count) >= than.part_count
    )


def _is_prerelease_allowed(version: ParsedVersion, than: ParsedVersion) -> bool:
    if not version.prerelease:
        return True
    return bool(than.prerelease) and version.parts == than.parts
