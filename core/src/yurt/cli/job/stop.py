"""`yurt job stop`."""

from __future__ import annotations

from typing import Any

from yurt.cli.api.lookup import api_path, find_job
from yurt.cli.command import DETACH, VERBOSE, Command, Invocation
from yurt.cli.flags import number, switch, without_effect
from yurt.cli.terminal.confirm import confirm
from yurt.cli.views.follow import follow_or_detach

Json = dict[str, Any]


def run(call: Invocation) -> int:
    """Stop the jobs, one after another; the worst exit code."""
    return max(_stop(call, name) for name in call.args)


def _stop(call: Invocation, name: str) -> int:
    job = find_job(call, name)
    is_inexact = job["ID"] != name
    if is_inexact and not call.flags.is_on("yes") and not confirm(f'Are you sure you want to stop job "{job["ID"]}"?'):
        call.screen.line("Cancelled job stop")
        return 0
    query = {
        "namespace": job.get("Namespace"),
        "purge": call.flags.is_on("purge"),
        "global": call.flags.is_on("global"),
        "no_shutdown_delay": call.flags.is_on("no-shutdown-delay"),
        "eval_priority": call.flags.number("eval-priority") or None,
    }
    answer: Json = call.api.delete(api_path("job", job["ID"]), query) or {}
    eval_id = answer.get("EvalID") or ""
    return follow_or_detach(call, eval_id, detached=lambda: call.screen.line(eval_id))


COMMAND = Command(
    "job stop",
    "Stop jobs: their allocations end, and what is left of them stays visible until it is collected.",
    run,
    (
        DETACH,
        VERBOSE,
        switch("purge", "Forget the job at once."),
        switch("yes", "Do not ask when the name is only a prefix."),
        without_effect("global"),  # there is one region
        switch("no-shutdown-delay", "Do not wait for shutdown_delay."),
        number("eval-priority", "The priority of the evaluation, 1 to 100; default is the job's."),
    ),
    (1, -1),
    "<job> ...",
    "at least one argument: <job>",
)
