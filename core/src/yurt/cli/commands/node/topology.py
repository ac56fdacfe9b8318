"""`yurt node topo`: how the devices of a node reach each other."""

from __future__ import annotations

from yurt.cli.api.lookup import api_path
from yurt.cli.declaration import JSON_FLAGS, VERBOSE, CliCommand, Invocation
from yurt.cli.flags import switch
from yurt.cli.json_object import Json
from yurt.cli.terminal.data import show_data, wants_data

LEGEND = (
    ("NV#", "NVLink, by this many links"),
    ("PIX", "one PCIe switch"),
    ("PXB", "several PCIe switches"),
    ("PHB", "the host bridge of one CPU"),
    ("NODE", "the bridges of one NUMA node"),
    ("SYS", "the link between NUMA nodes"),
)


def show_topology(call: Invocation) -> int:
    """The matrix, or the same as data."""
    from yurt.cli.api.choose import chosen_node
    from yurt.cli.views.devices import holders

    is_json = wants_data(call)
    node = chosen_node(call, self_wins=True)
    allocs: list[Json] = call.api.get(api_path("node", node["ID"], "allocations")) or []
    devices = topology(node, holders(allocs))
    if is_json:
        return show_data(call, {"NodeID": node["ID"], "Devices": devices})
    if not devices:
        call.screen.line("The node has no devices.")
        return 0
    _show_matrix(call, devices)
    _show_places(call, devices)
    return 0


def topology(node: Json, allocs_by_device: dict[str, list[str]]) -> list[Json]:
    """Every device with its location and its links to the others, in order of number."""
    from yurt.cli.views.devices import attribute_text, group_name, groups_of

    found = []
    for group in groups_of(node):
        for instance in group.get("Instances") or ():
            own = {name: attribute_text(value) for name, value in (instance.get("Attributes") or {}).items()}
            links = {each: f"NV{count}" for each, count in pairs(own.get("nvlink_links", ""))}
            found.append(
                {
                    "ID": instance["ID"],
                    "Group": group_name(group),
                    "Index": int(own["index"]) if own.get("index") else None,
                    "PciBusID": (instance.get("Locality") or {}).get("PciBusID") or "",
                    "NUMANode": int(own["numa_node"]) if own.get("numa_node") else None,
                    "CPUAffinity": own.get("cpu_affinity", ""),
                    "Healthy": bool(instance.get("Healthy")),
                    "HealthDescription": instance.get("HealthDescription") or "",
                    "Links": dict(pairs(own.get("topology", ""))) | links,
                    "Allocations": allocs_by_device.get(instance["ID"], []),
                }
            )
    return sorted(found, key=lambda each: (each["Index"] is None, each["Index"] or 0, each["Group"], each["ID"]))


def pairs(text: str) -> list[tuple[str, str]]:
    """ "a=1,b=2" as pairs."""
    return [(name, value) for name, _, value in (part.partition("=") for part in text.split(",") if part)]


def names(devices: list[Json]) -> list[str]:
    """Short names: `GPU3` by its number; a card's several instances, and devices without a number, are counted."""
    found: list[str] = []
    for position, device in enumerate(devices):
        kind = device["Group"].split("/")[1].upper()
        number = device["Index"] if device["Index"] is not None else position
        name = f"{kind}{number}"
        same = sum(each == name or each.startswith(f"{name}.") for each in found)
        found.append(f"{name}.{same}" if same else name)
    return found


def _show_matrix(call: Invocation, devices: list[Json]) -> None:
    titles = names(devices)
    rows = []
    for name, device in zip(titles, devices, strict=True):
        cells = ["X" if other is device else device["Links"].get(other["ID"], "-") for other in devices]
        node = "-" if device["NUMANode"] is None else device["NUMANode"]
        rows.append([name, *cells, node, device["CPUAffinity"] or "-"])
    call.screen.table("|".join(["Device", *titles, "NUMA", "CPUs"]), rows)
    used = {cell.rstrip("0123456789") for device in devices for cell in device["Links"].values()}
    legend = [(short, text) for short, text in LEGEND if short.rstrip("#") in used]
    if legend:
        call.screen.line()
        call.screen.pairs(legend)


def _show_places(call: Invocation, devices: list[Json]) -> None:
    call.screen.title("Devices")
    rows = []
    for name, device in zip(names(devices), devices, strict=True):
        health = "healthy" if device["Healthy"] else f"unhealthy: {device['HealthDescription']}"
        allocs = ", ".join(call.short(each) for each in device["Allocations"])
        rows.append([name, device["Group"], device["ID"], device["PciBusID"], allocs, health])
    call.screen.table("Name|Device Group|ID|Bus|Allocations|Health", rows)


COMMANDS = (
    CliCommand(
        "node topo",
        "Show how the devices of a node are connected, and who holds them",
        show_topology,
        (switch("self", "The node of the agent that is asked."), VERBOSE, *JSON_FLAGS),
        (0, 1),
        "[<node>]",
        "at most one argument: <node>",
        details="Connections are NVLink and PCIe; NUMA nodes are shown too.",
    ),
)
