"""`yurt service info`."""

from __future__ import annotations

from typing import Any

from yurt.cli.api.lookup import api_path
from yurt.cli.api.paging import PAGE_FLAGS, page_query, show_next_page
from yurt.cli.command import JSON_FLAGS, VERBOSE, Command, Invocation
from yurt.cli.flags import text
from yurt.cli.terminal.data import show_data, wants_data
from yurt.cli.terminal.screen import key_values

Json = dict[str, Any]


def run(call: Invocation) -> int:
    """The instances of one service."""
    is_data = wants_data(call)
    answer = call.api.read(api_path("service", call.args[0]), page_query(call))
    found: list[Json] = answer.data or []
    if is_data:
        return show_data(call, found)
    if not found:
        call.screen.line("No service registrations found")
        return 0
    if call.is_verbose:
        call.screen.line("\n\n".join(key_values(_facts(service)) for service in found))
    else:
        call.screen.table("Job ID|Address|Tags|Node ID|Alloc ID", [_row(call, service) for service in found])
    show_next_page(call, answer.next_token)
    return 0


def _row(call: Invocation, service: Json) -> list[str]:
    ids = [call.short(service["NodeID"]), call.short(service["AllocID"])]
    return [service["JobID"], address_of(service), _tags(service), *ids]


def _facts(service: Json) -> list[tuple[str, str]]:
    names = {
        "ID": "ID", "Service Name": "ServiceName", "Namespace": "Namespace", "Job ID": "JobID", "Alloc ID": "AllocID",
        "Node ID": "NodeID", "Datacenter": "Datacenter",
    }  # fmt: skip
    facts = [(title, service[key]) for title, key in names.items()]
    return [*facts, ("Address", address_of(service)), ("Tags", _tags(service))]


def address_of(service: Json) -> str:
    """`host:port`, the host in brackets when it is IPv6; the host alone without a port."""
    host = service.get("Address") or ""
    shown = f"[{host}]" if ":" in host else host
    return f"{shown}:{service['Port']}" if service.get("Port") else str(host)


def _tags(service: Json) -> str:
    return f"[{','.join(service.get('Tags') or ())}]"


COMMAND = Command(
    "service info",
    "Show the instances of a service.",
    run,
    (
        VERBOSE,
        text("filter", "Only instances that the expression matches."),
        *PAGE_FLAGS,
        *JSON_FLAGS,
    ),
    (1, 1),
    "<service_name>",
    "one argument: <service_name>",
)
