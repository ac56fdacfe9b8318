"""`yurt job tag unset`."""

from __future__ import annotations

from yurt.cli.api.lookup import api_path, find_job
from yurt.cli.command import Command, Invocation
from yurt.cli.errors import UsageError
from yurt.cli.flags import text


def run(call: Invocation) -> int:
    """Take a name away from its version."""
    name = call.flags.text("name")
    if not name:
        raise UsageError("A version tag name is required: give it with -name")
    job = find_job(call, call.args[0])
    call.api.delete(api_path("job", job["ID"], "versions", name, "tag"), {"namespace": job.get("Namespace")})
    call.screen.line(f'Tag "{name}" removed from job "{job["ID"]}"')
    return 0


COMMAND = Command(
    "job tag unset",
    "Take a name away from a version of a job.",
    run,
    (text("name", "The name."),),
    (1, 1),
    "-name <tag> <job>",
    "one argument: <job>",
)
