"""A server's findings in a job file with unreadable lines, so that all mistakes are reported at once.

The server gets the job without those parts, which it fills with defaults. What it then finds may follow from a default,
and such findings are left out; the path of a finding decides. Left out are those of an object that is damaged itself,
those of a field that is compared with a damaged part of its group, those of a block that takes defaults from a damaged
block of its group or job, and those that depend on the job's type when the type may be what could not be read. Without
an agent the findings of the file are all there is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
_GROUP = 2
"""Steps of a path that lead to a group."""
_ALONE = frozenset(
    {
        "AddressMode", "ChangeMode", "ChangeSignal", "Count", "Datacenters", "DelayFunction", "Driver", "EmbeddedTmpl",
        "GetterMode", "HealthCheck", "KillSignal", "Mode", "Name", "Namespace", "NodePool", "OnUpdate", "Perms",
        "Priority", "PropagationMode", "Provider", "Region", "Spec", "TimeZone", "Type",
    }
)  # fmt: skip
"""Fields of which no default of another field makes a written value wrong."""
_COMPARED: Mapping[str, tuple[str, ...]] = {
    "Checks": ("Services",),
    "Gang": ("Networks", "Tasks"),
    "Hook": ("Tasks",),
    "KillTimeout": ("Update",),
    "Leader": ("Tasks",),
    "Lifecycle": ("Tasks",),
    "LogConfig": ("EphemeralDisk",),
    "Max": (),
    "Min": (),
    "Port": ("Networks",),
    "PortLabel": ("Networks",),
    "Rendezvous": ("Networks", "Tasks"),
    "Scaling": (),
    "TaskName": ("Tasks",),
    "Volume": ("Volumes",),
    "ports": ("Networks",),
}
"""Fields whose findings may follow from a default of the group itself, or of one of these parts of it."""
_INHERITED: Mapping[str, tuple[int, str]] = {
    "KillTimeout": (0, "Update"),
    "Migrate": (0, "Migrate"),
    "ReschedulePolicy": (0, "Reschedule"),
    "RestartPolicy": (_GROUP, "RestartPolicy"),
    "Update": (0, "Update"),
}
"""Parts that depend on a block of an outer object: the steps that lead to that object, and the block."""
_BY_TYPE = frozenset(
    {
        "Checkpoint", "Idle", "MaxRunDuration", "ParameterizedJob", "Periodic", "Requeue", "ReschedulePolicy",
        "RestartPolicy",
    }
)  # fmt: skip
"""Blocks and fields that the default type, service, refuses, or for which it has other defaults than batch."""
_OF_JOB = frozenset({"DispatchPayload"})
"""Blocks of tasks that ask for a block of the job."""


def with_server_findings(call: Invocation, error: JobFileError) -> JobFileError:
    """The error, extended by the server's findings in the rest of the job."""
    located = server_errors(call, error)
    return JobFileError([*error.diagnostics, *located], error.sources) if located else error


def server_errors(call: Invocation, error: JobFileError) -> list[Diagnostic]:
    """The server's findings in the readable part of the job; none without an agent or a token for it."""
    from yurt.cli.api.client import ApiClient

    partial = error.partial
    if partial is None:
        return []
    body = {"Job": partial.job}
    api = ApiClient(call.api.connection._replace(timeout_s=TIMEOUT_S))
    try:
        query = {"namespace": partial.job.get("Namespace"), "region": partial.job.get("Region")}
        answer: Any = api.put("/v1/validate/job", body, query)
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
        if path and not _may_follow(partial, path):
            found = diagnostic_of(partial.job, partial.positions, message)
            if found.line is not None:
                yield found


def _may_follow(partial: PartialJob, path: Path) -> bool:
    """Whether a finding may follow from what could not be read."""
    damaged = partial.damaged
    if path in partial.positions and path[-1] in _ALONE:
        return False
    owner = _owner(partial.job, path)
    # A finding about an element that a default names leads only to what is around it.
    place = path if path in partial.positions else owner
    if owner in damaged or any(each[: len(place)] == place for each in damaged) or _inherits_damage(partial, path):
        return True
    if () in damaged and (_has(path, _OF_JOB) or ("Type" not in partial.job and _has(path, _BY_TYPE))):
        return True
    group, field = path[:_GROUP], next((step for step in reversed(path) if isinstance(step, str)), "")
    compared = _COMPARED.get("ports" if "ports" in path else field)
    return compared is not None and any(each == group or _part_of(each, group) in compared for each in damaged)


def _inherits_damage(partial: PartialJob, path: Path) -> bool:
    """Whether a finding may follow from a damaged block that gives defaults to the part at the path."""
    for length, step in enumerate(path):
        outer_length, field = _INHERITED.get(str(step), (length, ""))
        if outer_length >= length:
            continue
        outer = path[:outer_length]
        # A block that the outer object lacks may be the part of it that could not be read.
        is_lost = outer in partial.damaged and _owner(partial.job, (*outer, field)) == outer
        if is_lost or (*outer, field) in partial.damaged:
            return True
    return False


def _has(path: Path, steps: frozenset[str]) -> bool:
    return any(step in steps for step in path)


def _part_of(path: Path, group: Path) -> str:
    """The field of the group that a path leads through; empty for one elsewhere."""
    return str(path[_GROUP]) if path[:_GROUP] == group and len(path) > _GROUP else ""


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
