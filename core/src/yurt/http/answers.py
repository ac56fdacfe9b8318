"""Shared parts of read responses: blocking until a view has changed, pages of lists, single rows.

These take kinds of rows (`yurt.server.views`), so that a handler names no table and sees no row that its caller may not
see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from aiohttp import web

from yurt.access import ANYWHERE, needs
from yurt.api.page import Key, Pager, by_index
from yurt.http.call import Call, changed_state, object_missing, prepare_rights, read_answer
from yurt.http.lists import Write, page_answer
from yurt.http.query import flag
from yurt.server.views import Listing, Rows, View
from yurt.state.watch import WatchKey

K = TypeVar("K")
R = TypeVar("R")


async def changed_view(call: Call, keys: Iterable[WatchKey], index_of: Callable[[View], int]) -> tuple[View, int]:
    """The view to answer from, and its index: at once, or for a blocking query when the index passed the asked one.

    What the caller may do can change during the wait, so it is decided anew; raises PermissionDenied where nothing
    is left.
    """
    access = call.access
    state, index = await changed_state(call, keys, lambda state: index_of(View(state, access)))
    if call.options.index > 0:
        await prepare_rights(call.request, call.actor)
        access.renew()
        access.require(call.scope)
        index = index_of(View(state, access))
    return View(state, access), index


def need_complete(call: Call) -> None:
    """Raises PermissionDenied where the caller asks for a complete list and may not see all of its rows.

    For those who copy a list: what they do not find there they delete.
    """
    if flag(call.query, "complete"):
        call.access.narrowed(needs.MANAGEMENT).require(ANYWHERE)


async def list_rows(
    call: Call,
    kinds: tuple[type[Rows[Any, Any]], ...],
    listing: Callable[[View], Listing[R]],
    *,
    render: Callable[[View], Callable[[R], dict[str, Any]]],
    key: Callable[[Any], Key] = by_index,
) -> web.Response:
    """A page of a listing; blocks on the tables of the kinds."""
    view, index = await changed_view(call, [kind.watched() for kind in kinds], lambda view: kinds_index(view, kinds))
    return await list_page(call, listing(view), index, render=render(view), key=key)


async def list_page(
    call: Call,
    listing: Listing[R],
    index: int,
    *,
    render: Callable[[R], dict[str, Any]],
    key: Callable[[Any], Key] = by_index,
    write: Write | None = None,
) -> web.Response:
    """A page of a listing, oldest first."""
    pager = Pager(listing.rows, render, key=key, options=call.options, wanted=listing.is_wanted)
    return await page_answer(call, pager, index, write=write)


async def list_page_newest_first(
    call: Call,
    listing: Listing[R],
    index: int,
    *,
    render: Callable[[R], dict[str, Any]],
    key: Callable[[Any], Key] = by_index,
    write: Write | None = None,
) -> web.Response:
    """A page of a listing, newest first unless it is reversed."""
    options = call.options
    pager = Pager(
        listing.rows, render, key=key, options=options, is_reversed=not options.reverse, wanted=listing.is_wanted
    )
    return await page_answer(call, pager, index, write=write)


def kinds_index(view: View, kinds: Iterable[type[Rows[Any, Any]]]) -> int:
    """The newest write among some kinds of rows."""
    return max(view.of(kind).index for kind in kinds)


async def one_row(
    call: Call, kind: type[Rows[K, Any]], key: K, *, render: Callable[[Any, View], Any], missing: str
) -> web.Response:
    """One row; 404 with `missing` when it is not there for the caller. Blocks on the row."""
    watched = call.view().of(kind).watched_of(key)
    view, index = await changed_view(call, [watched], lambda view: view.of(kind).index_of(key))
    row = view.of(kind).get(key)
    if row is None:
        return object_missing(call, missing, index)
    return read_answer(call, render(row, view), index)
