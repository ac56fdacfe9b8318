"""Log lines on the progress of jobs for operators: one for each start and end."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from yurt.state import Change
from yurt.structs.deployment import Deployment
from yurt.structs.job import Job
from yurt.structs.status import DEPLOYMENT_ACTIVE

log = logging.getLogger(__name__)


def log_lifecycle(changes: Iterable[Change]) -> None:
    """One line at INFO for each registered or stopped job and each ended deployment."""
    if not log.isEnabledFor(logging.INFO):
        return
    for line in lifecycle_lines(changes):
        log.info("%s", line)


def lifecycle_lines(changes: Iterable[Change]) -> Iterator[str]:
    """The lines for the changes of one command."""
    for change in changes:
        if change.table == "jobs":
            yield from _job_line(change.before, change.after)
        elif change.table == "deployments":
            yield from _deployment_line(change.before, change.after)


def _job_line(before: Job | None, after: Job | None) -> Iterator[str]:
    was_stopped = before is None or before.stop
    if after is None or after.stop:
        if before is not None and not was_stopped:
            yield f"job stopped: job={before.id} namespace={before.namespace}"
    elif before is None or was_stopped or after.version != before.version:
        yield f"job registered: job={after.id} namespace={after.namespace} version={after.version}"


def _deployment_line(before: Deployment | None, after: Deployment | None) -> Iterator[str]:
    if before is None or after is None or before.status == after.status or after.status in DEPLOYMENT_ACTIVE:
        return
    yield (
        f"deployment ended: deployment={after.id[:8]} job={after.job_id} version={after.job_version} "
        f"status={after.status}: {after.status_description}"
    )
