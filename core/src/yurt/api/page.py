"""Pages of a sorted list: start at a token, apply the filter, stop after a page, return the next token.

Rows are sorted by a key, either (create index, id) or (namespace, id). The token is the key of the page's first
row, written as `<first>.<id>`, so that rows inserted or deleted meanwhile move no other row to another page
(invariant A6). A token is sent in a header, so control characters, spaces, characters beyond ASCII and `%` are written
as `%XX`: clients disagree about them, or a header cannot hold them. All other tokens are the same as Nomad's.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import merge
from itertools import islice, repeat
from typing import Any, Final, Generic, Protocol, TypeVar
from urllib.parse import quote, unquote

import msgspec

from yurt.sdk.errors import Invalid

R = TypeVar("R")
W = TypeVar("W")
Key = tuple[Any, str]

STEP = 200
"""Rows that are rendered in one go, a few milliseconds at most."""
GATHERED = 2_000
"""Rows examined in one step before any is rendered, and the longest sorted run."""
FORGOTTEN = 10
"""Sorted runs that are let go of in one go."""
SLICE_S = 0.01
"""How long one go may last whose steps cost what a user's filter costs."""
_PLAIN: Final = "".join(map(chr, range(0x21, 0x7F))).replace("%", "")
"""The characters of a token that need no escape."""
_IS_PLAIN: Final = re.compile(f"[{re.escape(_PLAIN)}]*").fullmatch


class Stopwatch:
    """Measures the time of a slice whose steps differ in cost."""

    def __init__(self) -> None:
        self._end = time.perf_counter() + SLICE_S

    @property
    def is_over(self) -> bool:
        """Whether the slice has used up its time."""
        return time.perf_counter() > self._end


class PageOptions(Protocol):
    """The requested page."""

    @property
    def filter(self) -> str: ...

    @property
    def reverse(self) -> bool: ...

    @property
    def per_page(self) -> int: ...

    @property
    def next_token(self) -> str: ...


def in_order(rows: Iterable[R], key: Callable[[R], Any]) -> Iterator[R | None]:
    """Yields None once per row, then the sorted rows, so that a caller can pause between steps."""
    rest, runs = iter(rows), list[list[R]]()
    while run := list(islice(rest, GATHERED)):
        run.sort(key=key)
        runs.append(run)
        yield from repeat(None, len(run))
    yield from merge(*runs, key=key)


class Page(msgspec.Struct, frozen=True):
    """Rows in the shape of the API, and the token of the next page ("" for none)."""

    rows: list[dict[str, Any]]
    next_token: str


def by_index(row: Any) -> Key:
    """Oldest first."""
    return (row.create_index, row.id)


def by_modify_index(row: Any) -> Key:
    """Longest unchanged first."""
    return (row.modify_index, row.id)


def by_name(row: Any) -> Key:
    """By namespace, then id."""
    return (row.namespace, row.id)


class Stubs(Generic[R]):
    """Writes rows in their short form, while filters see them whole."""

    __slots__ = ("_render", "whole")

    def __init__(self, render: Callable[[R], dict[str, Any]], whole: Callable[[R], Mapping[str, Any]]) -> None:
        self._render = render
        self.whole = whole

    def __call__(self, row: R) -> dict[str, Any]:
        """The short form."""
        return self._render(row)


class Pager(Generic[R, W]):
    """A page under construction: `step` examines some rows, so that its caller can yield in between.

    First the rows are gathered in sorted runs, of which a page without a filter keeps no more than it can show: no
    list is ever sorted as a whole. Then the runs are merged as far as rows are rendered. Runs are dicts of numbers and
    rows, which Python's collector does not look at: a list, or a key next to each row, it would, a million at once.
    """

    def __init__(
        self,
        rows: Iterable[R],
        render: Callable[[R], W],
        *,
        key: Callable[[R], Key],
        options: PageOptions,
        is_reversed: bool | None = None,
        is_selected: Callable[[R], bool] | None = None,
    ) -> None:
        """`is_selected` selects the rows that belong to the list; finding few among many is divided into steps too.

        A filter looks at what `render` gives, or at what its attribute `whole` gives where it has one (`Stubs`).
        """
        self._is_selected = is_selected
        self._reverse = options.reverse if is_reversed is None else is_reversed
        self._token = options.next_token
        self._start: Key | None = None
        self._rows = iter(rows)
        self._runs: list[dict[int, R]] = []
        self._ordered: Iterator[R] | None = None
        self._render = render
        self._key = key
        self._keep = compiled_filter(options.filter) if options.filter else None
        self._per_page = options.per_page
        self._is_short = 0 < options.per_page <= GATHERED and self._keep is None
        self._sent_count = 0
        self.found: list[W] = []
        """Rendered rows that nobody has taken yet."""
        self.next_token = ""

    def take(self) -> list[W]:
        """The rows found since the last call."""
        found, self.found = self.found, []
        self._sent_count += len(found)
        return found

    def forget(self) -> bool:
        """Release some of the gathered rows; False when none is left. Releasing a million rows at once is slow."""
        self._ordered = iter(())
        del self._runs[-FORGOTTEN:]
        return bool(self._runs)

    def step(self, count: int) -> bool:
        """Gather more rows, or look at `count` more of them; True when the page is full or the rows are over.

        A filter costs what its author likes: with one, a step may end early.
        """
        if self._ordered is None:
            self._gather()
        if self._ordered is None:
            return False
        watch = Stopwatch() if self._keep is not None else None
        whole: Callable[[R], Mapping[str, Any]] | None = getattr(self._render, "whole", None)
        for _ in range(count):
            if watch is not None and watch.is_over:
                return False
            row = next(self._ordered, None)
            if row is None:
                return True
            wire: Any = None
            if self._keep is not None:
                seen: Any = whole(row) if whole is not None else (wire := self._render(row))
                if not self._keep(seen):
                    continue
            if self._per_page and self._sent_count + len(self.found) == self._per_page:
                first, last = self._key(row)
                self.next_token = escaped_token(f"{first}.{last}")
                return True
            self.found.append(self._render(row) if wire is None else wire)
        return False

    def _gather(self) -> None:
        """Add one sorted run; after the last row the runs are ready to be merged."""
        rows, key = list(islice(self._rows, GATHERED)), self._key
        is_last = len(rows) < GATHERED
        run = rows if self._is_selected is None else list(filter(self._is_selected, rows))
        if self._token and run:
            if self._start is None:
                self._start = _parse_token(self._token, key(run[0]))
            start = self._start
            run = [row for row in run if (key(row) <= start if self._reverse else key(row) >= start)]
        if self._is_short and self._runs:
            run += self._runs.pop().values()
        run.sort(key=key, reverse=self._reverse)
        if self._is_short:
            del run[self._per_page + 1 :]
        if run:
            self._runs.append(dict(enumerate(run)))
        if is_last:
            self._ordered = merge(*(run.values() for run in self._runs), key=key, reverse=self._reverse)


def make_page(
    rows: Iterable[R],
    render: Callable[[R], dict[str, Any]],
    *,
    key: Callable[[R], Key],
    options: PageOptions,
    is_reversed: bool | None = None,
) -> Page:
    """One page of `rows`, all at once."""
    pager = Pager(rows, render, key=key, options=options, is_reversed=is_reversed)
    while not pager.step(STEP):
        pass
    return Page(pager.found, pager.next_token)


def compiled_filter(text: str) -> Callable[[Any], bool]:
    """Whether a row satisfies the filter expression; raises Invalid for one that is not well-formed."""
    from yurt.filters import compile_filter

    return compile_filter(text)


def escaped_token(token: str) -> str:
    """A token as every header carries it, and every client reads it."""
    return token if _IS_PLAIN(token) else quote(token, safe=_PLAIN, errors="surrogatepass")


def read_token(token: str) -> str:
    """A token as it was before its characters were escaped."""
    return unquote(token, errors="surrogatepass") if "%" in token else token


def _parse_token(token: str, like: Key) -> Key:
    first, dot, last = read_token(token).partition(".")
    if not isinstance(like[0], int):
        return (first, last)
    if not dot or not (first.isascii() and first.isdigit()) or len(first) > 19:
        raise Invalid(f'Invalid next_token "{token[:64]}"')
    return (int(first), last)
