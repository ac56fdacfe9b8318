"""A list query: filter, order, fields and counts."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from yurt.readmodels.kinds import RowKind
from yurt.sdk.errors import Invalid
from yurt.sdk.value import Value

PER_PAGE: Final = 100
PER_PAGE_MAX: Final = 10_000
SORTS_MAX: Final = 3
FIELDS_MAX: Final = 64
WHERES_MAX: Final = 256
FACETS_MAX: Final = 16
SEARCH_MAX: Final = 256
TOKEN_MAX: Final = 8_192
BAD_TOKEN: Final = "next_token is not one that this list gave, with the same sort"

_encode = msgspec.json.Encoder().encode


class Sort(Value):
    """A field that orders rows."""

    field: str
    is_reversed: bool = False


class Query(Value):
    """A parsed query; all names are known fields."""

    fields: tuple[str, ...]
    sort: tuple[Sort, ...] = ()
    where: Mapping[str, frozenset[str]] = {}
    """Alternatives by field, as texts."""
    words: tuple[str, ...] = ()
    """The words of a search, in lower case."""
    filter: str = ""
    facets: tuple[str, ...] = ()
    per_page: int = PER_PAGE
    after: tuple[Any, ...] | None = None
    """The sorted values and the key of the last row of the page before."""


class Asked(Value):
    """The parameters of a request, as text."""

    fields: str = ""
    sort: str = ""
    where: tuple[str, ...] = ()
    search: str = ""
    filter: str = ""
    facets: str = ""
    per_page: int = 0
    next_token: str = ""


def parse_query(kind: RowKind[Any], asked: Asked) -> Query:
    """The query; raises Invalid with its problems."""
    fields = _names(kind, "fields", asked.fields, FIELDS_MAX) or kind.defaults
    sort = tuple(
        Sort(field=name.removeprefix("-"), is_reversed=name.startswith("-"))
        for name in _names(kind, "sort", asked.sort, SORTS_MAX, prefix="-")
    )
    if not 0 <= asked.per_page <= PER_PAGE_MAX:
        raise Invalid(f"per_page is {asked.per_page}; {PER_PAGE_MAX} is the largest page")
    if len(asked.search) > SEARCH_MAX:
        raise Invalid(f"search is longer than {SEARCH_MAX} characters")
    return Query(
        fields=fields,
        sort=sort,
        where=_alternatives(kind, asked.where),
        words=tuple(asked.search.casefold().split()),
        filter=asked.filter,
        facets=_names(kind, "facets", asked.facets, FACETS_MAX),
        per_page=asked.per_page or PER_PAGE,
        after=_opened(asked.next_token, len(sort) + len(kind.key)) if asked.next_token else None,
    )


def _names(kind: RowKind[Any], what: str, text: str, count_max: int, *, prefix: str = "") -> tuple[str, ...]:
    """Comma-separated names of fields; an empty text gives none."""
    names = tuple(dict.fromkeys(each.strip() for each in text.split(","))) if text else ()
    if len(names) > count_max:
        raise Invalid(f"{what} names {len(names)} fields; {count_max} is the most")
    for name in names:
        kind.field(name.removeprefix(prefix))
    return names


def _alternatives(kind: RowKind[Any], texts: Iterable[str]) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for number, text in enumerate(texts):
        name, colon, value = text.partition(":")
        if not colon:
            raise Invalid(f'where "{text[:64]}" is not Field:value')
        if number >= WHERES_MAX:
            raise Invalid(f"where is given more than {WHERES_MAX} times")
        kind.field(name)
        found[name] = found.get(name, frozenset()) | {value}
    return found


def token_of(values: tuple[Any, ...]) -> str:
    """The token of a page that ends with a row of these values."""
    return base64.urlsafe_b64encode(_encode(values)).rstrip(b"=").decode()


def _opened(token: str, length: int) -> tuple[Any, ...]:
    try:
        if len(token) > TOKEN_MAX:
            raise Invalid(BAD_TOKEN)
        raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        found = msgspec.json.decode(raw, type=tuple[str | int | bool | list[str] | None, ...])
    except (binascii.Error, ValueError, msgspec.DecodeError, RecursionError):
        raise Invalid(BAD_TOKEN) from None
    if len(found) != length:
        raise Invalid(BAD_TOKEN)
    return tuple(tuple(each) if isinstance(each, list) else each for each in found)
