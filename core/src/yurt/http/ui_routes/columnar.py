"""Lists of jobs, allocations and nodes as columns, and the overview: filtered, counted, sorted and paged here."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from yurt.http.call import Call, read_answer
from yurt.http.query import number
from yurt.readmodels.kinds import ALLOCATIONS, JOBS, NODES, RowKind
from yurt.readmodels.overview import Agents
from yurt.readmodels.query import Asked, parse_query
from yurt.readmodels.selection import SelectedRows, Selection
from yurt.server.views.live_rows import LiveRows, RowPosition
from yurt.structs.member import LEFT

ROWS_A_SLICE = 500
"""Rows examined before the loop gets a turn: a millisecond or two, more with a long filter."""
CARD_LIST = "CardList"
"""A field of nodes that is made for the rows of the page alone."""


async def list_jobs(call: Call) -> web.Response:
    """GET /v1/yurt/jobs."""
    place = RowPosition(JOBS.name, call.options.namespace, parent=call.query.get("parent"))
    return await _list(call, JOBS, place)


async def list_allocations(call: Call) -> web.Response:
    """GET /v1/yurt/allocations: of a job, of a node, or all."""
    job, node = call.query.get("job", ""), call.query.get("node", "")
    return await _list(call, ALLOCATIONS, RowPosition(ALLOCATIONS.name, call.options.namespace, job=job, node=node))


async def list_nodes(call: Call) -> web.Response:
    """GET /v1/yurt/nodes."""
    return await _list(call, NODES, RowPosition(NODES.name))


async def overview(call: Call) -> web.Response:
    """GET /v1/yurt/overview: numbers by status, capacity by node pool, and what needs attention."""
    document = await live_rows(call).overview(call.options.namespace, agents_of(call))
    return read_answer(call, document, document["Index"])


def agents_of(call: Call) -> Agents:
    """The servers of this region that have not left, and the time."""
    members = call.cluster.members() if call.has_server else ()
    servers = tuple(each for each in members if each.region == call.agent.region and each.status != LEFT)
    return Agents(call.context.env.now() // 1_000_000_000, servers)


def live_rows(call: Call) -> LiveRows:
    """The rows as the caller may see them; raises Unavailable where this server may not answer."""
    call.need_state()
    return call.operations.live_rows


def request_of(call: Call, *, fields: str) -> Asked:
    """The query of a request."""
    query = call.query
    return Asked(
        fields=fields,
        sort=query.get("sort", ""),
        where=tuple(query.getall("where", ())),
        search=query.get("search", ""),
        filter=call.options.filter,
        facets=query.get("facets", ""),
        per_page=number(query, "per_page") or 0,
        next_token=call.options.next_token,
    )


async def _list(call: Call, kind: RowKind[Any], place: RowPosition) -> web.Response:
    names = call.query.get("fields", "")
    has_cards = kind is NODES and CARD_LIST in names.split(",")
    query = parse_query(kind, request_of(call, fields=without_cards(names) if has_cards else names))
    rows, selection = live_rows(call), Selection(kind, query)
    seen = await rows.rows(place)
    async for part in call.turns.slices(seen.rows, ROWS_A_SLICE):
        selection.add(seen.among(part))
    page = selection.page()
    if has_cards:
        page.columns[CARD_LIST] = await rows.card_lists(page.columns["ID"])
    return read_answer(call, page_wire(page, seen.index), seen.index, next_token=page.next_token)


def without_cards(names: str) -> str:
    """The fields without the list of cards, and with the id that it needs."""
    return ",".join(dict.fromkeys(("ID", *(name for name in names.split(",") if name != CARD_LIST))))


def page_wire(page: SelectedRows, index: int) -> dict[str, Any]:
    """A page as the API shows it."""
    wire: dict[str, Any] = {"Index": index, "Total": page.total, "Columns": page.columns}
    if page.facets:
        wire["Facets"] = {
            name: {"Values": [list(each) for each in facet.values], "Omitted": facet.omitted}
            for name, facet in page.facets.items()
        }
    if page.next_token:
        wire["NextToken"] = page.next_token
    return wire
