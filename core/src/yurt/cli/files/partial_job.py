"""A server's findings in a job file with unreadable lines, so that all mistakes are reported at once.

The server gets the job without those parts, which it fills with defaults. What it then finds may follow from a part
that is missing, and such findings are left out: those of an object that is damaged itself, those that compare a damaged
group's parts, and those that depend on the job's type when the job block is damaged. Without an agent the findings of
the file are all there is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from yurt.cli.declaration import Invocation
from yurt.cli.errors import JobFileError
from yurt.cli.files.finding_positions import Path, diagnostic_of, follow, messages
from yurt.sdk.errors import YurtError

if TYPE_CHECKING:
    from yurt_jobspec import Diagnostic, PartialJob

Json = dict[str, Any]

TIMEOUT_S = 3.0
"""The findings of the file wait no longer than this for an agent."""
_OF_FIELD = re.compile(r"(^|: )([Ii]nvalid|Unsupported|Unknown) |can't be negative$|is not (a )?valid|has invalid port")
"""Messages about the value of a single field."""
_GROUP = 2
"""Steps of a path that lead to a group."""
_OF_GROUP = re.compile(
    r"unknown port label|has no port|is not a port|undefined volume|does not exist|(no|one) main task|Missing tasks|"
    r"\bcount\b|more than once|log storage|ProgressDeadline|redefines"
)
"""Messages that compare one part of a group with another."""
_OF_JOB = re.compile(r"jobs?\b.*\b(may|should|can|does) |[Jj]ob type|can only be used|no effect|priority|nonexistent")
"""Messages that depend on a field of the job block."""


def with_server_findings(call: Invocation, error: JobFileError) -> JobFileError:
    """The error, extended by the server's findings in the rest of the job."""
    told = server_errors(call, error)
    return JobFileError([*error.diagnostics, *told], error.sources) if told else error


def server_errors(call: Invocation, error: JobFileError) -> list[Diagnostic]:
    """The server's findings in the readable part of the job; none without an agent or a token for it."""
    from yurt.cli.api.client import ApiClient

    partial = error.partial
    if partial is None:
        return []
    asked = {"Job": partial.job}
    api = ApiClient(call.api.connection._replace(timeout_s=TIMEOUT_S))
    try:
        query = {"namespace": partial.job.get("Namespace"), "region": partial.job.get("Region")}
        answer: Any = api.put("/v1/validate/job", asked, query)
    except (YurtError, ValueError):
        return []
    finally:
        api.close()
    if not isinstance(answer, dict):
        return []
    lines = {item.line for item in error.diagnostics}
    texts: list[str] = answer.get("ValidationErrors") or []
    found = [each for text in texts for each in _independent(partial, text)]
    return [each for each in found if each.line not in lines]


def _independent(partial: PartialJob, text: str) -> Iterator[Diagnostic]:
    """The findings that follow from none of the parts that are missing."""
    for message in messages(text):
        path = follow(partial.job, message)
        if path and not _may_follow(partial, path, message):
            found = diagnostic_of(partial.job, partial.positions, message)
            if found.line is not None:
                yield found


def _may_follow(partial: PartialJob, path: Path, message: str) -> bool:
    damaged = partial.damaged
    if path in partial.positions and _OF_FIELD.search(message):
        return False
    if _owner(partial.job, path) in damaged:
        return True
    group = path[:_GROUP]
    if _OF_GROUP.search(message) and any(each[:_GROUP] == group for each in damaged):
        return True
    return () in damaged and _OF_JOB.search(message) is not None


def _owner(job: Json, path: Path) -> Path:
    """The path of the innermost object that a path leads through."""
    value: Any = job
    owner: Path = ()
    for length, step in enumerate(path, start=1):
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            break
        if isinstance(value, dict):
            owner = path[:length]
    return owner
