"""Encodes long JSON lists and objects in pieces, so that no single large text is built.

Encoding a long list at once, putting a hundred megabytes together and indenting them each take the time of many
requests. Who makes the pieces does other things between them. Put together they are the text that `encode_builtins`
gives for the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from yurt.api.encode import encode_builtins, pretty_json

PIECE_BYTES: Final = 1 << 16
"""Smaller pieces are put together."""
_INDENT: Final = 4


class Pieces:
    """Bytes in order; small pieces are joined on arrival."""

    def __init__(self) -> None:
        self._whole: list[bytes] = []
        self._small: list[bytes] = []
        self._small_bytes = 0

    def add(self, *pieces: bytes) -> None:
        """Append to the text."""
        for piece in pieces:
            self._small.append(piece)
            self._small_bytes += len(piece)
        if self._small_bytes >= PIECE_BYTES:
            self._join()

    def taken(self) -> list[bytes]:
        """Remove and return everything."""
        self._join()
        whole, self._whole = self._whole, []
        return whole

    def _join(self) -> None:
        if self._small:
            self._whole.append(self._small[0] if len(self._small) == 1 else b"".join(self._small))
        self._small, self._small_bytes = [], 0


class JsonList:
    """A list to which elements are added in groups; `depth` is its nesting level."""

    def __init__(self, *, pretty: bool = False, depth: int = 0) -> None:
        self._pretty = pretty
        self._depth = depth
        self._pieces = Pieces()
        self._separator = b"["

    def add(self, elements: Sequence[Any]) -> None:
        """Append elements in the shape of the API, encoded in one go."""
        if elements:
            self._put(_inside(encode_builtins(elements), pretty=self._pretty, depth=self._depth))

    def add_texts(self, elements: Sequence[bytes]) -> None:
        """Append elements that are encoded already."""
        if elements:
            text = b",".join(elements)
            pretty, depth = self._pretty, self._depth
            self._put(_inside(b"[" + text + b"]", pretty=True, depth=depth) if pretty else text)

    def add_object(self, fields: Mapping[str, Any]) -> None:
        """Append an object that may have a `JsonList` of depth + 2 for a field."""
        self._put(_line(self._depth + 1, pretty=self._pretty))
        for piece in _object(fields, pretty=self._pretty, depth=self._depth + 1):
            self._pieces.add(piece)

    def taken(self) -> list[bytes]:
        """The pieces of the list, which is complete; one of depth 0 that is indented ends its line."""
        if self._separator == b"[":
            self._pieces.add(b"[]")
        else:
            self._pieces.add(_line(self._depth, pretty=self._pretty), b"]")
        if self._pretty and not self._depth:
            self._pieces.add(b"\n")
        return self._pieces.taken()

    def _put(self, text: bytes) -> None:
        self._pieces.add(self._separator, text)
        self._separator = b","


def object_pieces(fields: Mapping[str, Any], *, pretty: bool = False) -> list[bytes]:
    """An object of which some fields may be a `JsonList` of depth 1."""
    pieces = Pieces()
    for piece in _object(fields, pretty=pretty, depth=0):
        pieces.add(piece)
    if pretty:
        pieces.add(b"\n")
    return pieces.taken()


def _object(fields: Mapping[str, Any], *, pretty: bool, depth: int) -> Iterator[bytes]:
    yield b"{"
    for number, (is_list, names) in enumerate(groupby(sorted(fields), lambda name: isinstance(fields[name], JsonList))):
        yield b"," if number else b""
        if is_list:
            yield from _lists(names, fields, pretty=pretty, depth=depth)
        else:
            plain = encode_builtins({name: fields[name] for name in names})
            yield _inside(plain, pretty=pretty, depth=depth)
    yield _line(depth, pretty=pretty) + b"}"


def _lists(names: Iterable[str], fields: Mapping[str, JsonList], *, pretty: bool, depth: int) -> Iterator[bytes]:
    for number, name in enumerate(names):
        yield b"," if number else b""
        yield _line(depth + 1, pretty=pretty) + encode_builtins(name) + (b": " if pretty else b":")
        yield from fields[name].taken()


def _inside(text: bytes, *, pretty: bool, depth: int) -> bytes:
    """The text between the brackets of a list or an object of that depth."""
    if not pretty:
        return text[1:-1]
    shown = pretty_json(text)[1:-3]
    return shown.replace(b"\n", _line(depth, pretty=True)) if depth else shown


def _line(depth: int, *, pretty: bool) -> bytes:
    """A line break with the indentation of that depth, in indented output."""
    return b"\n" + b" " * (_INDENT * depth) if pretty else b""
