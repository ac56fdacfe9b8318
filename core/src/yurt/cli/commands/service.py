"""`yurt service`: services that jobs register with the nomad provider."""

from __future__ import annotations

from yurt.cli.api.lookup import api_path
from yurt.cli.api.namespaces import check_namespace, warn_of_namespace
from yurt.cli.api.paging import PAGE_FLAGS, page_query, show_next_page
from yurt.cli.declaration import JSON_FLAGS, VERBOSE, CliCommand, Invocation
from yurt.cli.flags import text
from yurt.cli.json_object import Json
from yurt.cli.terminal.data import show_data, wants_data
from yurt.cli.terminal.screen import key_values


def delete_service(call: Invocation) -> int:
    """Delete one registration of a service."""
    call.api.delete(api_path("service", *call.args))
    call.screen.line("Successfully deleted service registration")
    return 0


def show_service(call: Invocation) -> int:
    """The instances of one service."""
    is_data = wants_data(call)
    answer = call.api.read(api_path("service", call.args[0]), page_query(call))
    found: list[Json] = answer.data or []
    if is_data:
        return show_data(call, found)
    if not found:
        check_namespace(call)
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


def list_services(call: Invocation) -> int:
    """Names and tags of the registered services."""
    is_data = wants_data(call)
    spaces: list[Json] = call.api.get("/v1/services") or []
    requested = call.flags.text("name")
    if requested:
        spaces = [_only(space, requested) for space in spaces]
        spaces = [space for space in spaces if space["Services"]]
    if not spaces:
        warn_of_namespace(call)
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


COMMANDS = (
    CliCommand(
        "service delete",
        "Delete one instance of a service",
        delete_service,
        (),
        (2, 2),
        "<service_name> <service_id>",
        "two arguments: <service_name> <service_id>",
        details="The agent that runs it does not register it again by itself.",
    ),
    CliCommand(
        "service info",
        "Show the instances of a service",
        show_service,
        (
            VERBOSE,
            text("filter", "Only instances that the expression matches."),
            *PAGE_FLAGS,
            *JSON_FLAGS,
        ),
        (1, 1),
        "<service_name>",
        "one argument: <service_name>",
    ),
    CliCommand(
        "service list",
        "List the services that jobs register with the nomad provider",
        list_services,
        (text("name", "Only this service."), *JSON_FLAGS),
    ),
)
