"""Frames of files and logs: JSON objects one after another, each with a piece of data in base64."""

from __future__ import annotations

import base64
import json
import sys
from collections import deque
from collections.abc import Iterator
from typing import Any

from yurt.api.http_client import ApiClient, Query

Json = dict[str, Any]

LINES_MAX = 1_000_000


def frames(api: ApiClient, path: str, query: Query) -> Iterator[Json]:
    """The frames as they come; a frame without data is a heartbeat."""
    decoder, buffer = json.JSONDecoder(), ""
    for piece in api.stream(path, query):
        buffer += piece.decode()
        while True:
            buffer = buffer.lstrip()
            if not buffer:
                break
            try:
                frame, end = decoder.raw_decode(buffer)
            except ValueError:
                break
            buffer = buffer[end:]
            yield frame


def data_of(frame: Json) -> bytes:
    """The bytes of a frame."""
    return base64.b64decode(frame.get("Data") or "")


def print_stream(api: ApiClient, path: str, query: Query, *, skip_lines_to: int | None = None) -> bool:
    """Print the data of all frames, of the first piece only the last lines, where a number is given; was there any."""
    is_first = True
    for frame in frames(api, path, query):
        data = data_of(frame)
        if not data:
            continue
        if is_first and skip_lines_to is not None:
            data = b"".join(data.splitlines(keepends=True)[-skip_lines_to:]) if skip_lines_to else b""
        is_first = False
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    return not is_first


def last_lines(api: ApiClient, path: str, query: Query, count: int) -> bytes:
    """The last lines of a whole stream."""
    kept: deque[bytes] = deque(maxlen=min(max(count, 0), LINES_MAX))
    rest = b""
    for frame in frames(api, path, query):
        rest += data_of(frame)
        *whole, rest = rest.split(b"\n")
        kept.extend(line + b"\n" for line in whole)
    if rest:
        kept.append(rest)
    return b"".join(kept)
