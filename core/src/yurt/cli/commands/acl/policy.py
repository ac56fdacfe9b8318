"""`yurt acl policy`: show and change policies."""

from __future__ import annotations

import re

from yurt.cli.api.lookup import api_path
from yurt.cli.commands.acl.answers import explained
from yurt.cli.declaration import JSON_FLAGS, CliCommand, Invocation
from yurt.cli.errors import ApiError, UsageError
from yurt.cli.flags import text
from yurt.cli.json_object import Json
from yurt.cli.terminal.data import show_data, wants_data

RULE_POSITION = re.compile(r"(?P<before>^|\t\* )(failed to parse rules: )?rules:(?=\d+:\d+: )", re.MULTILINE)
UNATTACHED = "<unavailable>"
UNSPECIFIED = "<not specified>"


@explained
def apply_policy(call: Invocation) -> int:
    """Store a policy, attached to workloads where flags name them."""
    from yurt.cli.files.source import read_text

    name, path = call.args
    workload = _workload(call)
    policy: Json = {"Name": name, "Description": call.flags.text("description"), "Rules": read_text(path)}
    if workload:
        policy["JobACL"] = workload
    try:
        call.api.put(api_path("acl", "policy", name), policy)
    except ApiError as error:
        raise ApiError(error.status, _with_file_positions(str(error), path), error.reason) from None
    call.screen.line(f'Successfully wrote "{name}" ACL policy!')
    return 0


def _with_file_positions(refusal: str, path: str) -> str:
    """The refusal with places in the file where the servers, which know no file, write `rules:1:26`."""
    return RULE_POSITION.sub(lambda place: f"{place['before']}{path}:", refusal)


def _workload(call: Invocation) -> Json:
    """The workloads to attach the policy to; empty without one of these flags.

    Only the flag -namespace counts, not NOMAD_NAMESPACE: which jobs get rights is said, and not left to the shell.
    """
    parts = {name: call.flags.text(name) for name in ("namespace", "job", "group", "task")}
    for name, other in (("job", "namespace"), ("namespace", "job"), ("group", "job"), ("task", "group")):
        if parts[name] and not parts[other]:
            raise UsageError(f"-{other} is required if -{name} is set")
    if not parts["job"]:
        return {}
    return {"Namespace": parts["namespace"], "JobID": parts["job"], "Group": parts["group"], "Task": parts["task"]}


@explained
def delete_policy(call: Invocation) -> int:
    """Delete it."""
    call.api.delete(api_path("acl", "policy", call.args[0]))
    call.screen.line(f"Successfully deleted {call.args[0]} policy!")
    return 0


@explained
def show_policy(call: Invocation) -> int:
    """One policy with its rules."""
    is_data = wants_data(call)
    policy: Json = call.api.get(api_path("acl", "policy", call.args[0]))
    if is_data:
        return show_data(call, policy)
    call.screen.pairs(
        [
            ("Name", policy["Name"]),
            ("Description", policy.get("Description")),
            ("CreateIndex", policy["CreateIndex"]),
            ("ModifyIndex", policy["ModifyIndex"]),
        ]
    )
    workload = policy.get("JobACL")
    if workload:
        call.screen.title("Associated Workload")
        call.screen.pairs([(key, workload.get(key)) for key in ("Namespace", "JobID", "Group", "Task")])
    call.screen.title("Rules")
    call.screen.line(policy["Rules"].rstrip("\n"))
    return 0


@explained
def list_policies(call: Invocation) -> int:
    """The policies that the caller may see."""
    is_data = wants_data(call)
    policies: list[Json] = call.api.get("/v1/acl/policies") or []
    if is_data:
        return show_data(call, policies)
    if not policies:
        call.screen.line("No policies found")
        return 0
    call.screen.table("Name|Description", [(policy["Name"], policy.get("Description")) for policy in policies])
    return 0


@explained
def show_own_policies(call: Invocation) -> int:
    """The policies of the caller's token or workload identity."""
    is_data = wants_data(call)
    policies: list[Json] = call.api.get("/v1/acl/policy/self") or []
    if is_data:
        return show_data(call, policies)
    if policies:
        call.screen.table("Name|Job ID|Group Name|Task Name", [_workload_row(policy) for policy in policies])
    elif call.api.get("/v1/acl/token/self").get("Type") == "management":
        call.screen.line("This is a management token. No individual policies are assigned.")
    else:
        call.screen.line("No policies found.")
    return 0


def _workload_row(policy: Json) -> list[str]:
    workload = policy.get("JobACL")
    if not workload:
        return [policy["Name"], UNATTACHED, UNATTACHED, UNATTACHED]
    return [policy["Name"], *(workload.get(key) or UNSPECIFIED for key in ("JobID", "Group", "Task"))]


COMMANDS = (
    CliCommand(
        "acl policy apply",
        "Create or update a policy",
        apply_policy,
        (
            text("description", "What the policy is for."),
            text("job", "Attach the policy to this job of -namespace."),
            text("group", "Attach it only to this group of -job."),
            text("task", "Attach it only to this task of -group."),
        ),
        (2, 2),
        "<name> <path>",
        "two arguments: <name> <path>",
        details=(
            "The file holds the rules in HCL or JSON; - reads them from standard input.\n\n"
            "-job with -namespace (NOMAD_NAMESPACE is ignored) attaches the policy to the workloads of a job:\n"
            "their identities get its rights."
        ),
    ),
    CliCommand(
        "acl policy delete", "Delete a policy", delete_policy, (), (1, 1), "<name>", "one argument: <name>",
        details="Tokens and roles that name it lose its rights.",
    ),
    CliCommand(
        "acl policy info", "Show a policy and its rules", show_policy, JSON_FLAGS, (1, 1), "<name>",
        "one argument: <name>",
    ),
    CliCommand("acl policy list", "List policies", list_policies, JSON_FLAGS),
    CliCommand("acl policy self", "Show the policies of your token", show_own_policies, JSON_FLAGS),
)  # fmt: skip
