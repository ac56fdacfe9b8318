"""The JSON of rows, encoded once for each row and form.

Rows never change: a changed row is another object. So the text of a row in a form follows from the row's identity, and
a list of which one row has changed encodes one row. An entry holds its row, so that no other object gets its identity
meanwhile. The least recently used texts are dropped beyond a number of bytes, and those that nobody asked for within
`IDLE_S`: a deleted row is asked for no more, and must not stay in memory, nor the job of a deleted allocation.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeAlias

from yurt.api.encode import encode_builtins

TEXTS_BYTES_MAX: Final = 16 * 1024 * 1024
"""Cached bytes of row texts; with the rows that they keep alive, it is two to three times as much."""
ENTRY_BYTES: Final = 400
"""The memory of an entry in addition to its text, bytes."""
TEXT_BYTES_MAX: Final = 512 * 1024
"""Longer texts of single rows are not cached."""
IDLE_S: Final = 60.0
"""A text unused for this long is dropped within the same time again, once another text is cached."""


class RowForm:
    """A JSON form of rows: a function of the row, related rows and flags alone.

    It must not look at anything else: what it gives is kept, and shown to every caller who may see the row.
    """

    __slots__ = ("_flags", "render")

    def __init__(self, render: Callable[..., Any], flags: tuple[bool, ...]) -> None:
        self.render = render
        self._flags = flags

    def wire(self, *rows: Any) -> Any:
        """The row in the shape of the API."""
        return self.render(*rows, *self._flags)

    def text(self, *rows: Any) -> bytes:
        """The row's JSON, encoded now."""
        return encode_builtins(self.wire(*rows))


@cache
def row_form(render: Callable[..., Any], *flags: bool) -> RowForm:
    """The form of a function of a module; the same object for the same function and flags."""
    return RowForm(render, flags)


Entries: TypeAlias = OrderedDict[tuple[int, ...], tuple[Any, bytes]]


class RowTexts:
    """Texts by row and form; the least recently used ones are dropped."""

    def __init__(self, bytes_max: int = TEXTS_BYTES_MAX, *, now_s: Callable[[], float] = lambda: 0.0) -> None:
        """`now_s` is a monotonic clock; without one texts do not expire."""
        self._bytes_max = bytes_max
        self._now_s = now_s
        self._since_s = now_s()
        self._entries: Entries = OrderedDict()
        """Those that were asked for since `_since_s`."""
        self._idle: Entries = OrderedDict()
        """Those that were asked for in the `IDLE_S` before, and not since."""
        self.bytes = 0
        """Of all entries, their own cost included."""

    def text(self, form: RowForm, row: Any) -> bytes:
        """The JSON of a row in a form that needs this row alone."""
        key = (id(form), id(row))
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
            return found[1]
        return self._again(key) or self._put(key, row, form.text(row))

    def text_with_related(self, form: RowForm, rows: tuple[Any, ...]) -> bytes:
        """The JSON of a row in a form that also needs related rows, of which some may be None."""
        key = (id(form), *map(id, rows))
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
            return found[1]
        return self._again(key) or self._put(key, rows, form.text(*rows))

    def __len__(self) -> int:
        return len(self._entries) + len(self._idle)

    def _again(self, key: tuple[int, ...]) -> bytes:
        """Move an idle text back to those in use; b"" for none."""
        found = self._idle.pop(key, None)
        if found is None:
            return b""
        self._entries[key] = found
        return found[1]

    def _drop_idle(self) -> None:
        """Drop unused texts, at most twice within `IDLE_S`."""
        now_s = self._now_s()
        if now_s - self._since_s < IDLE_S:
            return
        is_long_ago = now_s - self._since_s >= 2 * IDLE_S
        self._idle, self._entries = OrderedDict() if is_long_ago else self._entries, OrderedDict()
        self._since_s = now_s
        self.bytes = sum(len(text) + ENTRY_BYTES for _, text in self._idle.values())

    def _put(self, key: tuple[int, ...], holds: Any, text: bytes) -> bytes:
        size = len(text)
        if size > TEXT_BYTES_MAX:
            return text
        self._drop_idle()
        self._entries[key] = (holds, text)
        self.bytes += size + ENTRY_BYTES
        while self.bytes > self._bytes_max:
            _, (_, dropped) = (self._idle or self._entries).popitem(last=False)
            self.bytes -= len(dropped) + ENTRY_BYTES
        return text
