"""Reads what `yurt top` shows from the API.

One list of running allocations or of nodes, then the measurements of each from its node, by some requests at a time
and within a bound of time. A node that does not answer costs its figures, not the picture.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Final

from yurt.cli.api.client import ApiClient
from yurt.cli.api.connect import connect
from yurt.cli.api.lookup import api_path
from yurt.cli.declaration import Invocation
from yurt.cli.terminal.text import clock
from yurt.cli.views.top.frame import Choice, Sample
from yurt.cli.views.top.usage_rows import UsageRow, alloc_row, booked, job_rows, node_row, ordered
from yurt.sdk.errors import YurtError

Json = dict[str, Any]

LIST_MAX: Final = 2_000
"""Rows that are read; a filter shows others."""
MEASURED_MAX: Final = 200
"""Number of allocations or nodes measured in one picture: those that booked the most GPUs, then CPU."""
WORKERS: Final = 8
ANSWERS_S: Final = 4.0
"""How long a picture waits for measurements."""


class UsageSampler:
    """Takes samples; a client of the API for each of its threads, because one is not thread-safe."""

    def __init__(self, call: Invocation) -> None:
        self._call = call
        self._clients = threading.local()
        self._opened: list[ApiClient] = []
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="top")

    def close(self) -> None:
        """End the threads; requests under way are left to end by themselves."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for client in self._opened:
            client.close()

    def sample(self, choice: Choice) -> Sample:
        """The rows of a view, in order; raises YurtError when the list can not be read."""
        rows, notes = self._nodes() if choice.view == "nodes" else self._allocs(choice.view)
        found = ordered(rows, choice.sort, is_reversed=choice.is_reversed)
        return Sample(tuple(found), clock(), "; ".join(notes))

    def _allocs(self, view: str) -> tuple[list[UsageRow], list[str]]:
        flags = self._call.flags
        conditions = ['ClientStatus == "running"']
        conditions += [f'JobID == "{flags.text("job")}"'] if flags.text("job") else []
        conditions += [f'NodeID matches "^{flags.text("node")}"'] if flags.text("node") else []
        query = {"filter": " and ".join(conditions), "resources": True, "task_states": False, "per_page": LIST_MAX}
        stubs, notes = self._list("/v1/allocations", query)
        stats = self._measured(
            {stub["ID"]: api_path("client", "allocation", stub["ID"], "stats") for stub in largest_allocations(stubs)},
            of=len(stubs),
            notes=notes,
        )
        rows = [alloc_row(stub, stats.get(stub["ID"])) for stub in stubs]
        if view == "jobs":
            rows = job_rows(rows, {stub["ID"]: stub["JobID"] for stub in stubs})
        return rows, notes

    def _nodes(self) -> tuple[list[UsageRow], list[str]]:
        node = self._call.flags.text("node")
        query: dict[str, str | int | bool | None] = {"resources": True, "per_page": LIST_MAX, "prefix": node or None}
        stubs, notes = self._list("/v1/nodes", query)
        ready = [stub for stub in stubs if stub["Status"] == "ready"][:MEASURED_MAX]
        paths = {stub["ID"]: f"/v1/client/stats?node_id={stub['ID']}" for stub in ready}
        stats = self._measured(paths, of=len(stubs), notes=notes)
        return [node_row(stub, stats.get(stub["ID"])) for stub in stubs], notes

    def _list(self, path: str, query: dict[str, Any]) -> tuple[list[Json], list[str]]:
        answer = self._call.api.read(path, query)
        notes = [f"the first {LIST_MAX} rows alone; narrow with -job or -node"] if answer.next_token else []
        return answer.data or [], notes

    def _measured(self, paths: dict[str, str], *, of: int, notes: list[str]) -> dict[str, Json]:
        """The measurements by id that arrived in time; missing ones are noted."""
        reads: dict[Future[Json | None], str] = {
            self._pool.submit(self._read, path): row_id for row_id, path in paths.items()
        }
        limit = time.monotonic() + ANSWERS_S
        done, late = wait(reads, timeout=max(0.0, limit - time.monotonic()))
        for future in late:
            future.cancel()
        found = {reads[future]: answer for future in done if (answer := future.result()) is not None}
        if len(found) < of:
            notes.append(f"measured {len(found)} of {of}, - is unknown")
        return found

    def _read(self, path: str) -> Json | None:
        plain, _, query = path.partition("?")
        name, _, value = query.partition("=")
        client: ApiClient | None = getattr(self._clients, "client", None)
        if client is None:
            client = self._clients.client = connect(self._call.flags, os.environ)
            self._opened.append(client)
        try:
            answer: Json | None = client.get(plain, {name: value} if name else None)
        except YurtError:
            return None
        return answer


def largest_allocations(stubs: Iterable[Json]) -> list[Json]:
    """The allocations whose measurements are read: those that booked most."""

    def weight(stub: Json) -> tuple[float, float, str]:
        cpu, _, gpus, _ = booked(stub.get("AllocatedResources"))
        return (-gpus, -cpu, stub["ID"])

    return sorted(stubs, key=weight)[:MEASURED_MAX]
