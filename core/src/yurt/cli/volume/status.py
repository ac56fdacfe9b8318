"""`yurt volume status`."""

from __future__ import annotations

from typing import Any

from yurt.cli.command import JSON_FLAGS, Command, Invocation
from yurt.cli.errors import CliError
from yurt.cli.flags import switch, text
from yurt.cli.lookup import find_node
from yurt.cli.output import show_data, wants_data
from yurt.cli.views.allocs import show_allocs
from yurt.cli.volume.lookup import find_volume
from yurt.cli.volume.spec import NO_CSI

Json = dict[str, Any]
UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def run(call: Invocation) -> int:
    """One volume, or all."""
    kind = call.flags.text("type")
    if kind not in ("", "host"):
        raise CliError(NO_CSI if kind == "csi" else f'unknown volume type "{kind}"; it is "host"')
    is_data = wants_data(call)
    return _show_one(call, call.args[0], is_data) if call.args else _show_all(call, is_data)


def _show_all(call: Invocation, is_data: bool) -> int:
    node = call.flags.text("node")
    query = {
        "type": "host",
        "node_id": find_node(call, node)["ID"] if node else "",
        "node_pool": call.flags.text("node-pool"),
    }
    found: list[Json] = call.api.get("/v1/volumes", query) or []
    if is_data:
        return show_data(call, found)
    call.screen.title("Dynamic Host Volumes")
    if not found:
        call.screen.line("No dynamic host volumes")
        return 0
    rows = [
        [
            call.short(each["ID"]), each["Name"], each["Namespace"], each["PluginID"], call.short(each["NodeID"]),
            each["NodePool"], each["State"],
        ]
        for each in sorted(found, key=lambda each: (each["Namespace"], each["Name"], each["ID"]))
    ]  # fmt: skip
    call.screen.table("ID|Name|Namespace|Plugin ID|Node ID|Node Pool|State", rows)
    return 0


def _show_one(call: Invocation, prefix: str, is_data: bool) -> int:
    stub = find_volume(call, prefix)
    volume: Json = call.api.get(f"/v1/volume/host/{stub['ID']}", {"namespace": stub["Namespace"]})
    if is_data:
        return show_data(call, volume)
    call.screen.pairs(
        [
            ("ID", volume["ID"]),
            ("Name", volume["Name"]),
            ("Namespace", volume["Namespace"]),
            ("Plugin ID", volume["PluginID"]),
            ("Node ID", volume["NodeID"]),
            ("Node Pool", volume["NodePool"]),
            ("Capacity", shown_size(volume.get("CapacityBytes") or 0)),
            ("State", volume["State"]),
            ("Host Path", volume["HostPath"]),
        ]
    )
    if call.flags.is_on("short"):
        return 0
    call.screen.title("Capabilities")
    modes = [[each["AccessMode"], each["AttachmentMode"]] for each in volume.get("RequestedCapabilities") or []]
    call.screen.table("Access Mode|Attachment Mode", modes)
    call.screen.title("Allocations")
    show_allocs(call, volume.get("Allocations") or [])
    return 0


def shown_size(size: int) -> str:
    """A number of bytes in the unit that makes it short."""
    value, unit = float(size), 0
    while value >= 1024 and unit < len(UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.3g} {UNITS[unit]}"


COMMAND = Command(
    "volume status",
    "Show a host volume, or list them.",
    run,
    (
        text("type", "The type of the volumes: host."),
        switch("short", "Neither capabilities nor allocations."),
        switch("verbose", "Whole ids."),
        text("node", "Those on this node."),
        text("node-pool", "Those in this node pool."),
        *JSON_FLAGS,
    ),
    (0, 1),
    "[id]",
    "at most one argument: [id]",
)
