"""`yurt operator api`: any request to the API, as with curl."""

from __future__ import annotations

import sys
from typing import Final

from yurt.cli.declaration import VERBOSE, CliCommand, Invocation
from yurt.cli.errors import CliError, UsageError
from yurt.cli.flags import switch, text, texts

METHODS: Final = ("GET", "PUT", "POST", "DELETE")
"""The methods that routes of the API have."""
METHOD_NOT_ALLOWED: Final = 405


def send_request(call: Invocation) -> int:
    """Send it and print the raw body; 1 for an error status."""
    flags = call.flags
    path = call.args[0] if call.args[0].startswith("/") else f"/v1/{call.args[0]}"
    if flags.text("filter"):
        from urllib.parse import urlencode

        path += ("&" if "?" in path else "?") + urlencode({"filter": flags.text("filter")})
    body = _body()
    method = _method(flags.text("X")) or ("PUT" if body else "GET")
    headers = dict(_header(item) for item in flags.texts("H"))
    if flags.is_on("dryrun"):
        call.screen.line(_curl(call, method, path, headers))
        return 0
    answer = call.api.raw(method, path, body, headers)
    if flags.is_on("verbose"):
        print(f"> {method} {call.api.url(path)}", file=sys.stderr)
        print(f"< {answer.status} {answer.reason}", file=sys.stderr)
        for name, value in answer.headers.items():
            print(f"< {name}: {value}", file=sys.stderr)
    call.screen.stream.flush()
    sys.stdout.buffer.write(answer.body)
    if answer.body and not answer.body.endswith(b"\n"):
        sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()
    if answer.status >= 400:
        hint = ""
        if answer.status == METHOD_NOT_ALLOWED:
            others = ", ".join(each for each in METHODS if each != method)
            hint = f": {path.partition('?')[0]} has no {method}; give another method with -X ({others})"
        raise CliError(f"The agent answered {answer.status} {answer.reason}{hint}")
    return 0


def _body() -> bytes:
    """Piped input; empty on a terminal or without input."""
    import os
    import stat

    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):
        return b""
    is_input = stat.S_ISFIFO(mode) or stat.S_ISREG(mode)
    return sys.stdin.buffer.read() if is_input else b""


def _method(given: str) -> str:
    method = given.upper()
    if method and method not in METHODS:
        raise UsageError(f'-X: "{given}" is not a method of the API; use {", ".join(METHODS)}')
    return method


def _header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon:
        raise UsageError(f'-H needs "Name: value", not "{line}"')
    return name.strip(), value.strip()


def _curl(call: Invocation, method: str, path: str, headers: dict[str, str]) -> str:
    """The command for curl; the token is named, not printed."""
    import shlex

    words = ["curl"] + ([] if method == "GET" else ["-X", method])
    for name, value in headers.items():
        words += ["-H", shlex.quote(f"{name}: {value}")]
    if call.api.connection.token:
        words += ["-H", '"X-Nomad-Token: ${NOMAD_TOKEN}"']
    if call.api.connection.address.startswith("unix://"):
        words += ["--unix-socket", shlex.quote(call.api.connection.address.removeprefix("unix://"))]
        return " ".join([*words, shlex.quote(f"http://localhost{call.api.url(path)}")])
    return " ".join([*words, shlex.quote(call.api.url(path))])


COMMANDS = (
    CliCommand(
        "operator api",
        "Send a request to the HTTP API and print the answer as it comes",
        send_request,
        (
            switch("dryrun", "Print the command for curl instead."),
            text("filter", "An expression for ?filter=."),
            text("X", f"The method: {', '.join(METHODS)}; default is GET, or PUT with a body."),
            texts("H", 'A header, "Name: value"; may be repeated.'),
            VERBOSE,
        ),
        (1, 1),
        "<path>",
        "one argument: <path>",
        details="A body is read from standard input.",
    ),
)
