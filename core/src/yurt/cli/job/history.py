"""`yurt job history`."""

from __future__ import annotations

import json
from typing import Any

from yurt.cli.api.lookup import api_path, find_job
from yurt.cli.command import JSON_FLAGS, Command, Invocation
from yurt.cli.errors import CliError
from yurt.cli.flags import switch, text
from yurt.cli.terminal.data import show_data, wants_data
from yurt.cli.terminal.screen import key_values
from yurt.cli.terminal.text import local_time
from yurt.cli.views.diff import DiffPrinter

Json = dict[str, Any]


def run(call: Invocation) -> int:
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


COMMAND = Command(
    "job history",
    "Show the versions of a job, newest first.",
    run,
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
)
