"""`yurt server`: the servers, and the membership of the cluster."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from yurt.cli.declaration import JSON_FLAGS, UI, CliCommand, Invocation
from yurt.cli.errors import ApiError, CliError
from yurt.cli.flags import switch
from yurt.cli.json_object import Json
from yurt.cli.terminal.data import show_data, wants_data

if TYPE_CHECKING:
    from yurt.cli.api.client import ApiClient


NOT_HERE: Final = 501
"""How an agent without a server answers, as Nomad's does."""

NOBODY_LEADS = 500


def of_server(call: Invocation, ask: Callable[[], Any]) -> Any:
    """The response; raises CliError with a hint where the agent runs no server."""
    try:
        return ask()
    except ApiError as error:
        if error.status != NOT_HERE:
            raise
        address = call.api.connection.address
        raise CliError(
            f"The agent at {address} runs no server; name one that does with -address or NOMAD_ADDR."
        ) from None


def force_leave(call: Invocation) -> int:
    """Force a failed server into the state "left"."""
    _check_member(call, call.args[0])
    query: dict[str, str | int | bool | None] = {"node": call.args[0]}
    if call.flags.is_on("prune"):
        query["prune"] = 1
    of_server(call, lambda: call.api.put("/v1/agent/force-leave", None, query))
    return 0


def _check_member(call: Invocation, name: str) -> None:
    """Raises CliError for a name that no server has, which the agent would ignore silently."""
    try:
        members: list[Json] = (call.api.get("/v1/agent/members") or {}).get("Members") or []
    except ApiError:
        return  # Listing the servers needs another right; the agent decides then.
    names = {each["Name"] for each in members}
    if names and not names.intersection({name, *(f"{name}.{each['Tags']['region']}" for each in members)}):
        raise CliError(f'no server "{name}" is known; `yurt server members` lists them')


def join_servers(call: Invocation) -> int:
    """Introduce servers to each other."""
    answer: Json = of_server(call, lambda: call.api.put("/v1/agent/join", None, {"address": tuple(call.args)})) or {}
    if answer.get("error"):
        raise CliError(f"Error joining: {answer['error']}")
    call.screen.line(f"Joined {answer.get('num_joined') or 0} servers successfully")
    return 0


def list_members(call: Invocation) -> int:
    """The servers that know each other."""
    from yurt.cli.views.browser import offer_page, page

    is_json = wants_data(call)
    answer: Json = call.api.get("/v1/agent/members") or {}
    members: list[Json] = answer.get("Members") or []
    if is_json:
        return show_data(call, members)
    if not members:
        call.screen.line("Agent doesn't know about server members")
        return 0
    regions = sorted({_region(member) for member in members})
    leaders = {region: _leader(call.api, region) for region in regions}
    is_detailed = call.flags.is_on("detailed") or call.flags.is_on("verbose")
    rows = [
        _row(member, leaders[_region(member)], is_detailed=is_detailed)
        for member in sorted(members, key=lambda each: each["Name"])
    ]
    header = "Name|Address|Port|Status|Leader|Raft Version|Build|Datacenter|Region"
    if is_detailed:
        header = "Name|Address|Port|Status|Leader|Protocol|Raft Version|Build|Datacenter|Region|Tags"
    call.screen.table(header, rows)
    for region in regions:
        if not leaders[region]:
            print(f"No server leads region {region} now; the servers' logs say what they wait for", file=sys.stderr)
    offer_page(call, page("servers"), "servers")
    return 0


def _region(member: Json) -> str:
    return str((member.get("Tags") or {}).get("region") or "")


def _leader(api: ApiClient, region: str) -> str:
    """The address of a region's leader; "" when there is none, or the region cannot be reached."""
    try:
        leader: str = api.get("/v1/status/leader", {"region": region}) or ""
    except ApiError as error:
        if error.status != NOBODY_LEADS:
            raise
        return ""
    return leader


def _row(member: Json, leader: str, *, is_detailed: bool) -> list[str]:
    tags: dict[str, str] = member.get("Tags") or {}
    rpc = f"{tags.get('rpc_addr') or member.get('Addr') or ''}:{tags.get('port') or ''}"
    row = [member["Name"], member.get("Addr") or "", str(member.get("Port") or ""), member.get("Status") or ""]
    row.append(str(rpc == leader).lower())
    row += [str(member.get("ProtocolCur") or tags.get("vsn") or "")] if is_detailed else []
    row += [tags.get("raft_vsn") or "", tags.get("build") or "", tags.get("dc") or "", tags.get("region") or ""]
    return row + ([",".join(f"{key}={value}" for key, value in sorted(tags.items()))] if is_detailed else [])


COMMANDS = (
    CliCommand(
        "server force-leave",
        "Mark a failed server as having left the cluster",
        force_leave,
        (switch("prune", "Forget it at once, instead of listing it as `left` for a day."),),
        (1, 1),
        "<name>",
        "the name of one server",
        details="""
The name is the one that `yurt server members` shows, such as srv1.global. A server whose agent runs stays in use; the
agent that was asked lists it as `leaving`, or with -prune not at all, for five seconds. One that comes back later
joins again as a new one.
""",
    ),
    CliCommand(
        "server join",
        "Make other servers known to the agent's server and its peers",
        join_servers,
        (),
        (1, -1),
        "<address> [<address> ...]",
        "addresses",
        details="""
An address is host:port of a server's `serf` port, 4648 where it is left out. One server that answers is enough:
it tells of the others. Servers of one region become one cluster, those of other regions stay apart.
""",
    ),
    CliCommand(
        "server members",
        "List the servers and show which one leads",
        list_members,
        (
            switch("detailed", "More columns."),
            switch("verbose", "The same as -detailed."),
            UI,
            *JSON_FLAGS,
        ),
    ),
)
