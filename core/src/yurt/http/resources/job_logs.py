"""`/v1/yurt/job/:id/logs`: the logs of a job's tasks, standard output and errors, as one stream.

Lines of JSON. The first names the sources; the others hold text of one of them, in the order in which it arrived. A
source that cannot be read says so in a line of its own and the others go on. An empty object is a heartbeat. A followed
source goes on when its node connects to another server; a followed stream that ends because the agent stops says so in
its last line.
"""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aiohttp import web

from yurt.api.encode import encode_builtins
from yurt.http.call import Call, loaded_view
from yurt.http.edge.followed import FOLLOWED, FRAMES
from yurt.http.edge.security_headers import TEXT
from yurt.http.errors import Refused, public_error
from yurt.http.forwarding.targets import job_key, node_of_alloc
from yurt.http.lists import check_uuid
from yurt.http.query import flag, number
from yurt.sdk.errors import YurtError
from yurt.server.clients.followed_log import FollowedLog, WantedLog
from yurt.server.views.jobs import JobRows
from yurt.server.views.scheduling import AllocationRows
from yurt.structs.rpc import StreamFrame
from yurt.structs.status import CLIENT_COMPLETE, CLIENT_LOST

if TYPE_CHECKING:
    from yurt.structs.alloc import Allocation

SOURCES_MAX: Final = 32
"""Logs of one stream; the newest allocations come first, and further logs are only counted."""
TAIL_BYTES: Final = 64 * 1024
"""Bytes shown of each log at first, unless `tail` says otherwise."""
TAIL_MAX: Final = 16 * 1024 * 1024
WAITING_MAX: Final = 64
"""Pieces that wait for a slow reader; the logs are then read no further."""
ENDED: Final = (CLIENT_COMPLETE, CLIENT_LOST)
LINE_MAX: Final = 64 * 1024
"""`grep` examines only this many characters of a longer line."""
KINDS: Final = {"stdout": ("stdout",), "stderr": ("stderr",), "both": ("stdout", "stderr")}


class TaskLogSource(NamedTuple):
    """One log of one task."""

    alloc: Allocation
    task: str
    kind: str

    def wire(self) -> dict[str, str]:
        """As the first line names it."""
        return {"AllocID": self.alloc.id, "AllocName": self.alloc.name, "Task": self.task, "Type": self.kind}


class LogRequest(NamedTuple):
    """How each log is read."""

    offset: int
    origin: str
    follow: bool
    grep: str


async def logs(call: Call) -> web.StreamResponse:
    """GET /v1/yurt/job/:id/logs."""
    all_sources, log_request = list(_sources(call)), _log_request(call)
    sources = all_sources[:SOURCES_MAX]
    response = web.StreamResponse(headers=_headers(log_request))
    await response.prepare(call.request)
    head = {"Sources": [source.wire() for source in sources], "Omitted": len(all_sources) - len(sources)}
    await response.write(_line(head))
    waiting: asyncio.Queue[bytes | None] = asyncio.Queue(WAITING_MAX)
    # A disconnected reader is not an error: its logs are read no further.
    try:
        async with asyncio.TaskGroup() as group:
            for index, source in enumerate(sources):
                group.create_task(_read(call, index, source, log_request, waiting))
            await _write_all(response, waiting, len(sources))
            await response.write_eof()
    except* ConnectionError:
        pass
    return response


def _headers(log_request: LogRequest) -> dict[str, str]:
    return {"Content-Type": TEXT} | ({FOLLOWED: FRAMES} if log_request.follow else {})


async def _write_all(response: web.StreamResponse, waiting: asyncio.Queue[bytes | None], sources: int) -> None:
    """The lines of all sources, until the last one has ended."""
    while sources:
        line = await waiting.get()
        if line is None:
            sources -= 1
        else:
            await response.write(line)


def _log_request(call: Call) -> LogRequest:
    origin, tail = call.query.get("origin") or "end", number(call.query, "tail")
    if origin not in ("start", "end"):
        raise Refused(400, "origin must be start or end")
    if tail is not None and not 0 <= tail <= TAIL_MAX:
        raise Refused(400, f"tail must be a number of bytes from 0 to {TAIL_MAX}")
    offset = 0 if origin == "start" else TAIL_BYTES if tail is None else tail
    return LogRequest(offset, origin, flag(call.query, "follow"), call.query.get("grep", "").lower())


def _sources(call: Call) -> Iterator[TaskLogSource]:
    """The requested logs, of the newest allocations first; raises Refused for missing ones."""
    view, key = loaded_view(call), job_key(call)
    allocs = {alloc.id: alloc for alloc in view.of(AllocationRows).where("job", key)}
    if not allocs and key not in view.of(JobRows):
        raise Refused(404, "job not found")
    kinds = KINDS.get(call.query.get("type") or "both")
    if kinds is None:
        raise Refused(400, "type must be stdout, stderr or both")
    named = [check_uuid(each, "alloc") for each in call.query.getall("alloc", ())]
    if missing := [each for each in named if each not in allocs]:
        raise Refused(404, f'The job has no allocation "{missing[0]}"')
    group, task = call.query.get("group", ""), call.query.get("task", "")
    chosen = [allocs[each] for each in named] or _shown(allocs.values())
    for alloc in sorted(chosen, key=lambda alloc: (-alloc.create_index, alloc.id)):
        for name in _tasks(alloc) if group in ("", alloc.task_group) else ():
            if task in ("", name):
                yield from (TaskLogSource(alloc, name, kind) for kind in kinds)


def _tasks(alloc: Allocation) -> tuple[str, ...]:
    """The tasks of the job's version that the allocation runs."""
    group = alloc.job.group(alloc.task_group) if alloc.job is not None else None
    return tuple(task.name for task in group.tasks) if group is not None else ()


def _shown(allocs: Iterable[Allocation]) -> list[Allocation]:
    """Running and failed allocations; if there are none, all."""
    candidates = list(allocs)
    return [alloc for alloc in candidates if alloc.client_status not in ENDED] or candidates


async def _read(
    call: Call, index: int, source: TaskLogSource, log_request: LogRequest, waiting: asyncio.Queue[bytes | None]
) -> None:
    """Put the lines of one source, and None at its end."""
    text = _LogText(log_request.grep)
    try:
        async with aclosing(_frames(call, source, log_request)) as frames:
            await _put_text(index, text, frames, waiting)
        if piece := text.end():
            await waiting.put(_line({"Source": index, "Text": piece}))
    except (YurtError, OSError) as error:  # The other sources go on.
        await waiting.put(_line({"Source": index, "Error": str(public_error(error))}))
    await waiting.put(None)


async def _put_text(
    index: int, text: _LogText, frames: AsyncIterator[StreamFrame], waiting: asyncio.Queue[bytes | None]
) -> None:
    """Put the lines of one source's frames."""
    async for frame in frames:
        if piece := text.add(frame.data):
            await waiting.put(_line({"Source": index, "Text": piece}))
        elif not frame.data:
            await waiting.put(_line({}))


def _frames(call: Call, source: TaskLogSource, log_request: LogRequest) -> AsyncGenerator[StreamFrame]:
    """The frames of one source; raises as `find_alloc` does."""
    alloc_id, node = node_of_alloc(call, source.alloc.id)
    offset, origin = log_request.offset, log_request.origin
    if not log_request.follow:
        return node.stream_logs(alloc_id, source.task, kind=source.kind, offset=offset, origin=origin, follow=False)
    log = WantedLog(alloc_id, source.task, source.kind, offset, origin)
    return FollowedLog(log, partial(call.node_port, source.alloc.node_id), call.context.env).frames(node)


class _LogText:
    """Bytes of a log as text; with `grep` only the lines that hold it, letters of either case."""

    def __init__(self, grep: str) -> None:
        self._grep = grep
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._rest = ""

    def add(self, data: bytes) -> str:
        """The part of the next bytes to show."""
        text = self._decoder.decode(data)
        if not self._grep:
            return text
        *lines, self._rest = (self._rest + text).split("\n")
        self._rest = self._rest[:LINE_MAX]
        return "".join(f"{line}\n" for line in lines if self._grep in line.lower())

    def end(self) -> str:
        """The rest to show when the log ends."""
        rest = self._rest + self._decoder.decode(b"", final=True)
        return rest if self._grep in rest.lower() else ""


def _line(wire: dict[str, Any]) -> bytes:
    return encode_builtins(wire) + b"\n"
