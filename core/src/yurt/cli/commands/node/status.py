"""`yurt node status`: all nodes, or one with its drivers, resources and allocations."""

from __future__ import annotations

from yurt.cli.api.lookup import api_path
from yurt.cli.api.paging import PAGE_FLAGS, page_query, show_next_page
from yurt.cli.declaration import JSON_FLAGS, UI, VERBOSE, CliCommand, Invocation
from yurt.cli.errors import ApiError
from yurt.cli.flags import switch, text
from yurt.cli.json_object import Json
from yurt.cli.terminal.data import show_data, wants_data
from yurt.cli.terminal.screen import key_values
from yurt.cli.terminal.text import ago, bytes_text, local_time, mebibytes, parse_time, two_units


def show_nodes_or_one(call: Invocation) -> int:
    """List all nodes, or show one."""
    from yurt.cli.api.choose import chosen_node
    from yurt.cli.views.browser import offer_page, page

    is_json = wants_data(call)
    if not call.args and not call.flags.is_on("self"):
        return _list(call, is_json=is_json)
    node = chosen_node(call, self_wins=True)
    if is_json:
        return show_data(call, node)
    _show(call, node)
    offer_page(call, page("clients", node["ID"]), "this node")
    return 0


def _list(call: Invocation, *, is_json: bool) -> int:
    from yurt.cli.views.browser import offer_page, page

    flags = call.flags
    query = {**page_query(call), "os": flags.is_on("os") or None}
    answer = call.api.read("/v1/nodes", query)
    nodes: list[Json] = answer.data or []
    if is_json:
        return show_data(call, nodes)
    if not nodes:
        call.screen.line("No nodes registered")
        return 0
    if flags.is_on("quiet"):
        call.screen.line("\n".join(call.short(node["ID"]) for node in nodes))
        return 0
    header = "ID|Node Pool|DC|Name|Class|Drain|Eligibility|Status"
    header += "|OS" if flags.is_on("os") else ""
    header += "|Address|Version" if call.is_verbose else ""
    header += "|Running Allocs" if flags.is_on("allocs") else ""
    call.screen.table(header, [_row(call, node) for node in nodes])
    show_next_page(call, answer.next_token)
    offer_page(call, page("clients"), "nodes")
    return 0


def _row(call: Invocation, node: Json) -> list[str]:
    row = [call.short(node["ID"]), node.get("NodePool") or "default", node["Datacenter"], node["Name"]]
    row += [
        node.get("NodeClass") or "",
        str(bool(node.get("Drain"))).lower(),
        node["SchedulingEligibility"],
        node["Status"],
    ]
    attributes = node.get("Attributes") or {}
    row += [attributes.get("os.name") or ""] if call.flags.is_on("os") else []
    row += [node.get("Address") or "", node.get("Version") or ""] if call.is_verbose else []
    if call.flags.is_on("allocs"):
        allocs = call.api.get(api_path("node", node["ID"], "allocations")) or []
        row.append(str(sum(alloc["ClientStatus"] == "running" for alloc in allocs)))
    return row


def _show(call: Invocation, node: Json) -> None:
    from yurt.cli.views.allocs import show_allocs
    from yurt.cli.views.devices import show_group_attributes, show_node_devices, show_use

    host = _host_stats(call, node)
    allocs: list[Json] = call.api.get(api_path("node", node["ID"], "allocations")) or []
    call.screen.pairs(_facts(call, node, host))
    if call.flags.is_on("short"):
        call.screen.title("Allocations")
        show_allocs(call, allocs)
        return
    if call.is_verbose:
        _show_drivers(call, node)
    _show_volumes_and_networks(call, node)
    _show_events(call, node)
    _show_resources(call, node, allocs, host)
    show_node_devices(call, node, allocs)
    show_use(call, "Device Resource Utilization", host.get("DeviceStats"), is_whole=call.flags.is_on("stats"))
    call.screen.title("Allocations")
    show_allocs(call, allocs)
    if call.is_verbose:
        call.screen.title("Attributes")
        call.screen.line(key_values(sorted((node.get("Attributes") or {}).items())))
        show_group_attributes(call, node)
        call.screen.title("Meta")
        call.screen.line(key_values(sorted((node.get("Meta") or {}).items())))


def _host_stats(call: Invocation, node: Json) -> Json:
    """The host's resource usage; empty when the node cannot be reached."""
    if node["Status"] != "ready":
        return {}
    try:
        return call.api.get("/v1/client/stats", {"node_id": node["ID"]}) or {}
    except ApiError:
        return {}


def _facts(call: Invocation, node: Json, host: Json) -> list[tuple[str, object]]:
    from yurt.cli.views.devices import plugin_words

    drain = node.get("DrainStrategy")
    drain_text = "false"
    if drain:
        until = parse_time(drain.get("ForceDeadline"))
        drain_text = f"true; {local_time(until)} deadline" if until else "true; no deadline"
    facts: list[tuple[str, object]] = [
        ("ID", node["ID"] if call.is_verbose else call.short(node["ID"])),
        ("Name", node["Name"]),
        ("Node Pool", node.get("NodePool") or "default"),
        ("Class", node.get("NodeClass") or ""),
        ("DC", node["Datacenter"]),
        ("Drain", drain_text),
        ("Eligibility", node["SchedulingEligibility"]),
        ("Status", node["Status"]),
        ("CSI Controllers", ",".join(sorted(node.get("CSIControllerPlugins") or {}))),
        ("CSI Drivers", ",".join(sorted(node.get("CSINodePlugins") or {}))),
    ]
    if host.get("Uptime"):
        facts.append(("Uptime", two_units(host["Uptime"] * 1_000_000_000)))
    facts += [
        ("Host Volumes", ",".join(sorted(node.get("HostVolumes") or {}))),
        ("Host Networks", ",".join(sorted(node.get("HostNetworks") or {}))),
        ("CSI Volumes", ",".join(_csi_volumes(call, node))),
        ("Driver Status", ",".join(_driver_words(node))),
    ]
    second = _second_agent(node)
    facts += [("Second Agent", second)] if second else []
    devices = plugin_words(node)
    facts += [("Device Status", ",".join(devices))] if devices else []
    return facts


def _second_agent(node: Json) -> str:
    """The address of an agent that runs on a copy of the node's data directory, according to its newest such event."""
    for event in reversed(node.get("Events") or []):
        details = event.get("Details") or {}
        if details.get("refused_address"):
            when = ago(parse_time(event.get("Timestamp")))
            return f"refused at {details['refused_address']} {when}; {details.get('active_address')} is active"
    return ""


def _csi_volumes(call: Invocation, node: Json) -> list[str]:
    """The CSI volumes in use on the node; queried only where a plugin is."""
    if not node.get("CSINodePlugins"):
        return []
    found = call.api.get("/v1/volumes", {"type": "csi", "node_id": node["ID"], "namespace": "*"}) or []
    return sorted(volume["ID"] for volume in found)


def _driver_words(node: Json) -> list[str]:
    words = []
    for name, driver in sorted((node.get("Drivers") or {}).items()):
        if driver.get("Detected"):
            words.append(name if driver.get("Healthy") else f"{name} (unhealthy)")
    return words


def _show_drivers(call: Invocation, node: Json) -> None:
    call.screen.title("Drivers")
    rows = []
    for name, driver in sorted((node.get("Drivers") or {}).items()):
        words = [bool(driver.get("Detected")), bool(driver.get("Healthy")), driver.get("HealthDescription") or ""]
        rows.append([name, *words, local_time(parse_time(driver.get("UpdateTime")))])
    call.screen.table("Driver|Detected|Healthy|Message|Time", rows)


def _show_volumes_and_networks(call: Invocation, node: Json) -> None:
    volumes = node.get("HostVolumes") or {}
    if volumes and call.is_verbose:
        call.screen.title("Host Volumes")
        rows = [[name, bool(each.get("ReadOnly")), each.get("Path") or ""] for name, each in sorted(volumes.items())]
        call.screen.table("Name|ReadOnly|Source", rows)
    networks = node.get("HostNetworks") or {}
    if networks and call.is_verbose:
        call.screen.title("Host Networks")
        keys = ("CIDR", "Interface", "ReservedPorts")
        rows = [[name, *(each.get(key) or "" for key in keys)] for name, each in sorted(networks.items())]
        call.screen.table("Name|CIDR|Interface|ReservedPorts", rows)


def _show_events(call: Invocation, node: Json) -> None:
    call.screen.title("Node Events")
    rows = []
    for event in reversed(node.get("Events") or []):
        row = [local_time(parse_time(event.get("Timestamp"))), event.get("Subsystem") or "", event.get("Message") or ""]
        if call.is_verbose:
            row.append(", ".join(f"{key} = {value}" for key, value in sorted((event.get("Details") or {}).items())))
        rows.append(row)
    call.screen.table("Time|Subsystem|Message|Details" if call.is_verbose else "Time|Subsystem|Message", rows)


def _show_resources(call: Invocation, node: Json, allocs: list[Json], host: Json) -> None:
    total, reserved = node.get("NodeResources") or {}, node.get("ReservedResources") or {}

    def offered(block: str, key: str) -> int:
        return int((total.get(block) or {}).get(key) or 0) - int((reserved.get(block) or {}).get(key) or 0)

    live = [alloc for alloc in allocs if alloc["ClientStatus"] in ("running", "pending", "unknown")]
    cpu = memory = disk = 0
    for alloc in live:
        allocated = alloc.get("AllocatedResources") or {}
        for task in (allocated.get("Tasks") or {}).values():
            cpu += (task.get("Cpu") or {}).get("CpuShares") or 0
            memory += (task.get("Memory") or {}).get("MemoryMB") or 0
        disk += (allocated.get("Shared") or {}).get("DiskMB") or 0
    call.screen.title("Allocated Resources")
    row = [
        f"{cpu}/{offered('Cpu', 'CpuShares')} MHz",
        f"{mebibytes(memory)}/{mebibytes(offered('Memory', 'MemoryMB'))}",
        f"{mebibytes(disk)}/{mebibytes(offered('Disk', 'DiskMB'))}",
        str(len(live)),
    ]
    call.screen.table("CPU|Memory|Disk|Alloc Count", [row])
    if host:
        _show_host_use(call, node, host)


def _show_host_use(call: Invocation, node: Json, host: Json) -> None:
    total_mhz = ((node.get("NodeResources") or {}).get("Cpu") or {}).get("CpuShares") or 0
    memory = host.get("Memory") or {}
    disk = host.get("AllocDirStats") or {}
    call.screen.title("Host Resource Utilization")
    row = [
        f"{round(host.get('CPUTicksConsumed') or 0)}/{total_mhz} MHz",
        f"{bytes_text(memory.get('Used') or 0)}/{bytes_text(memory.get('Total') or 0)}",
        f"{bytes_text(disk.get('Used') or 0)}/{bytes_text(disk.get('Size') or 0)}",
    ]
    call.screen.table("CPU|Memory|Disk", [row])
    if call.flags.is_on("stats"):
        call.screen.title("CPU Stats")
        rows = [
            [each.get("CPU") or "", *(f"{each.get(key) or 0:.1f}%" for key in ("User", "System", "Idle"))]
            for each in host.get("CPU") or ()
        ]
        call.screen.table("CPU|User|System|Idle", rows)
        time_text = local_time(host.get("Timestamp") or 0)
        call.screen.line(f"\nTaken {ago(host.get('Timestamp') or 0)} ({time_text})")


COMMANDS = (
    CliCommand(
        "node status",
        "List nodes, or show the status of one",
        show_nodes_or_one,
        (
            switch("short", "Print facts and allocations alone."),
            switch("os", "List the operating systems too."),
            switch("quiet", "List ids alone."),
            switch("allocs", "List the number of running allocations too."),
            switch("self", "The node of the agent that is asked; wins over the argument."),
            switch("stats", "Print what the host uses in detail."),
            text("filter", "Only nodes that the expression matches."),
            *PAGE_FLAGS,
            UI,
            VERBOSE,
            *JSON_FLAGS,
        ),
        (0, 1),
        "[<node>]",
        "at most one argument: <node>",
        details="Of one node it shows the drivers, resources, events and allocations; then the flags for lists have no "
        "effect.",
    ),
)
