"""`yurt ui`: the agent's web pages."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from yurt.cli.declaration import CliCommand, Invocation
from yurt.cli.errors import CliError
from yurt.cli.flags import switch
from yurt.cli.json_object import Json
from yurt.cli.tree import NOUNS

START, SIGN_IN = "/ui/", "/ui/sign-in"
KINDS = ("jobs", "allocs", "nodes")
SHOWN_MAX, TEXT_MAX = 20, 200
FIRST_ERROR = 400
NO_TOKEN = "-authenticate signs the browser in as your token: give one with -token or NOMAD_TOKEN"
OTHER_BROWSER = ", or ask for one with a token by -show-url"


def run(call: Invocation) -> int:
    """Open the agent's pages in a browser, or print their address."""
    from yurt.cli.views.browser import opened

    has_token = call.flags.is_on("authenticate")
    if has_token and not call.api.connection.token:
        raise CliError(NO_TOKEN)
    path = page_of(call, call.args[0]) if call.args else START
    if has_token:
        path = SIGN_IN if path == START else f"{SIGN_IN}?{urlencode({'back': path})}"
    url = call.api.url(path)
    if not url.startswith("http"):
        raise CliError(f"A browser cannot open {call.api.connection.address}; name an http address with -address")
    answer = call.api.raw("GET", path)
    if answer.status >= FIRST_ERROR:
        reason = answer.body.decode(errors="replace")[:TEXT_MAX]
        raise CliError(f"The agent at {call.api.connection.address} does not show {url}: {reason}")
    whole = f"{url}#ott={quote(one_time_token(call), safe='')}" if has_token else url
    if call.flags.is_on("show-url"):
        call.screen.line(f"URL for web UI: {whole}")
        return 0
    call.screen.line(f'Opening URL "{url}"' + (" with a one-time token" if has_token else ""))
    if not opened(whole):
        raise CliError(
            f"No browser could be started on this machine; open the address in one of yours{OTHER_BROWSER * has_token}"
        )
    return 0


def one_time_token(call: Invocation) -> str:
    """A secret that signs in once as the caller's token does; raises CliError."""
    answer: Json = call.api.put("/v1/acl/token/onetime")
    return str(answer["OneTimeToken"]["OneTimeSecretID"])


def page_of(call: Invocation, identifier: str) -> str:
    """The page of a job, an allocation or a node; raises CliError."""
    query = {"namespace": call.api.namespace}
    answer: Json = call.api.put("/v1/search", {"Prefix": identifier, "Context": "all"}, query) or {}
    found = [(kind, each) for kind in KINDS for each in (answer.get("Matches") or {}).get(kind) or ()]
    found = [(kind, each) for kind, each in found if each == identifier] or found
    if not found:
        raise CliError(f'No job, allocation or node has the id "{identifier}"')
    if len(found) > 1:
        names = ", ".join(each for _, each in found[:SHOWN_MAX])
        raise CliError(f'Several jobs, allocations or nodes have an id that begins with "{identifier}": {names}')
    kind, name = found[0]
    if kind != "jobs":
        return f"{START}{'nodes' if kind == 'nodes' else 'allocations'}/{quote(name, safe='')}"
    return f"{START}jobs/{quote(name)}?{urlencode({'namespace': call.api.namespace})}"


COMMANDS = (
    CliCommand(
        "ui",
        NOUNS["ui"],
        run,
        (
            switch("show-url", "Print the address instead of opening it."),
            switch("authenticate", "Sign the browser in as the token of this command, by a one-time token."),
        ),
        (0, 1),
        "[<identifier>]",
        "at most one argument: <identifier>",
        details="""
The identifier is that of a job, an allocation or a node, or the beginning of one.
With -authenticate the browser opens the sign-in page with a one-time token in the fragment of the address, which is not
sent to any server; after a click it signs in as your token and goes on to the page. The token works once and for ten
minutes. With -show-url the address that is printed holds it.
""",
    ),
)
