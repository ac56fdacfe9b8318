"""Shared parts of read responses: blocking until a view has changed, pages of lists, single rows.

These take kinds of rows (`yurt.server.views`), so that a handler names no table and sees no row that its caller may not
see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import Any, Final, TypedDict, TypeVar

import msgspec
from aiohttp import web

from yurt.access import ANYWHERE, Namespaces, needs
from yurt.api.encode import pretty_json
from yurt.api.page import Key, Pager, Stubs, by_index
from yurt.api.row_texts import RowForm, RowTexts
from yurt.api.stubs import WHOLE
from yurt.http.answer_cache import AnswerKey, AnswerSlot
from yurt.http.call import Call, changed_state, object_missing, prepare_rights, read_answer, shows_only
from yurt.http.lists import Write, list_answer, page_answer
from yurt.http.query import flag
from yurt.server.views import Listing, Rows, View
from yurt.state.watch import WatchKey

K = TypeVar("K")
R = TypeVar("R")
NAMESPACES_MAX: Final = 256
"""With more namespaces, lists of all are shared only by callers with the same policies."""


async def changed_view(call: Call, keys: Iterable[WatchKey], index_of: Callable[[View], int]) -> tuple[View, int]:
    """The view to answer from, and its index: at once, or for a blocking query when the index passed the given one.

    The caller's rights can change during the wait, so they are checked again; raises PermissionDenied where nothing
    is left.
    """
    access = call.access
    if not call.options.index:
        view = call.view()
        return view, index_of(view)
    state, _ = await changed_state(call, keys, lambda state: index_of(View(state, access)))
    await prepare_rights(call.request, call.actor)
    access.renew()
    access.require(call.scope)
    view = View(state, access)
    return view, index_of(view)


def need_complete(call: Call) -> None:
    """Raises PermissionDenied when the caller requires a complete list but may not see all of its rows.

    For those who copy a list: what they do not find there they delete.
    """
    if flag(call.query, "complete"):
        call.access.narrowed(needs.MANAGEMENT).require(ANYWHERE)


class FormBeside(msgspec.Struct, frozen=True):
    """A form that writes a row together with rows of other kinds."""

    form: RowForm
    rows: Callable[[View], Callable[[Any], tuple[Any, ...]]]
    """The row and its related rows, in the order in which the form takes them."""


Form = RowForm | FormBeside
Render = Callable[[View], Callable[[Any], dict[str, Any]]]


class FormAt(msgspec.Struct, frozen=True):
    """A form of rows of one view, and where the answer made of them is cached."""

    form: Form
    view: View
    slot: AnswerSlot | None = None

    def wire(self) -> Callable[[Any], dict[str, Any]]:
        """Writes a row in the shape of the API."""
        form = self.form
        if isinstance(form, RowForm):
            return form.wire
        related = form.rows(self.view)
        return lambda row: form.form.wire(*related(row))

    def text(self, texts: RowTexts) -> Callable[[Any], bytes]:
        """Gives the text of a row."""
        form = self.form
        if isinstance(form, RowForm):
            return partial(texts.text, form)
        related = form.rows(self.view)
        return lambda row: texts.text_with_related(form.form, related(row))


class WholeAt(msgspec.Struct, frozen=True):
    """Writes rows for an answer that is cached as a whole, so the texts of its rows are not cached."""

    render: Callable[[Any], dict[str, Any]]
    slot: AnswerSlot | None = None


class Whole(msgspec.Struct, frozen=True):
    """Makes such a writer for a view."""

    render: Render


async def list_rows(
    call: Call,
    kinds: tuple[type[Rows[Any, Any]], ...],
    listing: Callable[[View], Listing[R]],
    *,
    render: Form | Whole | Render,
    key: Callable[[Any], Key] = by_index,
    namespace: str | None = None,
) -> web.Response:
    """A page of a listing; blocks on the tables of the kinds.

    With a form, the answer and the texts of its rows are kept, with `Whole` the answer: the listing and what is
    written must follow from the kinds' tables, the path, the query and the caller's rights alone. `namespace`: where
    all rows lie, or `*`, if their namespaces alone decide who sees them.
    """
    view, index = await changed_view(call, [kind.watched() for kind in kinds], lambda view: list_index(view, kinds))
    if not isinstance(render, Form | Whole):
        return await list_page(call, listing(view), index, render=render(view), key=key)
    shows_only(call, kinds)
    slot = answer_slot(call, view, kinds, namespace)
    if slot is not None and (cached := slot.find()) is not None:
        return list_answer(call, cached.pieces, cached.at_index, cached.next_token)
    at = WholeAt(render.render(view), slot) if isinstance(render, Whole) else FormAt(render, view, slot)
    return await list_page(call, listing(view), index, render=at, key=key)


def answer_slot(
    call: Call, view: View, kinds: tuple[type[Rows[Any, Any]], ...], namespace: str | None
) -> AnswerSlot | None:
    """The cache slot of the request's answer, valid while the tables of the kinds are unchanged; None: not cached.

    `namespace` as for `list_rows`.
    """
    within = None if call.access.sees_all else _within(view, kinds, namespace)
    visibility = call.access.visibility(within)
    if visibility is None:
        return None
    key = AnswerKey(call.target, visibility)
    tables = tuple(view.of(kind).content for kind in kinds)
    return AnswerSlot(call.context.answers, key, tables, partial(call.access.is_still, within=within))


def _within(view: View, kinds: tuple[type[Rows[Any, Any]], ...], namespace: str | None) -> Namespaces:
    """Where the rows of a list may lie, if their namespaces alone decide who sees them."""
    if namespace is None:
        return None
    assert _are_seen_by_namespace(kinds), f"more than namespaces decides about {kinds}"
    return view.namespaces(NAMESPACES_MAX) if namespace == "*" else namespace


@cache
def _are_seen_by_namespace(kinds: tuple[type[Rows[Any, Any]], ...]) -> bool:
    return all(kind.is_seen_by_namespace() for kind in kinds)


async def list_page(
    call: Call,
    listing: Listing[R],
    index: int,
    *,
    render: FormAt | WholeAt | Callable[[R], dict[str, Any]],
    key: Callable[[Any], Key] = by_index,
) -> web.Response:
    """A page of a listing, oldest first."""
    pager = _pager(call, listing, render, key, is_reversed=call.options.reverse)
    return await page_answer(call, pager, index, **_cached_answer(call, render))


async def list_page_newest_first(
    call: Call,
    listing: Listing[R],
    index: int,
    *,
    render: FormAt | WholeAt | Callable[[R], dict[str, Any]],
    key: Callable[[Any], Key] = by_index,
    write: Write | None = None,
) -> web.Response:
    """A page of a listing, newest first unless it is reversed."""
    pager = _pager(call, listing, render, key, is_reversed=not call.options.reverse)
    return await page_answer(call, pager, index, write=write, **_cached_answer(call, render))


def _pager(
    call: Call,
    listing: Listing[R],
    render: FormAt | WholeAt | Callable[[R], dict[str, Any]],
    key: Callable[[Any], Key],
    *,
    is_reversed: bool,
) -> Pager[R, Any]:
    """A filter examines rows in the shape of the API; without one, encoded rows suffice."""
    options = call.options
    write: Callable[[R], Any]
    if isinstance(render, WholeAt):
        write = render.render
    elif isinstance(render, FormAt):
        write = _filtered(render) if options.filter else render.text(call.context.texts)
    else:
        write = render
    return Pager(
        listing.rows, write, key=key, options=options, is_reversed=is_reversed, is_selected=listing.is_selected
    )


def _filtered(render: FormAt) -> Callable[[Any], dict[str, Any]]:
    """Writes rows whose filter examines the full form when a short one is requested."""
    form = render.form if isinstance(render.form, RowForm) else render.form.form
    whole = WHOLE.get(form.render)
    return render.wire() if whole is None else Stubs(render.wire(), whole)


class _CachedAnswer(TypedDict, total=False):
    is_encoded: bool
    slot: AnswerSlot | None


def _cached_answer(call: Call, render: object) -> _CachedAnswer:
    if isinstance(render, WholeAt):
        return {"slot": render.slot}
    return {"is_encoded": not call.options.filter, "slot": render.slot} if isinstance(render, FormAt) else {}


def kinds_index(view: View, kinds: Iterable[type[Rows[Any, Any]]]) -> int:
    """The newest write among some kinds of rows."""
    return max(view.of(kind).index for kind in kinds)


def list_index(view: View, kinds: Sequence[type[Rows[Any, Any]]]) -> int:
    """The index of a list of the first kind, which the others complete; its least one while it never had a row."""
    return kinds_index(view, kinds) if view.of(kinds[0]).index else kinds[0].index_min


async def one_row(
    call: Call, kind: type[Rows[K, Any]], key: K, *, render: RowForm | Callable[[Any, View], Any], missing: str
) -> web.Response:
    """One row; 404 with `missing` when it is not there for the caller. Blocks on the row.

    With a form, the text of the row is kept.
    """
    if call.options.index:
        watched = call.view().of(kind).watched_of(key)
        view, _ = await changed_view(call, [watched], lambda view: view.of(kind).index_of(key))
    else:
        view = call.view()
    rows = view.of(kind)
    row = rows.get(key)
    if row is None:
        return object_missing(call, missing, rows.index)
    if not isinstance(render, RowForm):
        return read_answer(call, render(row, view), row.modify_index)
    shows_only(call, (kind,))
    text = call.context.texts.text(render, row)
    return list_answer(call, [pretty_json(text)] if call.options.pretty else (text,), row.modify_index, "")
