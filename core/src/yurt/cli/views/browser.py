"""The web pages of what commands show: opened with -ui, named in a hint on a terminal."""

from __future__ import annotations

import os
from collections.abc import Sequence
from urllib.parse import quote, urlencode

from yurt.cli.command import Invocation
from yurt.cli.errors import CliError
from yurt.sdk.errors import YurtError

START = "/ui/"
FIRST_ERROR = 400
_OFF = frozenset({"0", "f", "false"})


def job_page(job_id: str, namespace: str | None) -> tuple[str, ...]:
    """The page of a job."""
    return (f"{START}jobs/{quote(job_id, safe='')}?{urlencode({'namespace': namespace or 'default'})}",)


def page(kind: str, name: str, *, instead: Sequence[str] = ()) -> tuple[str, ...]:
    """The page of an allocation, a node, ..., and pages that serve instead where the agent has no such page."""
    return (f"{START}{kind}/{quote(name)}" if name else f"{START}{kind}", *instead)


def offer_page(call: Invocation, pages: Sequence[str], what: str) -> None:
    """With -ui open the page; else, on a terminal, say where it is."""
    if call.flags.is_on("ui"):
        open_page(call, pages)
    elif call.screen.is_terminal and os.environ.get("NOMAD_CLI_SHOW_HINTS", "1").lower() not in _OFF:
        url = call.api.url(pages[0])
        if url.startswith("http"):
            call.screen.line(f"\n==> View and manage {what} in the Web UI: {url}")


def open_page(call: Invocation, pages: Sequence[str]) -> None:
    """Open the first of the pages that the agent has, else its start page.

    Says so on standard error where no browser starts: what the command did counts, not its page. Raises CliError for an
    address that no browser can open.
    """
    address = call.api.connection.address
    if not call.api.url(START).startswith("http"):
        raise CliError(f"A browser cannot open {address}; name an http address with -address")
    path = next((each for each in pages if _is_there(call, each)), START)
    url = call.api.url(path)
    call.screen.line(f'==> Opening URL "{url}"')
    if not opened(url):
        call.screen.error("No browser could be started on this machine; open the address in one of yours")


def opened(url: str) -> bool:
    """Whether a browser took the address."""
    import webbrowser

    return webbrowser.open(url)


def _is_there(call: Invocation, path: str) -> bool:
    try:
        return call.api.raw("GET", path).status < FIRST_ERROR
    except YurtError:
        return False
