"""`yurt acl binding-rule`: show and change what a login grants."""

from __future__ import annotations

import json

from yurt.cli.api.lookup import api_path
from yurt.cli.commands.acl.answers import explained, go_time, whole_id
from yurt.cli.declaration import JSON_FLAGS, CliCommand, Invocation
from yurt.cli.errors import UsageError
from yurt.cli.flags import switch, text
from yurt.cli.json_object import Json
from yurt.cli.terminal.data import show_data, wants_data

KEYS = {"description": "Description", "selector": "Selector", "bind-type": "BindType", "bind-name": "BindName"}
"""The flags that `create` and `update` share, and the fields that they set."""


@explained
def create_rule(call: Invocation) -> int:
    """A binding rule of a login method."""
    is_data = wants_data(call)
    method = call.flags.text("auth-method")
    if not method:
        raise UsageError("ACL binding rule auth method must be specified using the -auth-method flag")
    rule = {"AuthMethod": method, **_whole(call)}
    made: Json = call.api.put("/v1/acl/binding-rule", rule)
    return show_data(call, made) if is_data else _show(call, made)


def _whole(call: Invocation) -> Json:
    """The rule that the flags alone describe."""
    if not call.flags.text("bind-type"):
        raise UsageError("ACL binding rule bind type must be specified using the -bind-type flag")
    return {key: call.flags.text(flag) for flag, key in KEYS.items()}


@explained
def update_rule(call: Invocation) -> int:
    """Change what flags name; with -no-merge the flags are the whole rule."""
    is_data = wants_data(call)
    fields = {key: call.flags.text(flag) for flag, key in KEYS.items() if call.flags.is_given(flag)}
    is_whole = call.flags.is_on("no-merge")
    if not fields and not is_whole:
        raise UsageError("Please provide at least one flag to update the ACL binding rule")
    if is_whole:
        fields = _whole(call)
    path = api_path("acl", "binding-rule", _rule_id(call))
    # The method of a rule never changes, so the stored one is sent in both cases.
    changed: Json = call.api.put(path, {**call.api.get(path), **fields})
    return show_data(call, changed) if is_data else _show(call, changed)


def _rule_id(call: Invocation) -> str:
    return whole_id(call, call.args[0], "/v1/acl/binding-rules", "ACL binding rule")


@explained
def delete_rule(call: Invocation) -> int:
    """Delete it."""
    rule_id = _rule_id(call)
    call.api.delete(api_path("acl", "binding-rule", rule_id))
    call.screen.line(f"ACL binding rule {rule_id} successfully deleted")
    return 0


@explained
def show_rule(call: Invocation) -> int:
    """One binding rule."""
    is_data = wants_data(call)
    rule: Json = call.api.get(api_path("acl", "binding-rule", _rule_id(call)))
    return show_data(call, rule) if is_data else _show(call, rule)


@explained
def list_rules(call: Invocation) -> int:
    """All binding rules."""
    is_data = wants_data(call)
    rules: list[Json] = call.api.get("/v1/acl/binding-rules") or []
    if is_data:
        return show_data(call, rules)
    if not rules:
        call.screen.line("No ACL binding rules found")
        return 0
    rows = [(rule["ID"], rule.get("Description"), rule["AuthMethod"]) for rule in rules]
    call.screen.table("ID|Description|Auth Method", rows)
    return 0


def _show(call: Invocation, rule: Json) -> int:
    call.screen.pairs(
        [
            ("ID", rule["ID"]),
            ("Description", rule.get("Description")),
            ("Auth Method", rule["AuthMethod"]),
            ("Selector", json.dumps(rule.get("Selector") or "", ensure_ascii=False)),
            ("Bind Type", rule["BindType"]),
            ("Bind Name", rule.get("BindName")),
            ("Create Time", go_time(rule.get("CreateTime"))),
            ("Modify Time", go_time(rule.get("ModifyTime"))),
            ("Create Index", rule["CreateIndex"]),
            ("Modify Index", rule["ModifyIndex"]),
        ]
    )
    return 0


RULE_FLAGS = (
    text("description", "What the rule is for."),
    text("selector", "An expression over the claims of who logs in; without it the rule fits everybody."),
    text("bind-type", "What a login gets: role, policy or management."),
    text("bind-name", "The name of the role or policy; ${value.NAME} stands for a claim."),
)
BY_ID = ((1, 1), "<acl_binding_rule_id>", "one argument: <acl_binding_rule_id>")

COMMANDS = (
    CliCommand(
        "acl binding-rule create",
        "Create a binding rule",
        create_rule,
        (text("auth-method", "The login method whose logins the rule is for."), *RULE_FLAGS, *JSON_FLAGS),
    ),
    CliCommand(
        "acl binding-rule update",
        "Change a binding rule",
        update_rule,
        (*RULE_FLAGS, switch("no-merge", "Replace the rule by what the flags say."), *JSON_FLAGS),
        *BY_ID,
        details="What no flag names is kept, unless -no-merge is given. The login method of a rule cannot change.",
    ),
    CliCommand("acl binding-rule delete", "Delete a binding rule", delete_rule, (), *BY_ID),
    CliCommand("acl binding-rule info", "Show a binding rule", show_rule, JSON_FLAGS, *BY_ID),
    CliCommand("acl binding-rule list", "List binding rules", list_rules, JSON_FLAGS),
)
