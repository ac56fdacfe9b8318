"""Rules for the blocks `requeue` and `checkpoint` of a group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from yurt.rules.problems import DELAY_FUNCTIONS, escapes, is_open, is_signal, near_hint, one_of
from yurt.sdk.value import NANOSECONDS, duration_text
from yurt.structs import status
from yurt.structs.job import Job, TaskGroup
from yurt.structs.policies import Checkpoint, Requeue

GRACE_MAX: Final = 3600 * NANOSECONDS
PATH_MAX: Final = 512


def preemption_problems(job: Job, group: TaskGroup) -> Iterator[str]:
    """Problems of both blocks, each with its key."""
    for name, block in (("requeue", group.requeue), ("checkpoint", group.checkpoint)):
        if block is not None and job.type != status.JOB_BATCH:
            yield f"{name} can only be used with batch jobs: what a {job.type} job runs is replaced at once"
    if group.requeue is not None:
        yield from _requeue_problems(group.requeue)
    if group.checkpoint is not None:
        yield from _checkpoint_problems(group, group.checkpoint)


def _requeue_problems(requeue: Requeue) -> Iterator[str]:
    if requeue.delay < 0:
        yield f"requeue delay can't be negative (got {duration_text(requeue.delay)})"
    if requeue.delay_function not in DELAY_FUNCTIONS:
        name = requeue.delay_function
        hint = near_hint(name, DELAY_FUNCTIONS)
        yield f'requeue delay_function "{name[:64]}" is not valid: use {one_of(DELAY_FUNCTIONS)}{hint}'
    if requeue.max_delay < 0:
        yield f"requeue max_delay can't be negative (got {duration_text(requeue.max_delay)})"
    elif 0 < requeue.max_delay < requeue.delay:
        yield (
            f"requeue max_delay ({duration_text(requeue.max_delay)}) is shorter than delay "
            f"({duration_text(requeue.delay)}): raise it, or leave it out"
        )


def _checkpoint_problems(group: TaskGroup, checkpoint: Checkpoint) -> Iterator[str]:
    if not is_signal(checkpoint.signal):
        yield f'checkpoint signal "{checkpoint.signal[:64]}" is not a signal: use a name such as SIGUSR1'
    if not 0 < checkpoint.grace <= GRACE_MAX:
        grace = duration_text(checkpoint.grace)
        yield f"checkpoint grace must be above 0 and at most {duration_text(GRACE_MAX)} (got {grace})"
    if checkpoint.interval < 0:
        yield f"checkpoint interval can't be negative (got {duration_text(checkpoint.interval)})"
    yield from _path_problems(group, checkpoint.path)


def _path_problems(group: TaskGroup, path: str) -> Iterator[str]:
    shown = path[:64]
    parts = path.strip("/").split("/")
    if not path or len(path) > PATH_MAX or "\0" in path:
        yield f"checkpoint path must have between 1 and {PATH_MAX} characters, none of them a null character"
    elif is_open(path):
        yield f'checkpoint path "{shown}" must be plain: no ${{...}}; a relative one lies in alloc/data by itself'
    elif escapes(path) or any(part in ("", ".", "..") for part in parts):
        yield f'checkpoint path "{shown}" must have no empty part, "." or ".."'
    elif not path.startswith("/"):
        if not group.ephemeral_disk.sticky:
            yield (
                f'checkpoint path "{shown}" lies in alloc/data, which the next allocation does not take over: '
                "set sticky = true in ephemeral_disk, or use an absolute path in a volume"
            )
    elif not any(_is_below(path, mount.destination) for task in group.tasks for mount in task.volume_mounts):
        yield (
            f'checkpoint path "{shown}" lies in no volume_mount of the group\'s tasks, so it ends with the '
            "allocation: mount a volume there, or use a relative path"
        )


def _is_below(path: str, folder: str) -> bool:
    top = folder.rstrip("/")
    return path == top or path.startswith(f"{top}/")
