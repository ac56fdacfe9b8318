"""Requests on a job over HTTP, and the choice of the next one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

from yurt.testing.histories.history import Operation, Request
from yurt.testing.histories.jobs import (
    GROUPS,
    TAG,
    AcceptedWrite,
    ClearTag,
    DeregisterRequest,
    Evaluate,
    JobModel,
    ReadJob,
    ReadVersions,
    Register,
    Revert,
    Scale,
    SeenVersion,
    SetStable,
    SetTag,
    Version,
)
from yurt.testing.histories.kinds import PreparedRequest, job_records, put

COUNT_MAX: Final = 5


class JobKind:
    """A batch job without feasible nodes: only requests change it."""

    name = "job"

    def __init__(self) -> None:
        self.model = JobModel()

    def key(self, number: int) -> str:
        """A job id."""
        return f"job-{number}"

    def prepare(self, key: str, request: Any) -> PreparedRequest:
        """See `Kind.prepare`."""
        at = f"/v1/job/{key}"
        match request:
            case Register():
                return put("/v1/jobs", _registration(key, request))
            case DeregisterRequest(purge=purge):
                return PreparedRequest("DELETE", f"{at}?purge=true" if purge else at)
            case Scale(group=group, count=count, enforce=enforce):
                expected = {} if enforce is None else {"EnforceIndex": True, "JobModifyIndex": enforce}
                return put(f"{at}/scale", {"Target": {"Job": key, "Group": group}, "Count": count, **expected})
            case Revert(version=version, prior=prior):
                return put(f"{at}/revert", {"JobID": key, "JobVersion": version, "EnforcePriorVersion": prior})
            case SetStable(version=version, stable=stable):
                return put(f"{at}/stable", {"JobID": key, "JobVersion": version, "Stable": stable})
            case SetTag(version=version):
                return put(f"{at}/versions/{TAG}/tag", {} if version is None else {"Version": version})
            case ClearTag():
                return PreparedRequest("DELETE", f"{at}/versions/{TAG}/tag")
            case Evaluate():
                return put(f"{at}/evaluate", {"JobID": key})
            case ReadVersions():
                return PreparedRequest("GET", f"{at}/versions")
            case _:
                return PreparedRequest("GET", at)

    def body_of(self, request: Any, document: Any) -> Any:
        """See `Kind.body_of`."""
        match request:
            case ReadJob():
                return _seen(document)
            case ReadVersions():
                return tuple(_seen(each) for each in document["Versions"])
            case Register() | DeregisterRequest() | Scale() | Revert() | Evaluate():
                return AcceptedWrite(document["JobModifyIndex"])
            case _:
                return None

    def choose(self, rng: random.Random, past: Sequence[Operation], mark: str) -> Request:
        """See `Kind.choose`."""
        kind = rng.choices(list(_CHOICES), list(_CHOICES.values()))[0]
        index, version = _known_of(rng, past)
        count, group = rng.randrange(COUNT_MAX + 1), rng.choice(GROUPS)
        counts = (rng.randrange(COUNT_MAX + 1), rng.randrange(COUNT_MAX + 1))
        options: dict[str, Request] = {
            "register": Register(mark, counts),
            "register again": Register("same", (1, 1)),
            "register new": Register(mark, counts, enforce=0),
            "register over": Register(mark, counts, enforce=index),
            "register keeping counts": Register(mark, counts, keeps_counts=True),
            "stop": DeregisterRequest(),
            "purge": DeregisterRequest(purge=True),
            "scale": Scale(group, count),
            "scale over": Scale(group, count, enforce=index),
            "revert": Revert(max(0, version - rng.randrange(4))),
            "revert over": Revert(max(0, version - 1 - rng.randrange(3)), prior=version),
            "stable": SetStable(max(0, version - rng.randrange(3)), rng.random() < 0.7),
            "tag": SetTag(None if rng.random() < 0.5 else version),
            "untag": ClearTag(),
            "evaluate": Evaluate(),
            "read": ReadJob(),
            "read versions": ReadVersions(),
        }
        return options[kind]

    def last_reads(self) -> Sequence[Request]:
        """See `Kind.last_reads`."""
        return ReadJob(), ReadVersions()

    def records(self, key: str) -> Sequence[str]:
        """See `Kind.records`."""
        return job_records(key)


_CHOICES: Final = {
    "register": 8, "register again": 2, "register new": 8, "register over": 8, "register keeping counts": 5, "stop": 7,
    "purge": 3, "scale": 14, "scale over": 4, "revert": 5, "revert over": 5, "stable": 3, "tag": 3, "untag": 2,
    "evaluate": 3, "read": 14, "read versions": 6,
}  # fmt: skip
"""Requests and how often each is chosen."""


def _known_of(rng: random.Random, past: Sequence[Operation]) -> tuple[int, int]:
    """A JobModifyIndex and a version that a client may believe to be current."""
    indexes, versions = [], []
    for each in past[-16:]:
        body = each.answer.body if each.answer is not None else None
        if isinstance(body, AcceptedWrite) and body.job_modify_index:
            indexes.append(body.job_modify_index)
        if isinstance(body, SeenVersion):
            indexes.append(body.version.at)
            versions.append(body.version.number)
    index = max(indexes, default=1) if rng.random() < 0.8 else rng.choice(indexes or [1])
    return index, (versions[-1] if versions else 0) + (rng.random() < 0.3)


def _registration(key: str, request: Register) -> dict[str, Any]:
    condition: dict[str, Any] = {"PreserveCounts": True} if request.keeps_counts else {}
    if request.enforce is not None:
        condition |= {"EnforceIndex": True, "JobModifyIndex": request.enforce}
    return {"Job": job_document(key, request.counts, {"mark": request.mark}), **condition}


def job_document(key: str, counts: Sequence[int], meta: dict[str, str], **changes: Any) -> dict[str, Any]:
    """A batch job with one group for each count; no node has its driver."""
    groups = [{"Name": name, "Count": count, "Tasks": [_TASK]} for name, count in zip(GROUPS, counts, strict=False)]
    return {"ID": key, "Name": key, "Type": "batch", "Meta": meta, "TaskGroups": groups, **_NOWHERE, **changes}


_TASK: Final = {"Name": "main", "Driver": "raw_exec", "Config": {"command": "/bin/true"}}
_NOWHERE: Final = {"Datacenters": ["nowhere"]}


def _seen(document: Any) -> SeenVersion:
    counts = {group["Name"]: group["Count"] for group in document["TaskGroups"]}
    version = Version(
        number=document["Version"],
        at=document["JobModifyIndex"],
        mark=(document["Meta"] or {}).get("mark", ""),
        counts=(counts[GROUPS[0]], counts[GROUPS[1]]),
        stop=document["Stop"],
        stable=document["Stable"],
    )
    tag = document.get("VersionTag")
    return SeenVersion(version, tag["Name"] if tag else "")
