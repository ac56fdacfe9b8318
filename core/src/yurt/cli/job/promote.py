"""`yurt job promote`."""

from __future__ import annotations

from typing import Any

from yurt.cli.api.lookup import api_path, find_job
from yurt.cli.command import DETACH, VERBOSE, Command, Invocation
from yurt.cli.deployment.promote import promote
from yurt.cli.errors import CliError
from yurt.cli.flags import texts

Json = dict[str, Any]


def run(call: Invocation) -> int:
    """Promote the canaries of the job's newest deployment."""
    job = find_job(call, call.args[0])
    deployment: Json | None = call.api.get(
        api_path("job", job["ID"], "deployment"), {"namespace": job.get("Namespace")}
    )
    if deployment is None:
        raise CliError(f'The job "{job["ID"]}" has no deployment to promote')
    return promote(call, deployment)


COMMAND = Command(
    "job promote",
    "Promote the canaries of the newest deployment of a job, so that they replace the old version.",
    run,
    (DETACH, VERBOSE, texts("group", "Only this group; may be repeated.")),
    (1, 1),
    "<job>",
    "one argument: <job>",
)
