"""Plain read-only HTML pages without scripts, below `/ui/plain/`: jobs, the allocations of a job, nodes, servers.

Every page is made on the server from the newest state, refreshes itself, and needs no script; the policy in its headers
allows none. All text of jobs, tasks and nodes is a stranger's: it reaches a page through `Cell`s alone, which escape
it. A page has at most `ROWS_MAX` rows a table and is made in a thread, so that a large cluster does not hold up others.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from heapq import nlargest, nsmallest
from html import escape
from typing import NamedTuple
from urllib.parse import quote, urlencode

from aiohttp import web

from yurt.access import ANYWHERE, needs
from yurt.access.needs import Capability
from yurt.api.commands import why_not_hint
from yurt.http.agent_info import AgentInfo
from yurt.http.call import Call, loaded_view
from yurt.http.cluster import leader_address
from yurt.http.errors import Refused
from yurt.sdk.value import NANOSECONDS, UnixNano
from yurt.server.views import View
from yurt.server.views.cluster import NodeRows
from yurt.server.views.jobs import JobRows, JobSummaryRows
from yurt.server.views.scheduling import AllocationRows, DeploymentRows, EvaluationRows
from yurt.structs.alloc import Allocation
from yurt.structs.evaluation import Evaluation
from yurt.structs.explain.metrics import AllocationMetric
from yurt.structs.job import Job
from yurt.structs.member import Member
from yurt.structs.node import Node
from yurt.structs.predicates import is_client_terminal
from yurt.structs.status import EVAL_BLOCKED

ROWS_MAX = 500
REFRESH_S = 10
API_DOCS = "https://developer.hashicorp.com/nomad/api-docs"
STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 1.5rem auto; max-width: 72rem; padding: 0 1rem; color: #222 }
nav { display: flex; gap: 1.2rem; border-bottom: 1px solid #ccc; padding-bottom: .6rem; flex-wrap: wrap }
nav b { margin-right: auto }
table { border-collapse: collapse; width: 100%; margin-bottom: 1.5rem }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #eee; vertical-align: top }
th { font-weight: 600; white-space: nowrap }
.good { color: #176b2c } .bad { color: #a61b1b } .wait { color: #7a5a00 } .dim { color: #777 }
@media (prefers-color-scheme: dark) {
  body { background: #181818; color: #ddd } a { color: #8ab4f8 } th, td, nav { border-color: #444 }
  .good { color: #6fcf86 } .bad { color: #ff8a80 } .wait { color: #e6c35c } .dim { color: #999 }
}
"""
_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
HEADERS = {
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
WORDS = {
    "good": ("running", "ready", "complete", "eligible", "successful", "alive"),
    "bad": ("failed", "lost", "down", "disconnected", "unknown"),
    "wait": ("pending", "initializing", "blocked", "draining", "ineligible", "paused"),
    "dim": ("dead", "stopped", "left"),
}
"""The colour of a status."""
LIST_JOBS = needs.namespace(Capability.LIST_JOBS)
_CLASSES = {word: name for name, words in WORDS.items() for word in words}


class Cell(NamedTuple):
    """A table cell: a text, with a link where one is given."""

    text: str
    href: str = ""

    def html(self) -> str:
        """Escaped; a status in its colour."""
        shown = escape(self.text)
        if self.href:
            return f'<a href="{escape(self.href)}">{shown}</a>'
        kind = _CLASSES.get(self.text)
        return f'<span class="{kind}">{shown}</span>' if kind else shown


Row = Sequence[Cell | str]


class Part(NamedTuple):
    """A heading, text below it, and a table with its total number of rows."""

    title: str
    lines: Sequence[str] = ()
    headers: Sequence[str] = ()
    rows: Sequence[Row] = ()
    total: int = 0
    empty: str = ""

    def html(self) -> str:
        """The part of the page."""
        pieces = [f"<h2>{escape(self.title)}</h2>", *(f"<p>{escape(line)}</p>" for line in self.lines)]
        if self.rows:
            head = "".join(f"<th>{escape(name)}</th>" for name in self.headers)
            pieces.append(f"<table><tr>{head}</tr>{''.join(map(_row_html, self.rows))}</table>")
        elif self.empty:
            pieces.append(f'<p class="dim">{escape(self.empty)}</p>')
        if self.total > len(self.rows):
            pieces.append(f'<p class="dim">The first {len(self.rows)} of {self.total}.</p>')
        return "\n".join(pieces)


def _row_html(row: Row) -> str:
    cells = (cell if isinstance(cell, Cell) else Cell(cell) for cell in row)
    return f"<tr>{''.join(f'<td>{cell.html()}</td>' for cell in cells)}</tr>\n"


def page_html(agent: AgentInfo, title: str, parts: Iterable[Part]) -> str:
    """A whole page."""
    links = (Cell("Jobs and nodes", "/ui/plain/"), Cell("API: jobs", "/v1/jobs?pretty&namespace=*"),
             Cell("API: nodes", "/v1/nodes?pretty"), Cell("API: agent", "/v1/agent/self?pretty"),
             Cell("API documentation", API_DOCS))  # fmt: skip
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)} - Yurt</title>\n'
        '<meta name="viewport" content="width=device-width">\n'
        f'<meta http-equiv="refresh" content="{REFRESH_S}">\n<style>{STYLE}</style>\n</head>\n<body>\n'
        f"<nav><b>Yurt {escape(agent.version)} · {escape(agent.region)}</b> {' '.join(cell.html() for cell in links)}"
        f"</nav>\n{''.join(part.html() for part in parts)}\n</body>\n</html>\n"
    )


def job_link(namespace: str, job_id: str) -> Cell:
    """A job's id, leading to its page."""
    query = f"?{urlencode({'namespace': namespace})}" if namespace != "default" else ""
    return Cell(job_id, f"/ui/plain/jobs/{quote(job_id)}{query}")


def jobs_part(view: View) -> Part:
    """All jobs by id; children of periodic and parameterized jobs stand with their own ids."""
    rows = view.of(JobRows)
    jobs = nsmallest(ROWS_MAX, rows.all(), key=lambda job: (job.namespace, job.id))
    return Part(
        "Jobs",
        headers=("Job", "Namespace", "Type", "Priority", "Status", "Allocations", "Submitted"),
        rows=[_job_row(view, job) for job in jobs],
        total=rows.count(),
        empty="No jobs. Write one with `yurt job init` and run it with `yurt job run example.nomad.hcl`.",
    )


def _job_row(view: View, job: Job) -> Row:
    shown = "stopped" if job.stop else job.status
    return (
        job_link(job.namespace, job.id),
        job.namespace,
        job.type,
        str(job.priority),
        shown,
        counts_text(view, job),
        moment(job.submit_time),
    )


def counts_text(view: View, job: Job) -> str:
    """`3 running, 1 queued`: what the job's summary counts."""
    summary = view.of(JobSummaryRows).get(job.key)
    groups = summary.summary.values() if summary is not None else ()
    names = ("running", "starting", "queued", "unknown", "failed", "lost", "complete")
    sums = {name: sum(getattr(group, name) for group in groups) for name in names}
    return ", ".join(f"{count} {name}" for name, count in sums.items() if count) or "none"


def nodes_part(view: View) -> Part:
    """All nodes by name."""
    rows = view.of(NodeRows)
    nodes = nsmallest(ROWS_MAX, rows.all(), key=lambda node: (node.name, node.id))
    return Part(
        "Nodes",
        headers=("Node", "ID", "Pool", "Datacenter", "Class", "Status", "Eligibility", "Allocations", "Drivers"),
        rows=[_node_row(view, node) for node in nodes],
        total=rows.count(),
        empty="No nodes. An agent with a client registers itself.",
    )


def _node_row(view: View, node: Node) -> Row:
    live = sum(not is_client_terminal(alloc) for alloc in view.of(AllocationRows).each_where("node", node.id))
    drivers = ", ".join(sorted(name for name, info in node.drivers.items() if info.healthy))
    return (
        node.name,
        Cell(node.id[:8], f"/v1/node/{quote(node.id, safe='')}?pretty"),
        node.node_pool,
        node.datacenter,
        node.node_class,
        node.status,
        "draining" if node.drain_strategy is not None else node.scheduling_eligibility,
        str(live),
        drivers or "none healthy",
    )


def servers_part(members: Sequence[Member], leader: str) -> Part:
    """The servers of all regions, and which of this region leads: the one at address `leader`."""
    return Part(
        "Servers",
        headers=("Server", "Region", "Datacenter", "Address", "Status", "Leader", "Version"),
        rows=[
            (each.name, each.region, each.datacenter, each.rpc_addr, each.status, role, each.version)
            for each in members[:ROWS_MAX]
            for role in ("leader" if each.rpc_addr == leader else "",)
        ],
        total=len(members),
    )


def job_part(view: View, job: Job) -> Part:
    """A job and its allocations, newest first."""
    rows = view.of(AllocationRows).where("job", job.key)
    allocs = nlargest(ROWS_MAX, rows, key=lambda alloc: (alloc.create_index, alloc.id))
    return Part(
        job.id,
        lines=[*_job_lines(view, job)],
        headers=("Allocation", "Group", "Node", "Version", "Desired", "Status", "Tasks", "Last event", "Created"),
        rows=[_alloc_row(alloc) for alloc in allocs],
        total=len(rows),
        empty="No allocations.",
    )


def _job_lines(view: View, job: Job) -> Iterable[str]:
    stopped = ", stopped" if job.stop else ""
    yield (
        f"Namespace {job.namespace}, {job.type}, priority {job.priority}, version {job.version}, "
        f"{job.status}{stopped}; submitted {moment(job.submit_time)}."
    )
    deployment = view.of(DeploymentRows).newest_of(job.key)
    if deployment is not None:
        yield f"Deployment {deployment.id[:8]}: {deployment.status}. {deployment.status_description}"
    waiting = [row for row in view.of(EvaluationRows).where("job", job.key) if row.status == EVAL_BLOCKED]
    for evaluation in nlargest(1, waiting, key=lambda row: row.create_index):
        yield from _waiting_lines(evaluation, job)


def _waiting_lines(evaluation: Evaluation, job: Job) -> Iterable[str]:
    """What could not be placed when it was last tried, and why; at most `ROWS_MAX` groups."""
    failed = evaluation.failed_tg_allocs
    if not failed:
        yield "Not everything could be placed."
    for name in nsmallest(ROWS_MAX, failed):
        yield f"Group {name}: {failed[name].coalesced_failures + 1} not placed. {reasons_text(failed[name])}."
    yield why_not_hint(job.namespace, job.id)


def reasons_text(metric: AllocationMetric) -> str:
    """`6 nodes were looked at; blocked by: missing drivers (4), memory (2)`: all reasons of a failed placement."""
    if not metric.nodes_evaluated:
        return "No nodes were eligible for evaluation"
    counts = (*sorted(metric.constraint_filtered.items()), *sorted(metric.dimension_exhausted.items()))
    reasons = [f"{text} ({number})" for text, number in counts]
    reasons += [f"quota: {text}" for text in metric.quota_exhausted] + ([f"gang: {metric.gang}"] if metric.gang else [])
    nodes = "1 node was" if metric.nodes_evaluated == 1 else f"{metric.nodes_evaluated} nodes were"
    return f"{nodes} looked at" + (f"; blocked by: {', '.join(reasons)}" if reasons else "")


def _alloc_row(alloc: Allocation) -> Row:
    tasks = (
        f"{name}: {state.state}{' (failed)' if state.failed else ''}"
        + (f", {state.restarts} restarts" if state.restarts else "")
        for name, state in sorted(alloc.task_states.items())
    )
    events = [event for state in alloc.task_states.values() for event in state.events]
    last = max(events, key=lambda event: event.time, default=None)
    return (
        Cell(alloc.id[:8], f"/v1/allocation/{quote(alloc.id, safe='')}?pretty"),
        alloc.task_group,
        alloc.node_name,
        str(alloc.job.version) if alloc.job is not None else "",
        alloc.desired_status,
        alloc.client_status,
        "; ".join(tasks),
        f"{last.type}: {last.display_message}" if last is not None else alloc.client_description,
        moment(alloc.create_time),
    )


def moment(at: UnixNano | int) -> str:
    """A time in UTC to the second, or an empty text for none."""
    if not 0 < at < 1 << 62:
        return ""
    return datetime.fromtimestamp(at / NANOSECONDS, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


async def _answer(call: Call, title: str, parts: Callable[[], list[Part]], *, status: int = 200) -> web.Response:
    if not call.agent.ui_enabled:
        raise Refused(404, "The pages are off: ui.enabled is false in the agent's configuration")
    text = await asyncio.to_thread(lambda: page_html(call.agent, title, parts()))
    return web.Response(text=text, status=status, content_type="text/html", headers=HEADERS)


async def start(call: Call) -> web.Response:
    """GET /ui/plain/: jobs, nodes and servers, each where the caller could list them in the API too."""
    view, members = loaded_view(call), call.cluster.shown_members()
    leader = leader_address(call.cluster, call.server_facts, call.agent)
    parts: list[Callable[[], Part]] = [partial(jobs_part, view.narrowed(LIST_JOBS).for_thread())]
    if call.access.narrowed(needs.NODE_READ).allows(ANYWHERE):
        nodes = view.narrowed(needs.NODE_READ).for_thread()
        parts += [partial(nodes_part, nodes), partial(servers_part, members, leader)]
    return await _answer(call, "Jobs and nodes", lambda: [part() for part in parts])


async def one_job(call: Call) -> web.Response:
    """GET /ui/plain/jobs/:id: a job with its allocations; the id may hold slashes."""
    view, job_id = loaded_view(call), call.part("job_id")
    job = view.of(JobRows).get((call.options.namespace, job_id))
    if job is None:
        missing = Part(job_id, lines=["There is no such job in this namespace."])
        return await _answer(call, job_id, lambda: [missing], status=404)
    visible = view.for_thread()
    return await _answer(call, job_id, lambda: [job_part(visible, job)])
