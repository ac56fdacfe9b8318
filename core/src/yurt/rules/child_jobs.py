"""Children of periodic and parameterized jobs, and the checks of a dispatch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from yurt.sdk.value import UnixNano, replace
from yurt.structs import status
from yurt.structs.job import Job

PERIODIC_INFIX: Final = "/periodic-"
DISPATCH_INFIX: Final = "/dispatch-"
INSTANCE_SUFFIX: Final = "/instance"
PAYLOAD_LIMIT: Final = 16 * 1024
SECOND: Final = 1_000_000_000


def periodic_child(parent: Job, at: UnixNano) -> Job:
    """The job that a periodic parent launches for the time `at`; its unique id prevents a second launch."""
    return replace(_fresh(parent, periodic_child_id(parent.id, at)), periodic=None)


def periodic_child_id(parent_id: str, at: UnixNano) -> str:
    """`<id>/periodic-<unix s>`."""
    return f"{parent_id}{PERIODIC_INFIX}{at // SECOND}"


def dispatched_child(parent: Job, child_id: str, *, payload: bytes, meta: Mapping[str, str], token: str) -> Job:
    """The job that a dispatch of a parameterized parent creates."""
    return replace(
        _fresh(parent, child_id),
        dispatched=True,
        payload=payload,
        meta={**parent.meta, **meta},
        dispatch_idempotency_token=token,
    )


def instance_of(job: Job) -> Job:
    """A child of a periodic or parameterized job as placement would see it; other jobs unchanged.

    It has neither a payload nor metadata of its own, and is never stored.
    """
    if not job.is_template:
        return job
    return replace(_fresh(job, f"{job.id}{INSTANCE_SUFFIX}"), periodic=None, parameterized_job=None)


def dispatch_id(parent_id: str, *, template: str, at: UnixNano, suffix: str) -> str:
    """`<id>/dispatch-[<template>-]<unix s>-<8 hex>`."""
    middle = f"{template}-" if template else ""
    return f"{parent_id}{DISPATCH_INFIX}{middle}{at // SECOND}-{suffix[:8]}"


def dispatch_problem(job: Job | None, job_id: str, payload: bytes, meta: Mapping[str, str]) -> str:
    """The reason why the job cannot be dispatched with this payload and metadata, or ''."""
    if job is None:
        return "parameterized job not found"
    spec = job.parameterized_job
    if spec is None or job.dispatched:
        return f'Specified job "{job_id}" is not a parameterized job'
    if job.stop:
        return f'Specified job "{job_id}" is stopped'
    if spec.payload == "required" and not payload:
        return "Payload is not provided but required by parameterized job"
    if spec.payload == "forbidden" and payload:
        return "Payload provided but forbidden by parameterized job"
    if len(payload) > PAYLOAD_LIMIT:
        return f"Payload exceeds maximum size; {len(payload)} > {PAYLOAD_LIMIT}"
    unknown = sorted(set(meta) - set(spec.meta_required) - set(spec.meta_optional))
    if unknown:
        return f"Dispatch request included unpermitted metadata keys: {_listed(unknown)}"
    missing = sorted(key for key in spec.meta_required if key not in meta)
    if missing:
        return f"Dispatch did not provide required meta keys: {_listed(missing)}"
    return ""


def _listed(words: Iterable[str]) -> str:
    return "[" + " ".join(words) + "]"


def _fresh(parent: Job, child_id: str) -> Job:
    return replace(
        parent,
        id=child_id,
        name=child_id,
        parent_id=parent.id,
        status=status.JOB_PENDING,
        status_description="",
        stable=False,
        version=0,
        version_tag=None,
        create_index=0,
        modify_index=0,
        job_modify_index=0,
    )
