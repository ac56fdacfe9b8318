"""Protection against foreign sites: a web page must not use its reader's access to the API.

A browser sends requests of any page to any address that it can reach, and there is no password here that it would
lack. What tells such a request from a person's own are headers that a page can neither set nor leave out:

- `Host` names whom the browser believes to speak to. A name that is not this agent's means that somebody else's name
  was pointed at this address (DNS rebinding): then every page of that name is "the same origin".
- `Origin` comes with every write, every websocket and every readable request of a page of another site.
- `Sec-Fetch-Site` says so for all requests, but only where the agent speaks TLS or is on the browser's own machine.
- `Referer` is asked where a write has neither of them: browsers since 2020 send `Origin` with every write (`null` where
  a page hides itself), older ones at least the page's address, unless it hides that. Content types say nothing:
  `curl -d` sends the one of a form.

Command lines and SDKs send none of these but `Host`. Two reads of Nomad's API have a side effect, and SDKs make them
(`Route.has_effect_on_get`). Since an image on any page is such a read, and over plain HTTP comes without `Origin` and
`Sec-Fetch-Site`, they are refused to whatever looks like a browser at all.

What another agent passes on was checked where it arrived, so these headers are not passed on (`forwarding`). No header
says that a request was checked already: anybody could send it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aiohttp import hdrs, web
from multidict import CIMultiDictProxy, istr

from yurt.http.agent_info import AgentInfo
from yurt.http.edge.hosts import HostPolicy, is_own_host, is_own_origin, place_of
from yurt.runtime.peer_lines import one_line

FETCH_SITE: Final = istr("Sec-Fetch-Site")
FETCH_MODE: Final = istr("Sec-Fetch-Mode")
FETCH_DEST: Final = istr("Sec-Fetch-Dest")
"""Read for every request: `istr` is folded once instead of at each lookup."""
BROWSER_HEADERS: Final = frozenset({hdrs.ORIGIN.lower(), hdrs.REFERER.lower(), hdrs.COOKIE.lower()})
BROWSER_PREFIX: Final = "sec-fetch-"
"""Headers that only browsers send are these, and those that begin so."""
OWN_SITES: Final = ("same-origin", "none")
"""`none`: a typed address or a bookmark."""
READS: Final = ("GET", "HEAD")
PAGES: Final = ("/", "/ui")
PAGES_BELOW: Final = "/ui/"
SETTING: Final = "http_allowed_hosts"
ANY_ORIGIN: Final = "*"


def policy_of(agent: AgentInfo) -> HostPolicy:
    """The policy of an agent's configuration."""
    header = hdrs.ACCESS_CONTROL_ALLOW_ORIGIN.lower()
    readers = next((value for name, value in agent.response_headers.items() if name.lower() == header), "")
    names = (agent.http_addr, agent.rpc_addr, agent.serf_addr, *agent.host_names)
    places = (place_of(name) for name in names)
    own = (place.host for place in places if place is not None)
    return HostPolicy(names=tuple(dict.fromkeys(own)), allowed=agent.allowed_hosts, readers=readers.strip())


def refusal(request: web.BaseRequest, policy: HostPolicy, *, has_effect: bool) -> str:
    """Why a request is refused; "" where it is not. `has_effect`: it changes something although it is a read."""
    headers = request.headers
    hosts = headers.getall(hdrs.HOST, ())
    for host in hosts:
        if not is_own_host(host, policy):
            return (
                f'"{one_line(host)}" is not a name of this agent; use its IP address, or add the name to {SETTING} in '
                "the agent's configuration"
            )
    if has_effect and looks_like_browser(headers):
        return "this GET has a side effect, so it is refused to browsers; use PUT, or another client"
    is_read = request.method in READS and not _is_websocket(headers)
    foreign = foreign_site(headers, policy, hosts, is_tls=request.secure)
    if not foreign and not is_read:
        foreign = foreign_referrer(headers, policy, hosts)
    if not foreign:
        return ""
    if (is_read or _is_preflight_of_read(request)) and may_read(headers, policy):
        return ""
    if is_read and is_visit(request.path, headers):
        return ""
    return (
        f"a browser sent this for a page of {one_line(foreign)}; if that is this agent under another name, add the "
        f"name to {SETTING} in the agent's configuration; reads alone are opened to other sites by "
        "Access-Control-Allow-Origin in http_api_response_headers"
    )


# Whose page it is.


def foreign_site(headers: CIMultiDictProxy[str], policy: HostPolicy, hosts: Sequence[str], *, is_tls: bool) -> str:
    """The other site whose page sent a request, according to `Origin` and `Sec-Fetch-Site`; "" for none."""
    origins = headers.getall(hdrs.ORIGIN, ())
    for origin in origins:
        if not is_own_origin(origin, policy, hosts, is_tls=is_tls):
            return f'"{origin}"'
    for site in headers.getall(FETCH_SITE, ()):
        if site.strip().lower() not in OWN_SITES:
            return f'another site (it asked "{hosts[0] if hosts else ""}")'
    return ""


def foreign_referrer(headers: CIMultiDictProxy[str], policy: HostPolicy, hosts: Sequence[str]) -> str:
    """The other site named by `Referer`, where no better header exists; "" for none."""
    if hdrs.ORIGIN in headers or FETCH_SITE in headers:
        return ""
    for referrer in headers.getall(hdrs.REFERER, ()):
        scheme, _, rest = referrer.partition("://")
        if not is_own_origin(f"{scheme}://{rest.partition('/')[0]}", policy, hosts, is_tls=False):
            return f'"{referrer}"'
    return ""


def may_read(headers: CIMultiDictProxy[str], policy: HostPolicy) -> bool:
    """Whether the operator has opened reads to the page's site: to all, or to exactly its origin.

    `null` opens nothing: every page can have that origin.
    """
    if policy.readers == ANY_ORIGIN:
        return True
    origins = headers.getall(hdrs.ORIGIN, ())
    return bool(origins) and policy.readers not in ("", "null") and all(each == policy.readers for each in origins)


def looks_like_browser(headers: CIMultiDictProxy[str]) -> bool:
    """Whether anything in a request is what browsers send and command lines do not."""
    return any(map(is_of_browser, headers)) or headers.get(hdrs.USER_AGENT, "").startswith("Mozilla/")


def is_of_browser(name: str) -> bool:
    """Whether browsers alone send a header of this name."""
    return name.lower() in BROWSER_HEADERS or name.lower().startswith(BROWSER_PREFIX)


def _is_websocket(headers: CIMultiDictProxy[str]) -> bool:
    return "websocket" in headers.get(hdrs.UPGRADE, "").lower()


def _is_preflight_of_read(request: web.BaseRequest) -> bool:
    """Whether a browser asks to read with headers set by the page."""
    return request.method == "OPTIONS" and request.headers.get(hdrs.ACCESS_CONTROL_REQUEST_METHOD, "") in READS


def is_visit(path: str, headers: CIMultiDictProxy[str]) -> bool:
    """Whether a user follows a link to one of our pages: the other site cannot read or frame it."""
    return (
        (path in PAGES or path.startswith(PAGES_BELOW))
        and hdrs.ORIGIN not in headers
        and headers.get(FETCH_MODE, "") == "navigate"
        and headers.get(FETCH_DEST, "") == "document"
    )
