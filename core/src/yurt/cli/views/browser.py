"""The web pages of what commands show: opened with -ui, named in a hint on a terminal."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from yurt.cli.advice import shows_hints
from yurt.cli.declaration import Invocation
from yurt.cli.errors import CliError

START = "/ui/"


def job_page(job_id: str, namespace: str | None) -> str:
    """The page of a job."""
    return f"{START}jobs/{quote(job_id, safe='')}?{urlencode({'namespace': namespace or 'default'})}"


def page(kind: str, name: str = "") -> str:
    """The page of an allocation, a node, ..., or of all of them."""
    return f"{START}{kind}/{quote(name)}" if name else f"{START}{kind}"


def offer_page(call: Invocation, path: str, what: str) -> None:
    """With -ui open the page; else, on a terminal, print its address."""
    if call.flags.is_on("ui"):
        open_page(call, path)
    elif call.screen.is_terminal and shows_hints():
        url = call.api.url(path)
        if url.startswith("http") and _agent_shows_hints(call):
            call.screen.line(f"\n==> View and manage {what} in the Web UI: {url}")


def _agent_shows_hints(call: Invocation) -> bool:
    """Whether the agent's operator wants hints; an agent that does not answer that wants them."""
    try:
        return bool(call.api.get("/v1/yurt/ui/config").get("CLIHints", True))
    except CliError:
        return True


def open_page(call: Invocation, path: str) -> None:
    """Open a page of the agent.

    Says so on standard error where no browser starts: what the command did counts, not its page. Raises CliError for an
    address that no browser can open.
    """
    url = call.api.url(path)
    if not url.startswith("http"):
        raise CliError(f"A browser cannot open {call.api.connection.address}; name an http address with -address")
    call.screen.line(f'==> Opening URL "{url}"')
    if not opened(url):
        call.screen.error("No browser could be started on this machine; open the address in one of yours")


def opened(url: str) -> bool:
    """Whether a browser took the address."""
    import webbrowser

    return webbrowser.open(url)
