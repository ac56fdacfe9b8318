"""`yurt job dispatch`."""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Any

from yurt.cli.api.lookup import api_path, find_job
from yurt.cli.command import DETACH, VERBOSE, Command, Invocation
from yurt.cli.errors import CliError
from yurt.cli.flags import number, switch, text, texts, without_effect
from yurt.cli.views.follow import follow_or_detach

Json = dict[str, Any]

PAYLOAD_BYTES_MAX = 16 * 1024


def run(call: Invocation) -> int:
    """Start a child of a parameterized job."""
    job = find_job(call, call.args[0])
    flags = call.flags
    body: Json = {
        "JobID": job["ID"],
        "Payload": base64.b64encode(_payload(call.args[1:])).decode(),
        "Meta": dict(_pair(item) for item in flags.texts("meta")),
        "IdPrefixTemplate": flags.text("id-prefix-template"),
        "Priority": flags.number("priority"),
    }
    query = {"namespace": job.get("Namespace"), "idempotency_token": flags.text("idempotency-token")}
    answer: Json = call.api.put(api_path("job", job["ID"], "dispatch"), body, query)
    eval_id = answer.get("EvalID") or ""
    facts = [("Dispatched Job ID", answer["DispatchedJobID"])]
    call.screen.pairs(facts + ([("Evaluation ID", call.short(eval_id))] if eval_id else []))
    if not eval_id or flags.is_on("detach"):
        return 0
    call.screen.line()
    code = follow_or_detach(call, eval_id)
    return _wait(call, answer["DispatchedJobID"], job.get("Namespace")) if flags.is_on("wait") and not code else code


def _payload(given: list[str]) -> bytes:
    if not given:
        return b""
    try:
        data = sys.stdin.buffer.read(PAYLOAD_BYTES_MAX + 1) if given[0] == "-" else Path(given[0]).read_bytes()
    except OSError as error:
        raise CliError(f"{given[0]}: cannot be read: {error.strerror}") from None
    if len(data) > PAYLOAD_BYTES_MAX:
        raise CliError(f"The payload is larger than {PAYLOAD_BYTES_MAX} bytes; pass a reference to it instead")
    return data


def _pair(setting: str) -> tuple[str, str]:
    name, equals, value = setting.partition("=")
    if not equals:
        raise CliError(f'-meta needs key=value, not "{setting}"')
    return name, value


def _wait(call: Invocation, job_id: str, namespace: str | None) -> int:
    """Wait for the end of the child; 1 when anything of it failed."""
    index = 0
    while True:
        answer = call.api.read(api_path("job", job_id), {"namespace": namespace}, index=index, wait_s=30.0)
        if answer.data["Status"] == "dead":
            break
        index = answer.index
    summary: Json = call.api.get(api_path("job", job_id, "summary"), {"namespace": namespace}) or {}
    names = ("Queued", "Complete", "Failed", "Running", "Starting", "Lost", "Unknown")
    groups = summary.get("Summary") or {}
    rows = [[group, *(str(groups[group].get(name) or 0) for name in names)] for group in sorted(groups)]
    call.screen.table("|".join(["Task Group", *names]), rows)
    return 1 if any(groups[group].get("Failed") or groups[group].get("Lost") for group in groups) else 0


COMMAND = Command(
    "job dispatch",
    "Start a child of a parameterized job, with a payload from a file or - for standard input.",
    run,
    (
        DETACH,
        VERBOSE,
        texts("meta", "key=value for the child; may be repeated."),
        text("id-prefix-template", "A word for the id of the child."),
        text("idempotency-token", "At most one child is started for a token."),
        number("priority", "The priority of the child; default is the job's."),
        switch("wait", "Wait until the child has ended."),
        without_effect("ui"),
    ),
    (1, 2),
    "<parameterized job> [input source]",
    "one or two arguments: <parameterized job> [input source]",
)
