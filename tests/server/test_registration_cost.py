"""What the admission of a plain job takes, in calls of functions: a number that no other work on the machine changes.

A plain job names nothing of its nodes, has no services, no signals and no policy on idle devices, as most jobs. What
a feature asks of the jobs that use it must cost these nothing. Seconds are measured by `python -m bench server`.
"""

from __future__ import annotations

import asyncio
import sys
from types import FrameType
from typing import Any

from yurt.api.decode import decode_job
from yurt.server.config import ServerConfig
from yurt.server.resources.admission import admitted, with_defaults
from yurt.state import Snapshot, Tables
from yurt.testing import factories

TRIES = 3
CALLS_MAX = 378
"""The calls of an admission, those in C included, and a margin of a tenth, as versions of Python differ."""
TASK: dict[str, Any] = {
    "Name": "main",
    "Driver": "exec",
    "Config": {"command": "/bin/sleep", "args": ["600"]},
    "Env": {"MODE": "plain"},
    "Resources": {"CPU": 100, "MemoryMB": 64},
}
GROUP: dict[str, Any] = {"Name": "main", "Count": 1}
JOB: dict[str, Any] = {"ID": "web", "Type": "service"}


def state_with_nodes(count: int) -> Snapshot:
    """A state with ready nodes."""
    transaction = Snapshot.empty().edit(2)
    for _ in range(count):
        node = factories.node()
        transaction.put(Tables.nodes, node.id, node)
    return transaction.commit()


def calls_of_admission(state: Snapshot) -> int:
    """The calls of functions from the document of a job to its warnings, when it was admitted before."""
    count, counts = 0, list[int]()

    def counted(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    async def admit_once() -> None:
        nonlocal count
        document = {**JOB, "TaskGroups": [{**GROUP, "Tasks": [dict(TASK)]}]}
        config = ServerConfig(name="cost")
        count = 0
        sys.setprofile(counted)
        try:
            job = with_defaults(state, decode_job(document)[0])
            admission = await admitted(state, job, config, reads_nodes=True)
        finally:
            sys.setprofile(None)
        assert not admission.errors, admission.errors
        counts.append(count)

    for _ in range(TRIES):
        asyncio.run(admit_once())
    return min(counts[1:])


def test_the_admission_of_a_plain_job_takes_few_calls() -> None:
    assert calls_of_admission(state_with_nodes(60)) <= CALLS_MAX
