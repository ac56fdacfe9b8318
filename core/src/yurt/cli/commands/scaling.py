"""`yurt scaling`: policies by which groups may be scaled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from yurt.cli.api.lookup import find_scaling_policy
from yurt.cli.api.namespaces import warn_of_namespace
from yurt.cli.declaration import JSON_FLAGS, VERBOSE, CliCommand, Invocation
from yurt.cli.errors import UsageError
from yurt.cli.flags import text
from yurt.cli.json_object import Json
from yurt.cli.terminal.data import show_data, wants_data

TYPES: Final = ("horizontal", "vertical_cpu", "vertical_mem")
"""The types of scaling policies: a group's count, and what a task has of CPU or memory."""


def show_policy(call: Invocation) -> int:
    """One scaling policy, whole."""
    is_data = wants_data(call)
    policy = find_scaling_policy(call, call.args[0])
    if is_data:
        return show_data(call, policy)
    facts = [
        ("ID", call.short(policy["ID"])),
        ("Enabled", str(policy["Enabled"]).lower()),
        ("Target", target_text(policy.get("Target") or {})),
        ("Min", policy.get("Min")),
        ("Max", policy.get("Max")),
    ]
    call.screen.pairs(facts)
    call.screen.title("Policy:")
    call.screen.line(json.dumps(policy.get("Policy") or {}, indent=2, sort_keys=True))
    return 0


def list_policies(call: Invocation) -> int:
    """Scaling policies, optionally of one job or one type."""
    is_data = wants_data(call)
    kind = call.flags.text("type")
    if not any(each.startswith(kind) for each in TYPES):
        raise UsageError(f'-type: "{kind}" is not a type of scaling policy; use {", ".join(TYPES)}')
    query = {name: value for name in ("job", "type") if (value := call.flags.text(name))}
    policies: list[Json] = call.api.get("/v1/scaling/policies", query) or []
    if not policies:
        warn_of_namespace(call)
    if is_data:
        return show_data(call, policies)
    if not policies:
        call.screen.line("No policies found")
        return 0
    rows = [
        [
            call.short(policy["ID"]),
            str(policy["Enabled"]).lower(),
            policy.get("Type") or "",
            target_text(policy.get("Target") or {}),
        ]
        for policy in policies
    ]
    call.screen.table("ID|Enabled|Type|Target", rows)
    return 0


def target_text(target: Mapping[str, str]) -> str:
    """`Group:web,Job:shop,Namespace:default`."""
    return ",".join(f"{key}:{value}" for key, value in sorted(target.items()))


COMMANDS = (
    CliCommand(
        "scaling policy info",
        "Show a scaling policy",
        show_policy,
        (VERBOSE, *JSON_FLAGS),
        (1, 1),
        "<policy_id>",
        "one argument: <policy_id>",
    ),
    CliCommand(
        "scaling policy list",
        "List the scaling policies of all jobs that are not stopped",
        list_policies,
        (
            text("job", "Only those of this job."),
            text("type", f"Only those of this type: {', '.join(TYPES)}, or the beginning of one."),
            VERBOSE,
            *JSON_FLAGS,
        ),
    ),
)
GROUPS = {
    "scaling policy": "Show the scaling policies of groups",
}
