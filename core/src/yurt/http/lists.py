"""Paging of lists, and checks of UUIDs and their prefixes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aiohttp import web

from yurt.api.page import STEP, Pager
from yurt.api.pieces import JsonList
from yurt.api.uuids import HEX_DIGITS, uuid_prefix
from yurt.http.answer_cache import AnswerSlot
from yurt.http.call import Call, read_headers
from yurt.http.errors import Refused
from yurt.http.pieces import CachedResponse, body_of

UUID_LENGTH = 36


Write = Callable[[JsonList, list[dict[str, Any]]], Awaitable[None]]


async def page_answer(
    call: Call,
    pager: Pager[Any, Any],
    index: int,
    *,
    write: Write | None = None,
    is_encoded: bool = False,
    slot: AnswerSlot | None = None,
) -> web.Response:
    """The page as an answer; a long list lets other requests through between its steps.

    `write` adds rows to the answer where that takes turns of its own. `is_encoded`: the pager gives the texts of rows.
    The answer is kept in `slot`.
    """
    written, turns, is_done = JsonList(pretty=call.options.pretty), call.turns, False
    while not is_done:
        is_done = pager.step(STEP)
        rows = pager.take()
        if is_encoded:
            written.add_texts(rows)
        elif write is None:
            written.add(rows)
        else:
            await write(written, rows)
        if not is_done:
            await turns.next()
    while pager.forget():
        await turns.next()
    pieces: Sequence[bytes] = written.taken()
    if slot is not None:
        pieces = slot.keep(pieces, index, pager.next_token)
    return list_answer(call, pieces, index, pager.next_token)


def list_answer(call: Call, pieces: Sequence[bytes], index: int, next_token: str) -> web.Response:
    """An encoded page as an answer; a tuple of pieces is cached for further requests."""
    headers = read_headers(call, index)
    if next_token:
        headers["X-Nomad-NextToken"] = next_token
    kind = CachedResponse if isinstance(pieces, tuple) else web.Response
    return kind(body=body_of(pieces), content_type="application/json", headers=headers)


def check_uuid(text: str, kind: str) -> str:
    """The id, when it has the form of one; 500 with Nomad's text otherwise."""
    if len(text) != UUID_LENGTH:
        raise Refused(500, f"{kind} lookup failed: index error: UUID must be {UUID_LENGTH} characters")
    digits = text.replace("-", "")
    _check_digits(digits, kind)
    if len(digits) != 32:
        raise Refused(500, f"{kind} lookup failed: index error: Input should be 32 hex characters and 4 hyphens")
    return text.lower()


def check_prefix(text: str, kind: str) -> str:
    """The prefix of an id, with its hyphens also where the caller leaves them out; 500 with Nomad's text unless its hex
    digits are even in number.
    """
    digits = text.replace("-", "")
    if len(text) > UUID_LENGTH:
        raise Refused(
            500,
            f"{kind} lookup failed: index error: more than {UUID_LENGTH} characters: {len(text)}",
        )
    if len(text) - len(digits) > 4:
        raise Refused(500, f"{kind} lookup failed: index error: Input has more than 4 hyphens")
    if len(digits) % 2:
        raise Refused(500, f"{kind} lookup failed: index error: Input (without hyphens) must be even length")
    _check_digits(digits, kind)
    return uuid_prefix(digits)


def _check_digits(digits: str, kind: str) -> None:
    bad = next((each for each in digits if each.lower() not in HEX_DIGITS), None)
    if bad is not None:
        raise Refused(500, f"{kind} lookup failed: index error: encoding/hex: invalid byte: U+{ord(bad):04X} '{bad}'")
