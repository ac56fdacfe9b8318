"""`yurt server members`."""

from __future__ import annotations

import sys
from typing import Any

from yurt.cli.api.client import ApiClient
from yurt.cli.command import JSON_FLAGS, Command, Invocation
from yurt.cli.errors import ApiError
from yurt.cli.flags import switch, without_effect
from yurt.cli.terminal.data import show_data, wants_data

Json = dict[str, Any]

NOBODY_LEADS = 500


def run(call: Invocation) -> int:
    """The servers that know each other."""
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
    return 0


def _region(member: Json) -> str:
    return str((member.get("Tags") or {}).get("region") or "")


def _leader(api: ApiClient, region: str) -> str:
    """Where the leader of a region is reached; "" when nobody leads, or the region cannot be reached."""
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


COMMAND = Command(
    "server members",
    "List the servers and say which one leads.",
    run,
    (
        switch("detailed", "More columns."),
        switch("verbose", "The same as -detailed."),
        without_effect("ui"),
        *JSON_FLAGS,
    ),
)
