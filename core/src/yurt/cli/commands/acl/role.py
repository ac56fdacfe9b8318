"""`yurt acl role`: show and change roles."""

from __future__ import annotations

from yurt.cli.api.lookup import api_path
from yurt.cli.commands.acl.answers import explained, whole_id
from yurt.cli.declaration import JSON_FLAGS, CliCommand, Invocation
from yurt.cli.errors import UsageError
from yurt.cli.flags import switch, text, texts
from yurt.cli.json_object import Json
from yurt.cli.terminal.data import show_data, wants_data


@explained
def create_role(call: Invocation) -> int:
    """A role of policies that exist."""
    is_data = wants_data(call)
    made: Json = call.api.put("/v1/acl/role", _whole(call))
    return show_data(call, made) if is_data else _show(call, made)


def _whole(call: Invocation) -> Json:
    """The role that the flags alone describe."""
    name, policies = call.flags.text("name"), call.flags.texts("policy")
    if not name:
        raise UsageError("ACL role name must be specified using the -name flag")
    if not policies:
        raise UsageError("At least one policy name must be specified using the -policy flag")
    return {"Name": name, "Description": call.flags.text("description"), "Policies": _links(policies)}


def _links(names: list[str]) -> list[Json]:
    return [{"Name": name} for name in names]


@explained
def update_role(call: Invocation) -> int:
    """Change what flags name and add policies; with -no-merge the flags are the whole role."""
    is_data = wants_data(call)
    is_whole = call.flags.is_on("no-merge")
    if not is_whole and not any(map(call.flags.is_given, ("name", "description", "policy"))):
        raise UsageError("Please provide at least one flag to update the ACL role")
    whole = _whole(call) if is_whole else {}
    role_id = _role_id(call)
    path = api_path("acl", "role", role_id)
    role = {**whole, "ID": role_id} if is_whole else _merged(call, call.api.get(path))
    changed: Json = call.api.put(path, role)
    return show_data(call, changed) if is_data else _show(call, changed)


def _merged(call: Invocation, role: Json) -> Json:
    flags = call.flags
    changes = {key: flags.text(key.lower()) for key in ("Name", "Description") if flags.is_given(key.lower())}
    policies = [link["Name"] for link in role.get("Policies") or ()]
    return {**role, **changes, "Policies": _links(list(dict.fromkeys([*policies, *flags.texts("policy")])))}


def _role_id(call: Invocation) -> str:
    return whole_id(call, call.args[0], "/v1/acl/roles", "ACL role")


@explained
def delete_role(call: Invocation) -> int:
    """Delete it."""
    role_id = _role_id(call)
    call.api.delete(api_path("acl", "role", role_id))
    call.screen.line(f"ACL role {role_id} successfully deleted")
    return 0


@explained
def show_role(call: Invocation) -> int:
    """One role, by its id or its name."""
    is_data = wants_data(call)
    where = ("name", call.args[0]) if call.flags.is_on("by-name") else (_role_id(call),)
    role: Json = call.api.get(api_path("acl", "role", *where))
    return show_data(call, role) if is_data else _show(call, role)


@explained
def list_roles(call: Invocation) -> int:
    """The roles that the caller may see."""
    is_data = wants_data(call)
    roles: list[Json] = call.api.get("/v1/acl/roles") or []
    if is_data:
        return show_data(call, roles)
    if not roles:
        call.screen.line("No ACL roles found")
        return 0
    rows = [(role["ID"], role["Name"], role.get("Description"), _policies(role)) for role in roles]
    call.screen.table("ID|Name|Description|Policies", rows)
    return 0


def _policies(role: Json) -> str:
    return ",".join(sorted(link["Name"] for link in role.get("Policies") or ()))


def _show(call: Invocation, role: Json) -> int:
    call.screen.pairs(
        [
            ("ID", role["ID"]),
            ("Name", role["Name"]),
            ("Description", role.get("Description")),
            ("Policies", _policies(role)),
            ("Create Index", role["CreateIndex"]),
            ("Modify Index", role["ModifyIndex"]),
        ]
    )
    return 0


ROLE_FLAGS = (
    text("name", "The name of the role: letters, digits and dashes."),
    text("description", "What the role is for."),
    texts("policy", "A policy of the role; may be repeated."),
)
BY_ID = ((1, 1), "<acl_role_id>", "one argument: <acl_role_id>")

COMMANDS = (
    CliCommand("acl role create", "Create a role", create_role, (*ROLE_FLAGS, *JSON_FLAGS)),
    CliCommand(
        "acl role update",
        "Change a role",
        update_role,
        (*ROLE_FLAGS, switch("no-merge", "Replace the role by what the flags say."), *JSON_FLAGS),
        *BY_ID,
        details="What no flag names is kept, and policies are added to those it has, unless -no-merge is given.",
    ),
    CliCommand(
        "acl role delete", "Delete a role", delete_role, (), *BY_ID, details="Tokens of the role lose its rights."
    ),
    CliCommand(
        "acl role info",
        "Show a role",
        show_role,
        (switch("by-name", "The argument is the name of the role."), *JSON_FLAGS),
        *BY_ID,
    ),
    CliCommand("acl role list", "List roles", list_roles, JSON_FLAGS),
)
