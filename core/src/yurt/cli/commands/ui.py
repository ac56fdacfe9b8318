"""`yurt ui`: the agent's web pages."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

from yurt.cli.api.lookup import find_alloc
from yurt.cli.command import CliCommand, Invocation
from yurt.cli.errors import CliError, UsageError
from yurt.cli.flags import switch
from yurt.cli.tree import NOUNS

Json = dict[str, Any]
START = "/ui/"
KINDS = ("jobs", "allocs", "nodes")
NO_TOKEN = (
    "-authenticate: the web pages take no token, so that a browser keeps none. With access control they show what the "
    'policy "anonymous" allows; use commands such as "yurt status" with your token for the rest'
)
SHOWN_MAX, TEXT_MAX = 20, 200
FIRST_ERROR = 400


def run(call: Invocation) -> int:
    """Open the agent's pages in a browser, or say where they are."""
    from yurt.cli.views.browser import opened

    if call.flags.is_on("authenticate"):
        raise UsageError(NO_TOKEN)
    path = page_of(call, call.args[0]) if call.args else START
    url = call.api.url(path)
    if not url.startswith("http"):
        raise CliError(f"A browser cannot open {call.api.connection.address}; name an http address with -address")
    answer = call.api.raw("GET", path)
    if answer.status >= FIRST_ERROR:
        said = answer.body.decode(errors="replace")[:TEXT_MAX]
        raise CliError(f"The agent at {call.api.connection.address} does not show {url}: {said}")
    if call.flags.is_on("show-url"):
        call.screen.line(f"URL for web UI: {url}")
        return 0
    call.screen.line(f'Opening URL "{url}"')
    if not opened(url):
        raise CliError("No browser could be started on this machine; open the address in one of yours")
    return 0


def page_of(call: Invocation, identifier: str) -> str:
    """The page that shows a job, an allocation (with its job) or a node (with all nodes); raises CliError."""
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
    if kind == "nodes":
        return START
    job_id, namespace = name, call.api.namespace
    if kind == "allocs":
        alloc = find_alloc(call, name)
        job_id, namespace = alloc["JobID"], alloc["Namespace"]
    return f"{START}jobs/{quote(job_id)}?{urlencode({'namespace': namespace or 'default'})}"


COMMANDS = (
    CliCommand(
        "ui",
        NOUNS["ui"],
        run,
        (
            switch("show-url", "Print the address instead of opening it."),
            switch("authenticate", "Refused: the web pages take no token."),
        ),
        (0, 1),
        "[<identifier>]",
        "at most one argument: <identifier>",
        details="""
The identifier is that of a job, an allocation or a node, or the beginning of one. An allocation is shown on the page of
its job; a node on the start page, which lists jobs, nodes and servers. The pages only show, and change nothing.
They take no token: with access control they show what the policy "anonymous" allows.
""",
    ),
)
