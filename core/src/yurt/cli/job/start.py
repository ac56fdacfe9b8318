"""`yurt job start`."""

from __future__ import annotations

from typing import Any

from yurt.cli.api.lookup import api_path, find_job
from yurt.cli.command import DETACH, VERBOSE, Command, Invocation
from yurt.cli.errors import ApiError, CliError
from yurt.cli.views.follow import follow_or_detach

Json = dict[str, Any]


def run(call: Invocation) -> int:
    """Run stopped jobs again, one after another; the worst exit code."""
    return max(_start(call, name) for name in call.args)


def _start(call: Invocation, name: str) -> int:
    stub = find_job(call, name)
    query = {"namespace": stub.get("Namespace")}
    job: Json = call.api.get(api_path("job", stub["ID"]), query)
    if not job.get("Stop"):
        raise CliError(f'The job "{stub["ID"]}" is not stopped; its status is {job["Status"]}')
    body: Json = {"Job": job | {"Stop": False}, "Submission": _submission(call, job)}
    answer: Json = call.api.put("/v1/jobs", body, query) or {}
    eval_id = answer.get("EvalID") or ""
    if not eval_id:
        call.screen.line(f'The job "{stub["ID"]}" is started')
        return 0
    return follow_or_detach(call, eval_id, detached=lambda: call.screen.line(eval_id))


def _submission(call: Invocation, job: Json) -> Json | None:
    """The text that the job was submitted as before it was stopped, so that it stays with the new version."""
    version = job.get("Version") or 0
    for wanted in (version, version - 1):
        query = {"namespace": job.get("Namespace"), "version": max(wanted, 0)}
        try:
            found: Json = call.api.get(api_path("job", job["ID"], "submission"), query)
        except ApiError as error:
            if error.status != 404:
                raise
        else:
            return found
    return None


COMMAND = Command(
    "job start",
    "Run stopped jobs again, as they were.",
    run,
    (DETACH, VERBOSE),
    (1, -1),
    "<job> ...",
    "at least one argument: <job>",
)
