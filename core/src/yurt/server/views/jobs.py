"""Jobs, their versions, source texts, summaries and scaling events."""

from __future__ import annotations

from yurt.access import Scope
from yurt.server.views.rows import NamespacedRow
from yurt.state.tables import JobKey, VersionKey
from yurt.state.watch import WatchKey
from yurt.structs.job import Job, JobScalingEvents, JobSubmission
from yurt.structs.summary import JobSummary


class JobRows(NamespacedRow[JobKey, Job]):
    """Jobs by namespace and id; indexed by `parent`."""

    __slots__ = ()
    name = "jobs"

    def submission(self, key: VersionKey) -> JobSubmission | None:
        """The source text of a version; its scope is its job's."""
        is_seen = self._access.sees_all or self._access.allows(Scope(namespace=key[0]))
        return self._state.job_submissions.get(key) if is_seen else None

    @property
    def has_policies(self) -> bool:
        """Whether any job has a scaling policy, whatever the caller may read."""
        return self._state.jobs.count_where("scaled", "scaled") > 0

    @property
    def submissions_index(self) -> int:
        """When a source text changed last."""
        return self._state.job_submissions.index

    @staticmethod
    def watched_submission(key: VersionKey) -> WatchKey:
        """The watch keys of a version's source text."""
        return ("job_submissions", key)


class JobVersionRows(NamespacedRow[VersionKey, Job]):
    """Retained versions of jobs; indexed by `job`."""

    __slots__ = ()
    name = "job_versions"

    def newest_first(self, key: JobKey) -> list[Job]:
        """The versions of a job."""
        return sorted(self.where("job", key), key=lambda job: job.version, reverse=True)

    def index_of_job(self, key: JobKey) -> int:
        """When a version of the job changed last."""
        return max((job.modify_index for job in self.newest_first(key)), default=self.index)


class JobSummaryRows(NamespacedRow[JobKey, JobSummary]):
    """The number of allocations by group and status."""

    __slots__ = ()
    name = "job_summaries"


class ScalingEventRows(NamespacedRow[JobKey, JobScalingEvents]):
    """Attempts to scale the groups of jobs."""

    __slots__ = ()
    name = "scaling_events"
