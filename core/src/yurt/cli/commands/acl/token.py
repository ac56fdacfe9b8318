"""`yurt acl bootstrap` and `yurt acl token`: the first token, and all others."""

from __future__ import annotations

import re
import sys

from yurt.cli.advice import shows_hints
from yurt.cli.api.lookup import api_path
from yurt.cli.commands.acl.answers import duration_flag, explained, go_time, whole_id
from yurt.cli.declaration import JSON_FLAGS, CliCommand, Invocation
from yurt.cli.errors import ApiError, CliError, UsageError
from yurt.cli.flags import switch, text, texts
from yurt.cli.json_object import Json
from yurt.cli.terminal.data import show_data, wants_data
from yurt.sdk.errors import Reason

CLIENT, MANAGEMENT = "client", "management"
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
NOT_MADE = "The token has no rights from it before it is made. `yurt acl policy list` lists the policies."
NO_TOKEN = "No token present in the environment or set via the CLI flag"


@explained
def bootstrap(call: Invocation) -> int:
    """The first management token."""
    is_data = wants_data(call)
    body = {"BootstrapSecret": _secret(call.args[0])} if call.args else None
    token: Json = call.api.put("/v1/acl/bootstrap", body)
    return show_data(call, token) if is_data else show(call, token)


def _secret(path: str) -> str:
    from yurt.cli.files.source import read_text

    secret = read_text(path).strip()
    if not UUID.fullmatch(secret):
        raise CliError(f"{path}: holds no secret id; a secret id is a UUID, such as `uuidgen` prints")
    return secret


@explained
def create_token(call: Invocation) -> int:
    """A new token; its secret is printed here and nowhere else."""
    is_data = wants_data(call)
    flags = call.flags
    token = {
        "Name": flags.text("name"),
        "Type": flags.text("type"),
        "Global": flags.is_on("global"),
        "Policies": flags.texts("policy"),
        "Roles": _roles(call),
        **_brought_ids(call),
    }
    if flags.text("ttl"):
        token["ExpirationTTL"] = duration_flag("ttl", flags.text("ttl"))
    _warn_of_missing_policies(call, flags.texts("policy"))
    made: Json = call.api.put("/v1/acl/token", token)
    return show_data(call, made) if is_data else show(call, made)


def _brought_ids(call: Invocation) -> Json:
    """The given ids of a token: both or none."""
    accessor = call.flags.text("accessor")
    if bool(accessor) != bool(call.args):
        raise UsageError('-accessor and a file with the secret id ("-": standard input) are given together')
    return {"AccessorID": accessor, "SecretID": _secret(call.args[0])} if accessor else {}


def _roles(call: Invocation) -> list[Json]:
    named = [{"Name": name} for name in call.flags.texts("role-name")]
    return [*named, *({"ID": role_id} for role_id in call.flags.texts("role-id"))]


def _warn_of_missing_policies(call: Invocation, names: list[str]) -> None:
    """A token may name a policy before it is written; a misspelt name is more likely."""
    for name in names:
        try:
            call.api.get(api_path("acl", "policy", name))
        except ApiError as error:
            if error.reason is not Reason.NOT_FOUND:
                raise
            call.screen.stream.flush()
            print(f"Error fetching info on {name} policy: {error}", file=sys.stderr)
            if shows_hints():
                print(NOT_MADE, file=sys.stderr)


@explained
def update_token(call: Invocation) -> int:
    """Change what flags name; policies and roles are replaced."""
    is_data = wants_data(call)
    flags = call.flags
    accessor = _accessor(call)
    token: Json = call.api.get(api_path("acl", "token", accessor))
    for flag, key in (("name", "Name"), ("type", "Type")):
        if flags.is_given(flag):
            token[key] = flags.text(flag)
    if flags.is_given("policy"):
        token["Policies"] = flags.texts("policy")
    if flags.is_given("role-name") or flags.is_given("role-id"):
        token["Roles"] = _roles(call)
    changed: Json = call.api.put(api_path("acl", "token", accessor), token)
    return show_data(call, changed) if is_data else show(call, changed)


def _accessor(call: Invocation) -> str:
    return whole_id(call, call.args[0], "/v1/acl/tokens", "ACL token", key="AccessorID")


@explained
def delete_token(call: Invocation) -> int:
    """Revoke it."""
    accessor = _accessor(call)
    call.api.delete(api_path("acl", "token", accessor))
    call.screen.line(f"Token {accessor} successfully deleted")
    return 0


@explained
def show_token(call: Invocation) -> int:
    """One token, with its secret where it is the caller's own."""
    is_data = wants_data(call)
    token: Json = call.api.get(api_path("acl", "token", _accessor(call)))
    return show_data(call, token) if is_data else show(call, token)


@explained
def show_own_token(call: Invocation) -> int:
    """The caller's token."""
    is_data = wants_data(call)
    if not call.api.connection.token:
        raise CliError(NO_TOKEN)
    try:
        token: Json = call.api.get("/v1/acl/token/self")
    except ApiError as error:
        if error.reason is not Reason.NOT_FOUND:
            raise
        return _show_workload(call)
    return show_data(call, token) if is_data else show(call, token)


def _show_workload(call: Invocation) -> int:
    """A workload identity is not a token, but may have policies."""
    if not call.api.get("/v1/acl/policy/self"):
        raise CliError("No ACL tokens, nor ACL policies attached to a workload identity found.")
    call.screen.line("This is a workload identity, not an ACL token; its policies are shown by: yurt acl policy self")
    return 0


@explained
def list_tokens(call: Invocation) -> int:
    """All tokens."""
    from yurt.cli.terminal.text import now_ns, parse_time

    is_data = wants_data(call)
    tokens: list[Json] = call.api.get("/v1/acl/tokens") or []
    if is_data:
        return show_data(call, tokens)
    if not tokens:
        call.screen.line("No tokens found")
        return 0
    now = now_ns()
    rows = [
        (token["Name"], token["Type"], token["Global"], token["AccessorID"],
         0 < parse_time(token.get("ExpirationTime")) <= now)
        for token in tokens
    ]  # fmt: skip
    call.screen.table("Name|Type|Global|Accessor ID|Expired", rows)
    return 0


def show(call: Invocation, token: Json) -> int:
    """A token as a block of facts, then its policies and roles."""
    facts = [
        ("Accessor ID", token["AccessorID"]),
        # Of a token that is not the caller's own the servers know only a hash.
        ("Secret ID", token.get("SecretID") or "<not shown>"),
        ("Name", token["Name"]),
        ("Type", token["Type"]),
        ("Global", token["Global"]),
        ("Create Time", go_time(token.get("CreateTime"))),
        ("Expiry Time", go_time(token.get("ExpirationTime"))),
        ("Create Index", token["CreateIndex"]),
        ("Modify Index", token["ModifyIndex"]),
    ]
    if token["Type"] == MANAGEMENT:
        call.screen.pairs([*facts, ("Policies", "n/a"), ("Roles", "n/a")])
        return 0
    call.screen.pairs([*facts, ("Policies", f"[{' '.join(token.get('Policies') or ())}]")])
    call.screen.title("Roles")
    roles = token.get("Roles")
    if roles:
        call.screen.table("ID|Name", [(role["ID"], role["Name"]) for role in roles])
    else:
        call.screen.line("<none>")
    return 0


ROLE_FLAGS = (
    texts("policy", "A policy of the token; may be repeated."),
    texts("role-name", "A role of the token, by its name; may be repeated."),
    texts("role-id", "A role of the token, by its id; may be repeated."),
)
BY_ACCESSOR = ((1, 1), "<token_accessor_id>", "one argument: <token_accessor_id>")

COMMANDS = (
    CliCommand(
        "acl bootstrap",
        "Create the first management token",
        bootstrap,
        JSON_FLAGS,
        (0, 1),
        "[<path>]",
        "at most one argument: [<path>]",
        details="""
The file holds the secret to give it, a UUID; - reads it from standard input. This works once. If the token is lost:
write the reset index to the file acl-bootstrap-reset in the server folder of the leader's data directory, and
bootstrap again.
""",
    ),
    CliCommand(
        "acl token create",
        "Create a token",
        create_token,
        (
            text("name", "A name for people."),
            text("type", "client, with policies and roles, or management, which may do everything.", default=CLIENT),
            switch("global", "The token counts in all regions."),
            text("ttl", "How long the token is valid, for example 30m; without it, until it is deleted."),
            text("accessor", "The accessor id of a token whose ids are brought along; needs <path>."),
            *ROLE_FLAGS,
            *JSON_FLAGS,
        ),
        (0, 1),
        "[<path>]",
        "at most one argument: [<path>]",
        details=(
            "The secret is printed once: the servers store only its hash.\n\n"
            "With -accessor, <path> is a file with the secret id, or - for standard input."
        ),
    ),
    CliCommand(
        "acl token update",
        "Change a token",
        update_token,
        (
            text("name", "The new name."),
            text("type", "The new type: client or management."),
            *ROLE_FLAGS,
            *JSON_FLAGS,
        ),
        *BY_ACCESSOR,
        details="What no flag names is kept. Policies that are given replace those it has; so do roles.",
    ),
    CliCommand("acl token delete", "Revoke a token", delete_token, (), *BY_ACCESSOR),
    CliCommand("acl token info", "Show a token", show_token, JSON_FLAGS, *BY_ACCESSOR),
    CliCommand("acl token list", "List tokens", list_tokens, JSON_FLAGS),
    CliCommand("acl token self", "Show your token", show_own_token, JSON_FLAGS),
)
