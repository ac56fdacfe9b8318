"""`yurt job tag apply`."""

from __future__ import annotations

from typing import Any

from yurt.cli.api.lookup import api_path, find_job
from yurt.cli.command import Command, Invocation
from yurt.cli.errors import UsageError
from yurt.cli.flags import text

Json = dict[str, Any]


def run(call: Invocation) -> int:
    """Name a version."""
    flags = call.flags
    name, version = flags.text("name"), flags.text("version")
    if not name:
        raise UsageError("A version tag name is required: give it with -name")
    if version and not version.isdigit():
        raise UsageError(f'-version must be a whole number, not "{version}"')
    job = find_job(call, call.args[0])
    query = {"namespace": job.get("Namespace")}
    number = int(version) if version else int(call.api.get(api_path("job", job["ID"]), query).get("Version") or 0)
    body: Json = {"Version": number, "Description": flags.text("description")}
    call.api.put(api_path("job", job["ID"], "versions", name, "tag"), body, query)
    call.screen.line(f'Job version {number} tagged with name "{name}"')
    return 0


COMMAND = Command(
    "job tag apply",
    "Name a version of a job: it is kept, and can be gone back to by this name.",
    run,
    (
        text("name", "The name."),
        text("description", "What the version is worth remembering for."),
        text("version", "The version; default is the newest."),
    ),
    (1, 1),
    "-name <tag> <job>",
    "one argument: <job>",
)
