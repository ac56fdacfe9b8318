"""The watch: one stream for many views, with the rows that changed, as columns.

A line comes when something changed in a view, not more often than the read models allow (`yurt.server.read_models`),
and at least each `BEAT_S`. A row that a view shows no more is `Gone`; a view of which changes were lost is in `Resync`.
The reader's rights are checked again each second, and the stream ends with the reason once a view is forbidden.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Mapping
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
from aiohttp import hdrs, web

from yurt.api.encode import encode_builtins
from yurt.http.call import Call, need_loaded_state, need_recent_state
from yurt.http.edge.followed import FOLLOWED, FRAMES, LAST_PIECE, LAST_PIECES
from yurt.http.errors import Refused
from yurt.http.ui_routes.columnar import CARD_LIST, agents_of, without_cards
from yurt.readmodels.kinds import JOBS, KINDS, NODES, RowKind
from yurt.readmodels.query import Asked, Query, parse_query
from yurt.readmodels.selection import Matcher, columns_of
from yurt.sdk.errors import Invalid, YurtError
from yurt.sdk.value import Value
from yurt.server.views.live_rows import ALL, Delta, LiveRows, RowPosition

VIEWS_MAX: Final = 32
VIEW_TEXT_MAX: Final = 4_096
ID_MAX: Final = 64
ROWS_MAX: Final = 2_000
"""Rows of a view in one line: above, its reader is better off with the list."""
BEAT_S: Final = 15.0
LAST_LINE_S: Final = 2.0
OVERVIEW: Final = "overview"
_GZIP: Final = 16 + zlib.MAX_WBITS


class ViewText(Value):
    """A view as the query of a request describes it."""

    id: str = ""
    kind: str = ""
    namespace: str = ALL
    where: tuple[str, ...] = ()
    search: str = ""
    filter: str = ""
    parent: str | None = None
    job: str = ""
    node: str = ""
    fields: tuple[str, ...] = ()


class WatchedView(NamedTuple):
    """A view that can be watched."""

    place: RowPosition
    kind: RowKind[Any]
    query: Query
    matcher: Matcher[Any]
    has_cards: bool

    async def wire(self, delta: Delta, rows: LiveRows, call: Call) -> dict[str, Any] | None:
        """A line's description of the view; {} when unchanged, None when too much changed."""
        changed, deleted = [], []
        async for part in call.turns.slices(delta.pairs):
            for _, before, after in part:
                if after is not None and self.matcher(after):
                    changed.append(after)
                elif before is not None and self.matcher(before):
                    deleted.append(list(self.kind.key_of(before)))
            if len(changed) > ROWS_MAX:
                return None
        wire: dict[str, Any] = {"Gone": deleted} if deleted else {}
        if changed:
            wire["Columns"] = columns_of(self.kind, self.query.fields, changed)
            if self.has_cards:
                wire["Columns"][CARD_LIST] = await rows.card_lists(wire["Columns"]["ID"])
        return wire


class Watched(NamedTuple):
    """All views of a request, by their ids; those of the overview have a namespace only."""

    views: dict[str, WatchedView]
    overviews: dict[str, str]

    @property
    def places(self) -> dict[str, RowPosition]:
        """What to look at for changes."""
        positions = {name: view.place for name, view in self.views.items()}
        for name, namespace in self.overviews.items():
            positions |= {f"{name}\0jobs": RowPosition(JOBS.name, namespace), f"{name}\0nodes": RowPosition(NODES.name)}
        return positions

    def require(self, rows: LiveRows) -> None:
        """Raises PermissionDenied where a view is forbidden."""
        for view in self.views.values():
            rows.require(view.place)
        for namespace in self.overviews.values():
            if not rows.may_see(RowPosition(NODES.name)):
                rows.require(RowPosition(JOBS.name, namespace))


def watched_of(texts: list[str]) -> Watched:
    """The views of a query; raises Refused (400)."""
    if not texts or len(texts) > VIEWS_MAX:
        raise Refused(400, f"{len(texts)} views to watch: give 1 to {VIEWS_MAX}")
    watched = Watched({}, {})
    for text in texts:
        view = _decoded(text)
        if not view.id or len(view.id) > ID_MAX or view.id in watched.views or view.id in watched.overviews:
            raise Refused(
                400, f'view "{view.id[:ID_MAX]}": each view needs an ID of its own, of at most {ID_MAX} characters'
            )
        if view.kind == OVERVIEW:
            watched.overviews[view.id] = view.namespace
        else:
            watched.views[view.id] = _view(view)
    return watched


def _decoded(text: str) -> ViewText:
    if len(text) > VIEW_TEXT_MAX:
        raise Refused(400, f"a view is longer than {VIEW_TEXT_MAX} characters")
    try:
        return msgspec.json.decode(text, type=ViewText)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise Refused(400, f"a view is not a JSON object as the watch expects it: {error}") from None


def _view(text: ViewText) -> WatchedView:
    kind = KINDS.get(text.kind)
    if kind is None:
        raise Refused(
            400, f'view "{text.id}": unknown kind "{text.kind[:64]}"; known are {", ".join((*KINDS, OVERVIEW))}'
        )
    names = ",".join(dict.fromkeys((*kind.key, *(text.fields or kind.defaults))))
    has_cards = kind is NODES and CARD_LIST in text.fields
    fields = without_cards(names) if has_cards else names
    try:
        query = parse_query(kind, Asked(fields=fields, where=text.where, search=text.search, filter=text.filter))
        matcher: Matcher[Any] = Matcher(kind, query)
    except Invalid as error:
        raise Refused(400, f'view "{text.id}": {error}') from None
    place = RowPosition(kind.name, text.namespace, parent=text.parent, job=text.job, node=text.node)
    return WatchedView(place, kind, query, matcher, has_cards)


class Lines:
    """Lines of JSON to a reader, compressed where it accepts that; one may be written at a time."""

    def __init__(self, call: Call) -> None:
        accepted = call.request.headers.get(hdrs.ACCEPT_ENCODING, "").lower()
        self._zip = zlib.compressobj(wbits=_GZIP) if "gzip" in accepted else None
        headers = {hdrs.CONTENT_TYPE: "application/json", hdrs.CACHE_CONTROL: "no-store", FOLLOWED: FRAMES}
        if self._zip is not None:
            headers[hdrs.CONTENT_ENCODING] = "gzip"
        self._call = call
        self._writing = asyncio.Lock()
        self.response = web.StreamResponse(headers=headers)
        self.response[LAST_PIECE] = self._last_piece

    async def begin(self) -> None:
        """Send the head."""
        await self.response.prepare(self._call.request)

    async def write(self, line: Mapping[str, Any]) -> None:
        """Send a line at once."""
        raw = encode_builtins(line) + b"\n"
        async with self._writing:
            if self._zip is not None:
                raw = self._zip.compress(raw) + self._zip.flush(zlib.Z_SYNC_FLUSH)
            await self.response.write(raw)

    def _last_piece(self) -> bytes:
        last = LAST_PIECES[FRAMES]
        return last if self._zip is None else self._zip.compress(last) + self._zip.flush()


async def watch(call: Call) -> web.StreamResponse:
    """GET /v1/yurt/watch."""
    # Not `live_rows`: a server that follows answers too (`routes.AnsweredBy.SERVER`).
    need_loaded_state(call)
    watched, rows, lines = watched_of(call.query.getall("view", [])), call.operations.live_rows, Lines(call)
    watched.require(rows)

    def check() -> None:
        rows.renew()
        watched.require(rows)

    # Index 0 is that of a cluster in which nothing has happened yet.
    after = call.options.index if "index" in call.query else await rows.newest_index()
    await lines.begin()
    call.lease.also(check)
    call.lease.also(partial(need_recent_state, call))
    await lines.write({"Index": after})
    closed: YurtError | None = None
    place = [after]
    try:
        async with asyncio.TaskGroup() as group:
            beat = group.create_task(_beat(call, lines, place, watched, rows), name="heartbeat of a watch")
            work = [
                group.create_task(_send(call, lines, watched, rows, place), name="lines of a watch"),
                group.create_task(_without_rights(call), name="rights of a watch"),
            ]
            done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            for task in (beat, *work):
                task.cancel()
            closed = done.pop().result()
    except* ConnectionError:
        pass
    if closed is not None:
        with suppress(TimeoutError, ConnectionError):
            async with call.context.env.timeout(LAST_LINE_S):
                await lines.write({"Error": str(closed)})
        raise closed
    return lines.response


async def _beat(call: Call, lines: Lines, place: list[int], watched: Watched, rows: LiveRows) -> None:
    """Send a line each `BEAT_S`, with the overviews where servers have changed or certificates are judged again."""
    version: tuple[object, ...] = ()  # what changed before this stream began is unknown here: the first line has it
    while True:
        await call.context.env.sleep(BEAT_S)
        before, version = version, agents_of(call).version
        line: dict[str, Any] = {"Index": place[0]}
        if version != before and watched.overviews:
            line["Views"] = {
                name: {"Overview": await rows.overview(namespace, agents_of(call))}
                for name, namespace in watched.overviews.items()
            }
        await lines.write(line)


async def _without_rights(call: Call) -> YurtError:
    try:
        await call.lease.lost()
    except YurtError as error:
        return error


async def _send(call: Call, lines: Lines, watched: Watched, rows: LiveRows, place: list[int]) -> YurtError:
    """Send changes until the reader leaves; why this server ends the stream, as where a filter cannot compare."""
    try:
        async with aclosing(rows.changes(watched.places, place[0])) as changes:
            async for change in changes:
                place[0] = await _send_line(lines, await _line(call, watched, rows, change))
    except YurtError as error:
        return error
    raise AssertionError("changes end with an error only")


async def _send_line(lines: Lines, line: dict[str, Any]) -> int:
    """Send a line unless it is empty; returns the index where the next one begins."""
    if len(line) > 1:
        await lines.write(line)
    index: int = line["Index"]
    return index


async def _line(call: Call, watched: Watched, rows: LiveRows, change: dict[str, Delta] | int) -> dict[str, Any]:
    """One line of the stream; only {"Index": ...} when nothing changed."""
    if isinstance(change, int):
        return {"Index": change, "Resync": [*watched.views, *watched.overviews]}
    index, views, resync = 0, dict[str, Any](), list[str]()
    for name, view in watched.views.items():
        index = change[name].index
        wire = await view.wire(change[name], rows, call)
        if wire is None:
            resync.append(name)
        elif wire:
            views[name] = wire
    for name, namespace in watched.overviews.items():
        index = change[f"{name}\0jobs"].index
        if any(True for part in ("jobs", "nodes") for _ in change[f"{name}\0{part}"].pairs):
            views[name] = {"Overview": await rows.overview(namespace, agents_of(call))}
    return {"Index": index} | ({"Views": views} if views else {}) | ({"Resync": resync} if resync else {})
