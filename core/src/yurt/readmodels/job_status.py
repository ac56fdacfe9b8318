"""The derived status of a job: one word for the state of its allocations, shared by API, pages and commands.

A job whose allocations fail does not run, whatever its own status says. What counts is how the desired count is met:
`missing` allocations are desired, and neither run, start, wait for capacity, nor (batch) have completed. Old failures
alone say nothing, because a replacement may run.
"""

from __future__ import annotations

from typing import Final, NamedTuple

STOPPED: Final = "stopped"
FAILED: Final = "failed"
FAILING: Final = "failing"
DEGRADED: Final = "degraded"
WAITING: Final = "waiting"
DEPLOYING: Final = "deploying"
STARTING: Final = "starting"
RUNNING: Final = "running"
COMPLETE: Final = "complete"
SCHEDULED: Final = "scheduled"
SCALED_DOWN: Final = "scaled-down"

STATUSES: Final = (
    FAILED, FAILING, DEGRADED, WAITING, DEPLOYING, STARTING, RUNNING, COMPLETE, SCHEDULED, SCALED_DOWN, STOPPED,
)  # fmt: skip
"""All words, most urgent first."""


class Counts(NamedTuple):
    """Numbers of a job's allocations."""

    desired: int = 0
    running: int = 0
    starting: int = 0
    waiting: int = 0
    """Allocations without capacity."""
    complete: int = 0
    failed: int = 0
    lost: int = 0
    unknown: int = 0
    restarting: int = 0
    """Those of `starting` whose task has failed and is started again."""


class Circumstances(NamedTuple):
    """The inputs of a status besides the counts."""

    is_stopped: bool = False
    is_template: bool = False
    """Periodic or parameterized: it launches children and has no allocations."""
    is_batch: bool = False
    is_dead: bool = False
    """The job's own status: nothing of it will run again without a change."""
    deployment: str = ""
    """`active`, `failed`, or "" where the newest deployment of the version is neither."""
    unhealthy: int = 0
    """Unhealthy allocations of that deployment."""


def job_status(counts: Counts, around: Circumstances) -> str:
    """The status of a job."""
    if around.is_stopped:
        return STOPPED
    if around.is_template:
        return SCHEDULED
    present = counts.running + counts.starting + counts.waiting + counts.unknown
    if not counts.desired and not present:
        return COMPLETE if around.is_batch and around.is_dead else SCALED_DOWN
    if around.is_batch and counts.complete >= counts.desired and not present:
        return COMPLETE
    if trouble := _trouble(counts, around, present):
        return trouble
    if counts.waiting:
        return WAITING
    if around.deployment == "active":
        return DEPLOYING
    done = counts.complete if around.is_batch else 0
    return STARTING if counts.starting or counts.running + done < counts.desired else RUNNING


def _trouble(counts: Counts, around: Circumstances, present: int) -> str:
    """`failed`, `failing` or `degraded`; "" where nothing has failed, or failed allocations were replaced."""
    done = counts.complete if around.is_batch else 0
    missing = counts.desired - present - done
    has_failed = counts.failed + counts.lost > 0
    if around.deployment == "active":
        # Between two versions some are missing for a moment: only what the deployment itself calls unhealthy counts.
        has_failed, missing = around.unhealthy > 0, around.unhealthy
    is_broken = (missing > 0 and has_failed) or counts.restarting > 0 or around.deployment == "failed"
    if not (is_broken or counts.unknown):
        return ""
    if counts.running or (around.deployment == "failed" and not has_failed and not counts.restarting):
        return DEGRADED
    if counts.restarting or not around.is_dead:
        return FAILING if is_broken else DEGRADED
    return FAILED


def sentence(counts: Counts, status: str) -> str:
    """A summary for people: `1 of 3 runs, 2 wait for capacity`; "" where there is nothing to add."""
    if status in (STOPPED, SCHEDULED, SCALED_DOWN, COMPLETE, RUNNING):
        return ""
    parts = [f"{counts.running} of {counts.desired} {'runs' if counts.running == 1 else 'run'}"]
    words = (
        (counts.starting - counts.restarting, "starts", "start"), (counts.restarting, "restarts", "restart"),
        (counts.waiting, "waits for capacity", "wait for capacity"), (counts.unknown, "is unknown", "are unknown"),
        (counts.failed if status in (FAILED, FAILING, DEGRADED) else 0, "has failed", "have failed"),
        (counts.lost if status in (FAILED, FAILING, DEGRADED) else 0, "is lost", "are lost"),
    )  # fmt: skip
    parts += [f"{number} {one if number == 1 else many}" for number, one, many in words if number > 0]
    return ", ".join(parts)
