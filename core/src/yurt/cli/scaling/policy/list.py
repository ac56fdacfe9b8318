"""`yurt scaling policy list`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yurt.cli.command import JSON_FLAGS, VERBOSE, Command, Invocation
from yurt.cli.flags import text
from yurt.cli.terminal.data import show_data, wants_data

Json = dict[str, Any]


def run(call: Invocation) -> int:
    """Scaling policies, of one job or one type where that is asked for."""
    is_data = wants_data(call)
    query = {name: value for name in ("job", "type") if (value := call.flags.text(name))}
    policies: list[Json] = call.api.get("/v1/scaling/policies", query) or []
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


COMMAND = Command(
    "scaling policy list",
    "List the scaling policies of the groups of all jobs that are not stopped.",
    run,
    (text("job", "Only those of this job."), text("type", "Only those of this type."), VERBOSE, *JSON_FLAGS),
)
