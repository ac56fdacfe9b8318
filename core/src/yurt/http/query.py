"""The query parameters that every route shares, read once and checked with Nomad's texts."""

from __future__ import annotations

from collections.abc import Mapping

from yurt.http.errors import Refused
from yurt.sdk.value import NANOSECONDS, Value, parse_duration

WAIT_DEFAULT_S = 300.0
WAIT_MAX_S = 300.0
INDEX_MAX = (1 << 63) - 1
PER_PAGE_MAX = (1 << 31) - 1
INDEX_ERROR = "Invalid index"
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


class ReadOptions(Value):
    """How to read: namespace, prefix, blocking, paging, filter."""

    namespace: str = "default"
    prefix: str = ""
    index: int = 0
    wait_s: float = WAIT_DEFAULT_S
    per_page: int = 0
    next_token: str = ""
    filter: str = ""
    reverse: bool = False
    stale: bool = False
    pretty: bool = False
    region: str = ""

    @property
    def is_all_namespaces(self) -> bool:
        """Whether the wildcard namespace was requested."""
        return self.namespace == "*"

    def sees(self, namespace: str) -> bool:
        """Whether objects of that namespace are requested."""
        return self.namespace in ("*", namespace)


NO_OPTIONS = ReadOptions()
"""The options of a request without a query."""


def read_options(query: Mapping[str, str], *, index_error: str = INDEX_ERROR) -> ReadOptions:
    """The options in a query; raises Refused (400) with Nomad's text."""
    if not query:
        return NO_OPTIONS
    return ReadOptions(
        namespace=query.get("namespace") or "default",
        prefix=query.get("prefix", ""),
        index=_index(query.get("index", ""), index_error),
        wait_s=_wait(query.get("wait", "")),
        per_page=_per_page(query.get("per_page", "")),
        next_token=query.get("next_token", ""),
        filter=query.get("filter", ""),
        reverse=query.get("reverse") == "true",
        stale=is_stale(query),
        pretty="pretty" in query and query["pretty"] != "0",
        region=query.get("region", ""),
    )


def flag(query: Mapping[str, str], name: str, *, default: bool = False, code: int = 400) -> bool:
    """A boolean parameter; absent or empty gives the default."""
    text = query.get(name, "")
    if not text:
        return default
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise Refused(code, f'Failed to parse value of "{name}" ("{text[:64]}") as a bool: expected true or false')


def number(query: Mapping[str, str], name: str) -> int | None:
    """An integer parameter, or None when it is absent."""
    text = query.get(name, "")
    if not text:
        return None
    value = _int(text)
    if value is None:
        raise Refused(400, f'Failed to parse value of "{name}" ("{text[:64]}") as an integer')
    return value


def _int(text: str) -> int | None:
    digits = text[1:] if text[0] in "+-" else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
        return None
    value = int(text)
    return value if abs(value) <= INDEX_MAX else None


def _index(text: str, error: str) -> int:
    if not text:
        return 0
    value = _int(text)
    if value is None or value < 0 or text[0] == "+":
        raise Refused(400, error)
    return value


def _wait(text: str) -> float:
    if not text:
        return WAIT_DEFAULT_S
    try:
        seconds = parse_duration(text) / NANOSECONDS
    except ValueError:
        raise Refused(400, "Invalid wait time") from None
    return min(seconds, WAIT_MAX_S) if seconds > 0 else WAIT_DEFAULT_S


def _per_page(text: str) -> int:
    if not text:
        return 0
    value = _int(text)
    if value is None or not -PER_PAGE_MAX <= value <= PER_PAGE_MAX:
        raise Refused(400, "Expect a number for `per_page` query string parameter")
    return max(value, 0)


def is_stale(query: Mapping[str, str]) -> bool:
    """Whether any server may answer from its own state; raises Refused (400)."""
    if "stale" not in query:
        return False
    text = query["stale"]
    if text and text not in _TRUE | _FALSE:
        raise Refused(400, "Expect `true` or `false` for `stale` query string parameter")
    return text not in _FALSE
