"""Workloads of `bench.pauses`: requests of operators and clients, and the server's timers, on a large state."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from itertools import islice
from typing import Any, Final, NamedTuple

from yurt.server.server import Server
from yurt.structs.commands import AllocUpdate, SetDeploymentAllocHealth, UpdateAllocsFromClient

from bench.pauses_worlds import BIG, PARENT, row_id

LIMIT_S: Final = 100.0
POLL_S: Final = 0.05
READ_BYTES: Final = 1 << 16
SLOW_READ_S: Final = 0.001
AT_A_TIME: Final = 200
BATCHES: Final = 100


class Site(NamedTuple):
    """A server under test: its API's port, and where tasks beside the work run."""

    server: Server
    port: int
    group: asyncio.TaskGroup

    async def ask(self, method: str, path: str, body: Any = None, expected: Sequence[int] = (HTTPStatus.OK,)) -> int:
        """Make a request, read all of the answer in a thread of its own, and give its length."""
        return await asyncio.to_thread(self._ask, method, path, body, expected)

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait for something to become true."""
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"still not so after {LIMIT_S:.0f} s")
            await asyncio.sleep(POLL_S)

    def _ask(self, method: str, path: str, body: Any, expected: Sequence[int]) -> int:
        connection, size = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S), 0
        connection.request(method, path, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        while piece := answer.read(READ_BYTES):
            size += len(piece)
            if answer.status not in expected:
                raise RuntimeError(f"{method} {path}: {answer.status} {piece.decode()[:200]}")
        connection.close()
        return size


Work = Callable[[Site], Awaitable[object]]


class Kind(NamedTuple):
    """One kind of work: on which state, and what it is; `before` comes untimed."""

    name: str
    world: str
    what: str
    work: Work
    before: Work | None = None
    config: Mapping[str, Any] = {}


def asking(method: str, path: str, body: Any = None, *, expected: Sequence[int] = (HTTPStatus.OK,)) -> Work:
    """A request."""
    return lambda site: site.ask(method, path, body, expected)


def _reading(name: str, path: str, what: str, *, world: str = "live") -> Kind:
    return Kind(f"read {name}", world, f"GET {path}{what and ': '}{what}", asking("GET", path))


async def _lead_again(site: Site) -> None:
    term = site.server.make_term()
    term.restore()


async def _lose_nodes(site: Site) -> None:
    term = site.server.term
    assert term is not None
    node_ids = sorted(site.server.state.nodes.keys())
    await term.heartbeats._report(node_ids)


async def _drain(site: Site) -> None:
    node_id = min(site.server.state.nodes.keys())
    await site.ask("PUT", f"/v1/node/{node_id}/drain", {"DrainSpec": {"Deadline": -1}})
    await site.until(
        lambda: all(alloc.desired_transition.migrate for alloc in site.server.state.allocs_of_node(node_id))
    )


async def _stop_big(site: Site, query: str) -> None:
    await site.ask("DELETE", f"/v1/job/{BIG}{query}")
    key = ("default", BIG)
    await site.until(lambda: not site.server.state.allocs.count_where("live", key))


async def _unblock(site: Site) -> None:
    """A node comes back: whatever waits for its class may go on."""
    node_id = min(site.server.state.nodes.keys())
    await site.ask("PUT", f"/v1/node/{node_id}/eligibility", {"Eligibility": "ineligible"})
    await site.ask("PUT", f"/v1/node/{node_id}/eligibility", {"Eligibility": "eligible"})
    term = site.server.term
    assert term is not None
    await site.until(lambda: not len(term.queue.blocked))


def _updates(site: Site, number: int) -> UpdateAllocsFromClient:
    found = (site.server.state.allocs[row_id(0, at)] for at in range(number * AT_A_TIME, (number + 1) * AT_A_TIME))
    updates = (
        AllocUpdate(id=alloc.id, node_id=alloc.node_id, client_status="running", client_description=f"{number}")
        for alloc in found
    )
    return UpdateAllocsFromClient(updates=tuple(updates), now=site.server.replica.env.now())


async def _follow_events(site: Site) -> None:
    """A reader who joins late, and is slow, while allocations change in lots."""
    for number in range(BATCHES):
        await site.server.replica.propose(_updates(site, number))
    index = site.server.state.index - BATCHES

    def read() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=LIMIT_S)
        connection.request("GET", f"/v1/event/stream?topic=Allocation&index={index}")
        answer = connection.getresponse()
        last = f'"Index":{site.server.state.index}'.encode()
        while last not in (line := answer.readline()):
            assert line
            time.sleep(SLOW_READ_S)
        connection.close()

    await asyncio.to_thread(read)


async def _all_healthy(site: Site) -> None:
    """The deployment of a large job is looked at whenever the health of one of its allocations changes."""
    (deployment,) = site.server.state.deployments.where("job", ("default", BIG))
    allocs = site.server.state.allocs.each_where("deployment", deployment.id)
    for _ in range(3):
        told = tuple(alloc.id for alloc in islice(allocs, AT_A_TIME))
        command = SetDeploymentAllocHealth(deployment_id=deployment.id, healthy=told, now=site.server.replica.env.now())
        await site.server.replica.propose(command)
        await asyncio.sleep(1.0)


async def _collect(site: Site) -> None:
    await site.server.resources.system.collect_garbage()


async def _dispatch(site: Site) -> None:
    await site.ask("PUT", f"/v1/job/{PARENT}/dispatch?idempotency_token=some", {"Meta": {}})


FILTER: Final = "?per_page=20&filter=ClientStatus+%3D%3D+%22failed%22"
KINDS: Final = (
    Kind("leadership", "live", "a term begins", _lead_again),
    Kind("nodes lost", "live", "no heartbeat of any node comes", _lose_nodes, config={"num_schedulers": 0}),
    Kind("drain", "live", "a node is drained at once", _drain, config={"num_schedulers": 0}),
    Kind("unblock", "live", "10,000 evaluations can go on", _unblock, config={"num_schedulers": 0}),
    Kind("stop a large job", "live", "job stop of 100,000 allocations", lambda site: _stop_big(site, "")),
    Kind("purge a large job", "live", "job stop -purge of them", lambda site: _stop_big(site, "?purge=true")),
    Kind("stop without delay", "live", "-no-shutdown-delay", lambda site: _stop_big(site, "?no_shutdown_delay=true")),
    Kind("large deployment", "live", "health of 600 of 100,000", _all_healthy, config={"num_schedulers": 0}),
    Kind("events", "live", "a reader of 100 events of 200 allocations", _follow_events),
    Kind("snapshot", "live", "operator snapshot save", asking("GET", "/v1/operator/snapshot")),
    Kind("metrics", "live", "as go-metrics shows them", asking("GET", "/v1/metrics")),
    Kind("metrics, prometheus", "live", "", asking("GET", "/v1/metrics?format=prometheus")),
    Kind("search", "live", "all by prefix", asking("PUT", "/v1/search", {"Prefix": "a", "Context": "all"})),
    Kind("search, fuzzy", "live", "all by name", asking("PUT", "/v1/search/fuzzy", {"Text": "job", "Context": "all"})),
    Kind("delete evaluations", "live", "by a filter that fits none of 100,001", asking(
        "DELETE", "/v1/evaluations", {"Filter": 'JobID == "nothing"'})),
    _reading("jobs", "/v1/jobs", "all"),
    _reading("jobs, a page", "/v1/jobs?per_page=20", ""),
    _reading("jobs, one prefix", "/v1/jobs?prefix=zzz", "none"),
    _reading("statuses", "/v1/jobs/statuses?per_page=1000", ""),
    _reading("status, large job", f"/v1/jobs/statuses?prefix={BIG}", ""),
    _reading("allocs, a page", "/v1/allocations?per_page=20", ""),
    _reading("allocs, a prefix", "/v1/allocations?prefix=abcd", "sixteen"),
    _reading("allocs, a filter", f"/v1/allocations{FILTER}", "none"),
    _reading("allocs, pretty", "/v1/allocations?prefix=ab&pretty", "four thousand"),
    _reading("allocs of a job", f"/v1/job/{BIG}/allocations?per_page=20", ""),
    _reading("all allocs of a job", f"/v1/job/{BIG}/allocations", ""),
    _reading("scale of a job", f"/v1/job/{BIG}/scale", ""),
    _reading("nodes", "/v1/nodes?resources=true&os=true", ""),
    _reading("evaluations", "/v1/evaluations?per_page=20", ""),
    _reading("evaluations, counted", "/v1/evaluations/count", ""),
    _reading("deployments", "/v1/deployments?prefix=abcd", ""),
    _reading("scaling policies", "/v1/scaling/policies", ""),
    _reading("ui", "/ui/", ""),
    _reading("ui, large job", f"/ui/jobs/{BIG}", ""),
    Kind("gc", "dead", "system gc of all", _collect, config={"num_schedulers": 0}),
    Kind("delete ended evaluations", "dead", "100,000 by a filter", asking(
        "DELETE", "/v1/evaluations", {"Filter": 'Status == "complete"'}), config={"num_schedulers": 0}),
    Kind("dispatch, many children", "dead", "with an idempotency token", _dispatch, config={"num_schedulers": 0}),
    _reading("status, many children", f"/v1/jobs/statuses?prefix={PARENT}&per_page=20", "", world="dead"),
)  # fmt: skip
