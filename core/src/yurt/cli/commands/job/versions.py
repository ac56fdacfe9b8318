"""`yurt job history`, `revert` and `tag`: the versions of a job."""

from __future__ import annotations

import json

from yurt.cli.api.lookup import api_path, find_job
from yurt.cli.commands.job.files import version_of
from yurt.cli.declaration import DETACH, JSON_FLAGS, VERBOSE, CliCommand, Invocation
from yurt.cli.errors import CliError, UsageError
from yurt.cli.flags import switch, text
from yurt.cli.json_object import Json
from yurt.cli.terminal.data import show_data, wants_data
from yurt.cli.terminal.screen import key_values
from yurt.cli.terminal.text import local_time


def show_history(call: Invocation) -> int:
    """The versions of a job, newest first."""
    is_json = wants_data(call)
    stub = find_job(call, call.args[0])
    flags = call.flags
    with_diff = flags.is_on("p") or bool(flags.text("diff-version") or flags.text("diff-tag"))
    query = {
        "namespace": stub.get("Namespace"),
        "diffs": with_diff,
        "diff_version": flags.text("diff-version"),
        "diff_tag": flags.text("diff-tag"),
    }
    answer: Json = call.api.get(api_path("job", stub["ID"], "versions"), query) or {}
    versions: list[Json] = answer.get("Versions") or []
    diffs: list[Json | None] = list(answer.get("Diffs") or [])
    diffs += [None] * (len(versions) - len(diffs))
    chosen = list(zip(versions, diffs, strict=False))
    if flags.text("version"):
        chosen = [pair for pair in chosen if str(pair[0].get("Version") or 0) == flags.text("version")]
        if not chosen:
            raise CliError(f'The job "{stub["ID"]}" has no version "{flags.text("version")}"')
    if is_json:
        return show_data(call, [job for job, _ in chosen])
    call.screen.line("\n\n".join(_text(call, job, diff) for job, diff in chosen))
    return 0


def _text(call: Invocation, job: Json, diff: Json | None) -> str:
    from yurt.cli.views.diff import DiffPrinter

    facts: list[tuple[str, object]] = [
        ("Version", job.get("Version") or 0),
        ("Stable", bool(job.get("Stable"))),
        ("Submit Date", local_time(job.get("SubmitTime") or 0)),
    ]
    tag = job.get("VersionTag") or {}
    if tag.get("Name"):
        facts += [("Tag Name", tag["Name"]), ("Tag Description", tag.get("Description") or "")]
    parts = [key_values(facts)]
    if diff and diff.get("Type") != "None":
        parts.append("Diff        =\n" + DiffPrinter(call.screen).job(diff))
    if call.flags.is_on("full"):
        parts.append("Full        =\n" + json.dumps(job, indent=4))
    return "\n".join(parts)


def revert_job(call: Invocation) -> int:
    """Register an earlier version again."""
    from yurt.cli.views.detach import follow_or_detach

    job, requested = find_job(call, call.args[0]), call.args[1]
    version = int(requested) if requested.isdigit() else int(version_of(call, job, requested).get("Version") or 0)
    if version < 0:
        raise CliError(f'"{requested}" is not a version')
    body = {"JobID": job["ID"], "JobVersion": version, "Namespace": job.get("Namespace")}
    answer: Json = call.api.put(api_path("job", job["ID"], "revert"), body, {"namespace": job.get("Namespace")}) or {}
    return follow_or_detach(call, answer.get("EvalID") or "")


def apply_tag(call: Invocation) -> int:
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


def unset_tag(call: Invocation) -> int:
    """Take a name away from its version."""
    name = call.flags.text("name")
    if not name:
        raise UsageError("A version tag name is required: give it with -name")
    job = find_job(call, call.args[0])
    call.api.delete(api_path("job", job["ID"], "versions", name, "tag"), {"namespace": job.get("Namespace")})
    call.screen.line(f'Tag "{name}" removed from job "{job["ID"]}"')
    return 0


COMMANDS = (
    CliCommand(
        "job history",
        "Show the versions of a job, newest first",
        show_history,
        (
            switch("p", "Show what each version changed."),
            switch("full", "Print each version in full."),
            text("version", "Only this version."),
            text("diff-version", "Compare each version with this one."),
            text("diff-tag", "Compare each version with the tagged one."),
            *JSON_FLAGS,
        ),
        (1, 1),
        "<job>",
        "one argument: <job>",
        exclusive=(("diff-version", "diff-tag"),),
    ),
    CliCommand(
        "job revert",
        "Go back to an earlier version of a job",
        revert_job,
        (DETACH, VERBOSE),
        (2, 2),
        "<job> <version|tag>",
        "two arguments: <job> <version|tag>",
        details="`yurt job history` lists the versions.",
    ),
    CliCommand(
        "job tag apply",
        "Name a version of a job",
        apply_tag,
        (
            text("name", "The name."),
            text("description", "What the version is worth remembering for."),
            text("version", "The version; default is the newest."),
        ),
        (1, 1),
        "-name <tag> <job>",
        "one argument: <job>",
        details="A version with a name is kept, and `yurt job revert` takes the name.",
    ),
    CliCommand(
        "job tag unset",
        "Remove the name of a version of a job",
        unset_tag,
        (text("name", "The name."),),
        (1, 1),
        "-name <tag> <job>",
        "one argument: <job>",
    ),
)
