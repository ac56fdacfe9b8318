"""`yurt deployment`: show deployments and control them."""

from __future__ import annotations

from yurt.cli.api.lookup import api_path, find_deployment
from yurt.cli.api.namespaces import warn_of_namespace
from yurt.cli.declaration import DETACH, JSON_FLAGS, UI, VERBOSE, CliCommand, Invocation
from yurt.cli.errors import UsageError
from yurt.cli.flags import switch, text, texts
from yurt.cli.json_object import Json
from yurt.cli.terminal.data import show_data, wants_data
from yurt.cli.terminal.text import SECOND, parse_duration

PAUSE_MAX_S = 24 * 3600.0
"""The longest time of -wait between two updates."""


def fail_deployment(call: Invocation) -> int:
    """End it as failed."""
    from yurt.cli.views.detach import follow_or_detach

    deployment = find_deployment(call, call.args[0])
    answer: Json = call.api.put(api_path("deployment", "fail", deployment["ID"]), {}) or {}
    short = call.short(deployment["ID"])
    reverted = answer.get("RevertedJobVersion")
    extra = "" if reverted is None else f" Auto-reverted to job version {reverted}."
    call.screen.line(f'Deployment "{short}" failed.{extra}')
    eval_id = answer.get("EvalID") or ""
    if eval_id and not call.flags.is_on("detach"):
        call.screen.line()
    return follow_or_detach(call, eval_id, detached=lambda: call.screen.line(f"Evaluation ID: {call.short(eval_id)}"))


def list_deployments(call: Invocation) -> int:
    """All deployments."""
    from yurt.cli.views.deployments import show_deployments

    is_json = wants_data(call)
    found = call.api.get("/v1/deployments", {"filter": call.flags.text("filter")}) or []
    if not found:
        warn_of_namespace(call)
    if is_json:
        return show_data(call, found)
    show_deployments(call, found, none="No deployments found")
    return 0


def pause_deployment(call: Invocation) -> int:
    """Pause it: nothing more is placed or promoted until it is resumed."""
    deployment = find_deployment(call, call.args[0])
    body = {"DeploymentID": deployment["ID"], "Pause": True}
    call.api.put(api_path("deployment", "pause", deployment["ID"]), body)
    call.screen.line(f'Deployment "{call.short(deployment["ID"])}" paused')
    return 0


def promote_deployment(call: Invocation) -> int:
    """Promote the canaries of a deployment."""
    return promote(call, find_deployment(call, call.args[0]))


def promote(call: Invocation, deployment: Json) -> int:
    """Promote the canaries of all groups, or of those that -group names, and follow the evaluation."""
    from yurt.cli.views.detach import follow_or_detach

    groups = call.flags.texts("group")
    body: Json = {"DeploymentID": deployment["ID"], "All": not groups}
    if groups:
        body["Groups"] = groups
    answer: Json = call.api.put(api_path("deployment", "promote", deployment["ID"]), body) or {}
    eval_id = answer.get("EvalID") or ""
    return follow_or_detach(call, eval_id, detached=lambda: call.screen.line(f"Evaluation ID: {call.short(eval_id)}"))


def resume_deployment(call: Invocation) -> int:
    """Go on with it."""
    from yurt.cli.views.detach import follow_or_detach

    deployment = find_deployment(call, call.args[0])
    body = {"DeploymentID": deployment["ID"], "Pause": False}
    answer: Json = call.api.put(api_path("deployment", "pause", deployment["ID"]), body) or {}
    call.screen.line(f'Deployment "{call.short(deployment["ID"])}" resumed')
    eval_id = answer.get("EvalID") or ""
    return follow_or_detach(call, eval_id, detached=lambda: call.screen.line(f"Evaluation ID: {call.short(eval_id)}"))


def show_deployment(call: Invocation) -> int:
    """Show one deployment, or follow it; without an id all of them."""
    from yurt.cli.views.browser import job_page, offer_page
    from yurt.cli.views.deployments import deployment_text, show_deployments
    from yurt.cli.views.monitor import follow_deployment

    is_json, pause_s = wants_data(call), _pause_s(call)
    if not call.args:
        found = call.api.get("/v1/deployments") or []
        if is_json:
            return show_data(call, found)
        show_deployments(call, found, none="No deployment found")
        return 0
    deployment = find_deployment(call, call.args[0])
    if is_json:
        return show_data(call, deployment)
    if call.flags.is_on("monitor"):
        return follow_deployment(call, deployment["ID"], with_allocs=call.is_verbose, pause_s=pause_s)
    call.screen.line(deployment_text(deployment, id_length=call.id_length))
    offer_page(call, job_page(deployment["JobID"], deployment.get("Namespace")), "this job and its deployments")
    return 0


def _pause_s(call: Invocation) -> float:
    """The shortest time between two updates that -wait asks for; raises UsageError."""
    value = call.flags.text("wait")
    try:
        pause_s = parse_duration(value) / SECOND if value else 0.0
    except ValueError:
        pause_s = -1.0
    if pause_s < 0:
        expected = "a duration of up to 24 hours; use a number and a unit, for example 2s"
        raise UsageError(f'-wait: "{value}" is not {expected}')
    if pause_s > PAUSE_MAX_S:
        raise UsageError(f'-wait: "{value}" is longer than 24 hours; use a shorter time, for example 2s')
    return pause_s


COMMANDS = (
    CliCommand(
        "deployment fail",
        "Mark a deployment as failed",
        fail_deployment,
        (DETACH, VERBOSE),
        (1, 1),
        "<deployment id>",
        "one argument: <deployment id>",
        details="The job goes back to its last stable version where auto_revert says so.",
    ),
    CliCommand(
        "deployment list",
        "List deployments, newest first",
        list_deployments,
        (VERBOSE, text("filter", "Only those that the expression matches."), *JSON_FLAGS),
    ),
    CliCommand(
        "deployment pause",
        "Pause a deployment",
        pause_deployment,
        (VERBOSE,),
        (1, 1),
        "<deployment id>",
        "one argument: <deployment id>",
    ),
    CliCommand(
        "deployment promote",
        "Promote the canaries of a deployment",
        promote_deployment,
        (DETACH, VERBOSE, texts("group", "Only this group; may be repeated.")),
        (1, 1),
        "<deployment id>",
        "one argument: <deployment id>",
        details="The canaries then replace the old version.",
    ),
    CliCommand(
        "deployment resume",
        "Resume a paused deployment",
        resume_deployment,
        (DETACH, VERBOSE),
        (1, 1),
        "<deployment id>",
        "one argument: <deployment id>",
    ),
    CliCommand(
        "deployment status",
        "Show a deployment and the progress of each group",
        show_deployment,
        (
            VERBOSE,
            switch("monitor", "Follow it until it ends; with -verbose also its allocations."),
            text(
                "wait",
                "With -monitor: the shortest time between two updates, such as 2s; without it each change is shown.",
            ),
            UI,
            *JSON_FLAGS,
        ),
        (0, 1),
        "[<deployment id>]",
        "at most one argument: <deployment id>",
    ),
)
