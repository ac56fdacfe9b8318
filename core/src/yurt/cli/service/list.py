"""`yurt service list`."""

from __future__ import annotations

from typing import Any

from yurt.cli.command import JSON_FLAGS, Command, Invocation
from yurt.cli.flags import text
from yurt.cli.terminal.data import show_data, wants_data

Json = dict[str, Any]


def run(call: Invocation) -> int:
    """Names and tags of the registered services."""
    is_data = wants_data(call)
    spaces: list[Json] = call.api.get("/v1/services") or []
    wanted = call.flags.text("name")
    if wanted:
        spaces = [_only(space, wanted) for space in spaces]
        spaces = [space for space in spaces if space["Services"]]
    if is_data:
        return show_data(call, spaces)
    rows = [
        (service["ServiceName"], space["Namespace"], _tags(service))
        for space in spaces
        for service in space.get("Services") or ()
    ]
    if not rows:
        call.screen.line("No service registrations found")
    elif call.api.namespace == "*":
        call.screen.table("Service Name|Namespace|Tags", rows)
    else:
        call.screen.table("Service Name|Tags", [(name, tags) for name, _, tags in rows])
    return 0


def _only(space: Json, name: str) -> Json:
    return space | {"Services": [each for each in space.get("Services") or () if each["ServiceName"] == name]}


def _tags(service: Json) -> str:
    return f"[{','.join(service.get('Tags') or ())}]"


COMMAND = Command(
    "service list",
    "List the services that jobs register with the nomad provider.",
    run,
    (text("name", "Only this service."), *JSON_FLAGS),
)
