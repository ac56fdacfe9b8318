"""`yurt check`: the health of the agent in one line."""

from __future__ import annotations

import json
from collections.abc import Iterator

from yurt.cli.declaration import CliCommand, Invocation
from yurt.cli.errors import UsageError
from yurt.cli.flags import number
from yurt.cli.json_object import Json
from yurt.cli.tree import NOUNS
from yurt.sdk.errors import YurtError

ALIVE = "alive"


def run(call: Invocation) -> int:
    """Say in one line whether the agent is well."""
    least_peers, least_servers = call.flags.number("min-peers"), call.flags.number("min-servers")
    if least_peers < 0 or least_servers < 0:
        raise UsageError("-min-peers and -min-servers take a number, 0 or more")
    try:
        health = health_of(call)
        found = [*_of_server(call, health["server"], least_peers)] if "server" in health else []
        found += [*_of_client(call, health["client"], least_servers)] if "client" in health else []
    except YurtError as error:
        found = [(False, " ".join(str(error).split()))]
    is_well = bool(found) and all(is_fine for is_fine, _ in found)
    call.screen.line(f"{'OK' if is_well else 'CRITICAL'} - {'; '.join(text for _, text in found) or 'nothing runs'}")
    return 0 if is_well else 1


def health_of(call: Invocation) -> Json:
    """The health of the agent's parts, which has status 500 when one of them is unhealthy."""
    answer = call.api.raw("GET", "/v1/agent/health")
    try:
        found = json.loads(answer.body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise YurtError(f"the agent does not tell its health: status {answer.status}")
    return found


def _of_server(call: Invocation, health: Json, least: int) -> Iterator[tuple[bool, str]]:
    yield bool(health.get("ok")), f"server: {health.get('message')}"
    answer: Json = call.api.get("/v1/agent/members") or {}
    own = f"{answer.get('ServerName')}.{answer.get('ServerRegion')}"
    count = sum(
        member.get("Status") == ALIVE
        and member.get("Name") != own
        and (member.get("Tags") or {}).get("region") == answer.get("ServerRegion")
        for member in answer.get("Members") or ()
    )
    yield count >= least, _counted(count, "peer", least)


def _of_client(call: Invocation, health: Json, least: int) -> Iterator[tuple[bool, str]]:
    yield bool(health.get("ok")), f"client: {health.get('message')}"
    count = len(call.api.get("/v1/agent/servers") or ())
    yield count >= least, _counted(count, "known server", least)


def _counted(count: int, what: str, least: int) -> str:
    text = f"{count} {what}{'' if count == 1 else 's'}"
    return text if count >= least else f"{text}, fewer than {least}"


COMMANDS = (
    CliCommand(
        "check",
        NOUNS["check"],
        run,
        (
            number("min-peers", "Number of other live servers of its region that a server needs."),
            number("min-servers", "Number of servers that a client must know.", default=1),
        ),
        details="""
The line is made for monitors and scripts.

The exit code is 0 for an agent that is well, and 1 for one that is not or does not answer.
Each part of the agent that runs is looked at: a server must know a leader, the node of a client must be ready.
""",
    ),
)
