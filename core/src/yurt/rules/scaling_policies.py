"""Scaling policies: the `scaling` blocks of the groups of all unstopped jobs.

They have no table of their own. A policy's id follows from its job and group, so it is the same on every server and
after every restart, and outlives changes of the job.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final

from yurt.sdk.value import replace
from yurt.structs.job import Job
from yurt.structs.task import ScalingPolicy

HORIZONTAL: Final = "horizontal"
_UUID_BITS: Final = 0xF000 << 64 | 0xC000 << 48
_UUID_4: Final = 4 << 76 | 0x8000 << 48
"""The version bits of a UUID, and their value for version 4."""


def policy_id(namespace: str, job_id: str, group: str) -> str:
    """The id of a group's policy."""
    key = "\0".join((namespace, job_id, group)).encode()
    number = int.from_bytes(hashlib.blake2b(key, digest_size=16, person=b"scaling policy").digest(), "big")
    text = f"{number & ~_UUID_BITS | _UUID_4:032x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def policies_of(job: Job) -> Iterator[ScalingPolicy]:
    """The policies of a job's groups; a stopped job has none."""
    for group in job.task_groups:
        if group.scaling is not None and not job.stop:
            yield replace(
                group.scaling,
                id=policy_id(job.namespace, job.id, group.name),
                namespace=job.namespace,
                type=group.scaling.type or HORIZONTAL,
                target={"Namespace": job.namespace, "Job": job.id, "Group": group.name},
                create_index=job.create_index,
                modify_index=job.job_modify_index,
            )
