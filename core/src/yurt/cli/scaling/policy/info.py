"""`yurt scaling policy info`."""

from __future__ import annotations

import json

from yurt.cli.api.lookup import find_scaling_policy
from yurt.cli.command import JSON_FLAGS, VERBOSE, Command, Invocation
from yurt.cli.scaling.policy.list import target_text
from yurt.cli.terminal.data import show_data, wants_data


def run(call: Invocation) -> int:
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


COMMAND = Command(
    "scaling policy info",
    "Show a scaling policy.",
    run,
    (VERBOSE, *JSON_FLAGS),
    (1, 1),
    "<policy_id>",
    "one argument: <policy_id>",
)
