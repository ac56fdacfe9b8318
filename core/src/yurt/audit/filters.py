"""Filters that omit lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from yurt.acl.globs import STAR, matcher
from yurt.audit.settings import FilterSettings

Matches = Callable[[str], bool]


class Filters:
    """A line is omitted when all three parts of one filter match it; an empty part matches nothing."""

    def __init__(self, settings: Iterable[FilterSettings]) -> None:
        self._filters = tuple(
            (_any_of(each.operations, str.upper), _any_of(each.stages, str), _any_of(each.endpoints, str))
            for each in settings
        )

    def omits(self, operation: str, stage: str, endpoint: str) -> bool:
        """Whether a line about this method, stage and path is omitted."""
        return any(
            is_operation(operation) and is_stage(stage) and is_endpoint(endpoint)
            for is_operation, is_stage, is_endpoint in self._filters
        )


def _any_of(patterns: Iterable[str], spelled: Callable[[str], str]) -> Matches:
    globs = tuple(matcher(each) for each in patterns if STAR in each)
    exact = frozenset(spelled(each) for each in patterns if STAR not in each)

    def matches(text: str) -> bool:
        return text in exact or any(glob(text) for glob in globs)

    return matches
