"""`yurt job revert`."""

from __future__ import annotations

from typing import Any

from yurt.cli.api.lookup import api_path, find_job
from yurt.cli.command import DETACH, VERBOSE, Command, Invocation
from yurt.cli.errors import CliError
from yurt.cli.job.inspect import version_of
from yurt.cli.views.follow import follow_or_detach

Json = dict[str, Any]


def run(call: Invocation) -> int:
    """Make a former version the present one."""
    job, wanted = find_job(call, call.args[0]), call.args[1]
    version = int(wanted) if wanted.isdigit() else int(version_of(call, job, wanted).get("Version") or 0)
    if version < 0:
        raise CliError(f'"{wanted}" is no version')
    body = {"JobID": job["ID"], "JobVersion": version, "Namespace": job.get("Namespace")}
    answer: Json = call.api.put(api_path("job", job["ID"], "revert"), body, {"namespace": job.get("Namespace")}) or {}
    return follow_or_detach(call, answer.get("EvalID") or "")


COMMAND = Command(
    "job revert",
    "Go back to a former version of a job; see `yurt job history`.",
    run,
    (DETACH, VERBOSE),
    (2, 2),
    "<job> <version|tag>",
    "two arguments: <job> <version|tag>",
)
