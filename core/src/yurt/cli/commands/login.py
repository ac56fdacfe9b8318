"""`yurt login`: a token for a JWT or for a login in the browser. The token is printed, and never stored."""

from __future__ import annotations

import sys
from typing import Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

from yurt.cli.declaration import JSON_FLAGS, CliCommand, Invocation
from yurt.cli.errors import ApiError, CliError
from yurt.cli.flags import text
from yurt.cli.json_object import Json
from yurt.cli.terminal.data import show_data, wants_data
from yurt.cli.tree import NOUNS

BROWSER_S: Final = 300.0
"""How long the user may take in the browser: the servers wait no longer either."""
LOGIN_S: Final = 75.0
"""The time limit of a login: the servers query providers for 60 s at most."""


class LoginMethod(NamedTuple):
    """A login method, as unauthenticated callers see it."""

    name: str
    type: str


def run(call: Invocation) -> int:
    """Log in."""
    from yurt.cli.commands.acl.answers import explained

    return explained(_log_in)(call)


def _log_in(call: Invocation) -> int:
    is_data = wants_data(call)
    # An expired token must not prevent a login.
    call.api.connection = call.api.connection._replace(token="", timeout_s=LOGIN_S)
    method = _method(call)
    if call.flags.text("type"):
        print("Warning: -type has no effect: the login method has its own type", file=sys.stderr)
    try:
        token = _by_jwt(call, method) if method.type == "JWT" else _by_oidc(call, method)
    except ApiError as error:
        raise CliError(f"Error performing login: {error}") from None
    if is_data:
        return show_data(call, token)
    from yurt.cli.commands.acl.token import show

    call.screen.line(f"Successfully logged in via {method.type} and {method.name}\n")
    return show(call, token)


def _method(call: Invocation) -> LoginMethod:
    """The method that was named, or the default one."""
    methods: list[Json] = call.api.get("/v1/acl/auth-methods") or []
    requested = call.flags.text("method")
    for each in methods:
        if each["Name"] == requested or (not requested and each["Default"]):
            return LoginMethod(each["Name"], each["Type"])
    if requested:
        names = ", ".join(each["Name"] for each in methods) or "none"
        raise CliError(f"Error: method {requested} not found in the state store. Login methods: {names}")
    raise CliError("Must specify an auth method name, no default found")


def _by_jwt(call: Invocation, method: LoginMethod) -> Json:
    value = call.flags.text("login-token")
    if not value:
        raise CliError("You need to provide a login token.")
    body = {"AuthMethodName": method.name, "LoginToken": _login_token(value)}
    token: Json = call.api.put("/v1/acl/login", body)
    return token


def _login_token(value: str) -> str:
    """The token itself, or a file's text after `@`, or standard input for `-`, which hides it from other processes."""
    if value != "-" and not value.startswith("@"):
        return value
    from yurt.cli.files.source import read_text

    return read_text(value.removeprefix("@")).strip()


def _by_oidc(call: Invocation, method: LoginMethod) -> Json:
    import secrets

    from yurt.cli.files.callback import CallbackServer

    with CallbackServer(call.flags.text("oidc-callback-addr")) as server:
        nonce = secrets.token_urlsafe(24)
        parties = {"AuthMethodName": method.name, "ClientNonce": nonce, "RedirectURI": server.redirect_uri}
        url: str = call.api.put("/v1/acl/oidc/auth-url", parties)["AuthURL"]
        server.expect(parse_qs(urlsplit(url).query).get("state", [""])[0])
        _show_address(url)
        back = server.wait(BROWSER_S)
    if back.error:
        raise CliError(f"Error performing login: the provider refused: {back.error}")
    token: Json = call.api.put(
        "/v1/acl/oidc/complete-auth", {**parties, "State": back.state, "Code": back.code, "Iss": back.issuer}
    )
    return token


def _show_address(url: str) -> None:
    """Open the browser, and print the address on standard error: perhaps no browser opens."""
    from yurt.cli.views.browser import opened

    if not url.startswith(("https://", "http://")):
        raise CliError(
            "Error performing login: the server returned an address that does not begin with https:// or http://"
        )
    print(f"Log in at this address in a browser on this machine:\n\n    {url}\n", file=sys.stderr, flush=True)
    opened(url)


COMMANDS = (
    CliCommand(
        "login",
        NOUNS["login"],
        run,
        (
            text("method", "The login method; without it, the default one."),
            text("type", "Has no effect: the login method has its own type."),
            text("login-token", "The JWT of a JWT method; @FILE reads it from a file, - from standard input."),
            text(
                "oidc-callback-addr",
                "Where the browser comes back to on this machine.",
                default="localhost:4649",
            ),
            *JSON_FLAGS,
        ),
        details="""
The token of the login is printed, and kept nowhere: put its secret into NOMAD_TOKEN. It is valid for the time that the
login method allows, with the rights that the method's binding rules give.
""",
    ),
)
