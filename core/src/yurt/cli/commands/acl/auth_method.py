"""`yurt acl auth-method`: show and change the methods by which users log in."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from yurt.cli.api.lookup import api_path
from yurt.cli.commands.acl.answers import duration_flag, explained
from yurt.cli.declaration import JSON_FLAGS, CliCommand, Invocation
from yurt.cli.errors import CliError, UsageError
from yurt.cli.flags import switch, text
from yurt.cli.json_object import Json
from yurt.cli.terminal.data import show_data, wants_data

KEYS = {
    "type": "Type",
    "token-locality": "TokenLocality",
    "token-name-format": "TokenNameFormat",
    "max-token-ttl": "MaxTokenTTL",
}
"""Flags with a text, and the fields that they set."""
REQUIRED = ("name", "type", "token-locality", "max-token-ttl", "config")


@explained
def create_method(call: Invocation) -> int:
    """A login method."""
    is_data = wants_data(call)
    missing = [flag for flag in REQUIRED if not call.flags.text(flag)]
    if missing:
        raise UsageError(f"A login method needs {', '.join(f'-{flag}' for flag in missing)}")
    method = {"Name": call.flags.text("name"), "Default": call.flags.is_on("default"), **_flag_fields(call)}
    made: Json = call.api.put("/v1/acl/auth-method", method)
    return show_data(call, made) if is_data else _show(call, made)


def _flag_fields(call: Invocation) -> Json:
    """The fields that flags set."""
    fields: Json = {key: call.flags.text(flag) for flag, key in KEYS.items() if call.flags.is_given(flag)}
    if "MaxTokenTTL" in fields:
        duration_flag("max-token-ttl", fields["MaxTokenTTL"])
    if call.flags.is_given("config"):
        fields["Config"] = _config(call.flags.text("config"))
    return fields


def _config(source: str) -> Json:
    """The configuration: JSON, a file after `@`, or standard input for `-`."""
    from yurt.cli.files.source import read_text

    is_file = source.startswith("@") or source == "-"
    where = source.removeprefix("@") if is_file else "-config"
    try:
        config = json.loads(read_text(where) if is_file else source)
    except ValueError as error:
        raise CliError(f"{where}: not valid JSON: {error}") from None
    if not isinstance(config, dict):
        raise CliError(f"{where}: the configuration of a login method is a JSON object")
    return config


@explained
def update_method(call: Invocation) -> int:
    """Change what flags name.

    Only that is sent: the servers keep the rest, the configuration's secrets among it, which they do not show.
    """
    is_data = wants_data(call)
    fields = _flag_fields(call)
    if not fields and not call.flags.is_given("default"):
        raise UsageError("Please provide at least one flag to update the ACL auth method")
    path = api_path("acl", "auth-method", call.args[0])
    stored: Json = call.api.get(path)
    is_default = call.flags.is_on("default") if call.flags.is_given("default") else stored["Default"]
    changed: Json = call.api.put(path, {"Name": stored["Name"], "Default": is_default, **fields})
    return show_data(call, changed) if is_data else _show(call, changed)


@explained
def delete_method(call: Invocation) -> int:
    """Delete it."""
    call.api.delete(api_path("acl", "auth-method", call.args[0]))
    call.screen.line(f"ACL auth method {call.args[0]} successfully deleted")
    return 0


@explained
def show_method(call: Invocation) -> int:
    """One login method."""
    is_data = wants_data(call)
    method: Json = call.api.get(api_path("acl", "auth-method", call.args[0]))
    return show_data(call, method) if is_data else _show(call, method)


@explained
def list_methods(call: Invocation) -> int:
    """All login methods."""
    is_data = wants_data(call)
    methods: list[Json] = call.api.get("/v1/acl/auth-methods") or []
    if is_data:
        return show_data(call, methods)
    if not methods:
        call.screen.line("No ACL auth methods found")
        return 0
    call.screen.table("Name|Type|Default", [(each["Name"], each["Type"], each["Default"]) for each in methods])
    return 0


def _show(call: Invocation, method: Json) -> int:
    call.screen.pairs(
        [
            ("Name", method["Name"]),
            ("Type", method["Type"]),
            ("Locality", method["TokenLocality"]),
            ("Max Token TTL", method["MaxTokenTTL"]),
            ("Token Name Format", method["TokenNameFormat"]),
            ("Default", method["Default"]),
            ("Create Index", method["CreateIndex"]),
            ("Modify Index", method["ModifyIndex"]),
        ]
    )
    config = method.get("Config")
    if config:
        call.screen.title("Auth Method Config")
        call.screen.pairs(_config_rows(config))
    return 0


def _config_rows(config: Json) -> list[tuple[str, Any]]:
    return [
        ("JWT Validation Public Keys", _joined(config.get("JWTValidationPubKeys"))),
        ("JWKS URL", config.get("JWKSURL")),
        ("OIDC Discovery URL", config.get("OIDCDiscoveryURL")),
        ("OIDC Client ID", config.get("OIDCClientID")),
        ("OIDC Client Secret", config.get("OIDCClientSecret")),
        *_assertion_rows(config.get("OIDCClientAssertion") or {}),
        ("OIDC Enable PKCE", config.get("OIDCEnablePKCE")),
        ("OIDC Disable UserInfo", config.get("OIDCDisableUserInfo")),
        ("OIDC Scopes", _joined(config.get("OIDCScopes"))),
        ("Bound audiences", _joined(config.get("BoundAudiences"))),
        ("Bound issuer", _joined(config.get("BoundIssuer"))),
        ("Allowed redirects URIs", _joined(config.get("AllowedRedirectURIs"))),
        ("Discovery CA pem", _joined(config.get("DiscoveryCaPem"))),
        ("JWKS CA cert", config.get("JWKSCACert")),
        ("Signing algorithms", _joined(config.get("SigningAlgs"))),
        ("Expiration Leeway", config.get("ExpirationLeeway")),
        ("NotBefore Leeway", config.get("NotBeforeLeeway")),
        ("ClockSkew Leeway", config.get("ClockSkewLeeway")),
        ("Claim mappings", _mapping(config.get("ClaimMappings"))),
        ("List claim mappings", _mapping(config.get("ListClaimMappings"))),
    ]


def _assertion_rows(assertion: Json) -> list[tuple[str, Any]]:
    """The client's authentication at the OIDC provider; no rows when it uses its secret."""
    if not assertion:
        return []
    return [
        ("OIDC Client Assertion KeySource", assertion.get("KeySource")),
        ("OIDC Client Assertion Algorithm", assertion.get("KeyAlgorithm")),
        ("OIDC Client Assertion Audience", _joined(assertion.get("Audience"))),
        ("OIDC Client Assertion Headers", _mapping(assertion.get("ExtraHeaders"))),
    ]


def _joined(values: Iterable[str] | None) -> str:
    return ",".join(values or ())


def _mapping(values: Mapping[str, str] | None) -> str:
    return "; ".join(f"{{{key}: {value}}}" for key, value in sorted((values or {}).items()))


METHOD_FLAGS = (
    text("type", "OIDC or JWT."),
    text("token-locality", "Where the tokens of logins are valid: local, in this region, or global."),
    text("token-name-format", "The names of tokens, such as ${auth_method_name}-${value.user}."),
    text("max-token-ttl", "How long the tokens of logins are valid, for example 1h."),
    switch("default", "Logins that name no method use this one."),
    text("config", "The configuration as JSON; @FILE reads it from a file, - from standard input."),
)
BY_NAME = ((1, 1), "<acl_auth_method_name>", "one argument: <acl_auth_method_name>")

COMMANDS = (
    CliCommand(
        "acl auth-method create",
        "Create a login method",
        create_method,
        (text("name", "The name of the method: letters, digits and dashes."), *METHOD_FLAGS, *JSON_FLAGS),
    ),
    CliCommand(
        "acl auth-method update",
        "Change a login method",
        update_method,
        (*METHOD_FLAGS, *JSON_FLAGS),
        *BY_NAME,
        details="What no flag names is kept, secrets of the configuration too; -config replaces it as a whole.",
    ),
    CliCommand(
        "acl auth-method delete",
        "Delete a login method",
        delete_method,
        (),
        *BY_NAME,
        details="Its binding rules stay.",
    ),
    CliCommand("acl auth-method info", "Show a login method", show_method, JSON_FLAGS, *BY_NAME),
    CliCommand("acl auth-method list", "List the login methods", list_methods, JSON_FLAGS),
)
