"""Hints for an identifier that was not found: another kind of object, another namespace, a near miss.

The questions are asked only after a look-up has failed; one that fails itself adds nothing.
"""

from __future__ import annotations

from yurt.cli.advice import shows_hints
from yurt.cli.declaration import Invocation
from yurt.cli.json_object import Json
from yurt.cli.suggest import nearest
from yurt.sdk.errors import YurtError

JOBS_MAX = 1000
"""Number of jobs that are compared for a near miss."""
KINDS = {
    "jobs": ("a job", "yurt job status"),
    "allocs": ("an allocation", "yurt alloc status"),
    "nodes": ("a node", "yurt node status"),
    "evals": ("an evaluation", "yurt eval status"),
    "deployment": ("a deployment", "yurt deployment status"),
    "namespaces": ("a namespace", "yurt namespace status"),
    "node_pools": ("a node pool", "yurt node pool info"),
}


def hint(call: Invocation, noun: str, identifier: str) -> str:
    """A line about the identifier's meaning, after a line break; empty when unknown.

    `noun`: the kind that was not found, one of KINDS.
    """
    found = _other_kind(call, noun, identifier)
    if not found and noun == "jobs":
        found = _other_namespace(call, identifier) or _near_miss(call, identifier)
    if not found and noun == "nodes":
        found = _node_by_name(call, identifier)
    if not found and shows_hints():
        lists = {"jobs": "yurt job status", "nodes": "yurt node status", "allocs": "yurt job allocs JOB"}
        found = f"List them with: {lists[noun]}" if noun in lists else ""
    return f"\n{found}" if found else ""


def is_job(call: Invocation, name: str) -> bool:
    """Whether a job of the namespace has exactly this id."""
    try:
        found: list[Json] = call.api.get("/v1/jobs", {"prefix": name}) or []
    except YurtError:
        return False
    return any(job["ID"] == name for job in found)


def _other_kind(call: Invocation, noun: str, identifier: str) -> str:
    if len(identifier) < 2:
        return ""
    try:
        answer: Json = call.api.put("/v1/search", {"Prefix": identifier, "Context": "all"}) or {}
    except YurtError:
        return ""
    for kind, (what, command) in KINDS.items():
        matches = (answer.get("Matches") or {}).get(kind) or ()
        is_certain = identifier in matches or (kind in ("allocs", "nodes", "evals", "deployment") and len(matches) == 1)
        if kind != noun and is_certain:
            if kind == "jobs" and noun == "allocs":
                return f'"{identifier}" is a job; its allocations are listed by: yurt job allocs {identifier}'
            return f'"{identifier}" is {what}; it is shown by: {command} {identifier}'
    return ""


def _other_namespace(call: Invocation, job_id: str) -> str:
    try:
        found: list[Json] = call.api.get("/v1/jobs", {"prefix": job_id, "namespace": "*"}) or []
    except YurtError:
        return ""
    spaces = sorted(job.get("Namespace") or "default" for job in found if job["ID"] == job_id)
    if not spaces or spaces == [call.api.namespace]:
        return ""
    return f"A job with this id is in namespace {', '.join(spaces)}: repeat the command with -namespace {spaces[0]}"


def _near_miss(call: Invocation, job_id: str) -> str:
    try:
        jobs: list[Json] = call.api.get("/v1/jobs", {"per_page": JOBS_MAX}) or []
    except YurtError:
        return ""
    near = nearest(job_id, [job["ID"] for job in jobs])
    return f'Did you mean "{near}"?' if near else ""


def _node_by_name(call: Invocation, name: str) -> str:
    try:
        nodes: list[Json] = call.api.get("/v1/nodes") or []
    except YurtError:
        return ""
    named = [node for node in nodes if node.get("Name") == name]
    return f'The node named "{name}" has the id {named[0]["ID"][:8]}; nodes are given by id' if named else ""
