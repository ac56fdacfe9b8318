"""`yurt volume status`: all volumes, or one."""

from __future__ import annotations

from yurt.cli.api.lookup import find_node
from yurt.cli.api.namespaces import warn_of_namespace
from yurt.cli.commands.volume.lookup import KINDS, find_any
from yurt.cli.commands.volume.specification import CSI, HOST
from yurt.cli.declaration import JSON_FLAGS, CliCommand, Invocation
from yurt.cli.errors import CliError
from yurt.cli.flags import switch, text
from yurt.cli.json_object import Json
from yurt.cli.terminal.data import show_data, wants_data


def show_volumes(call: Invocation) -> int:
    """One volume, or all."""
    from yurt.cli.views.csi import show_all_csi, show_csi

    kind = call.flags.text("type")
    if kind not in ("", *KINDS):
        raise CliError(f'unknown volume type "{kind}"; it is "host" or "csi"')
    is_data = wants_data(call)
    if call.args:
        found, stub = find_any(call, call.args[0], kind)
        return (show_csi if found == CSI else _show_host)(call, stub, is_data)
    if is_data:
        return show_data(call, [stub for each in ([kind] if kind else KINDS) for stub in _all(call, each)])
    if kind in ("", CSI):
        show_all_csi(call, _all(call, CSI))
    if kind in ("", HOST):
        _show_all_hosts(call, _all(call, HOST))
    return 0


def _all(call: Invocation, kind: str) -> list[Json]:
    node = call.flags.text("node")
    query = {
        "type": kind,
        "node_id": find_node(call, node)["ID"] if node else "",
        "node_pool": call.flags.text("node-pool") if kind == HOST else "",
    }
    found: list[Json] = call.api.get("/v1/volumes", query) or []
    return found


def _show_all_hosts(call: Invocation, found: list[Json]) -> None:
    call.screen.title("Dynamic Host Volumes")
    if not found:
        warn_of_namespace(call)
        call.screen.line("No dynamic host volumes")
        return
    rows = [
        [
            call.short(each["ID"]), each["Name"], each["Namespace"], each["PluginID"], call.short(each["NodeID"]),
            each["NodePool"], each["State"],
        ]
        for each in sorted(found, key=lambda each: (each["Namespace"], each["Name"], each["ID"]))
    ]  # fmt: skip
    call.screen.table("ID|Name|Namespace|Plugin ID|Node ID|Node Pool|State", rows)


def _show_host(call: Invocation, stub: Json, is_data: bool) -> int:
    from yurt.cli.views.allocs import show_allocs
    from yurt.cli.views.csi import shown_size

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


COMMANDS = (
    CliCommand(
        "volume status",
        "List volumes, or show the status of one",
        show_volumes,
        (
            text("type", "The type of the volumes: csi or host; both without it."),
            switch("short", "Neither capabilities nor allocations."),
            switch("verbose", "Whole ids."),
            text("node", "Those on this node."),
            text("node-pool", "Those in this node pool."),
            *JSON_FLAGS,
        ),
        (0, 1),
        "[id]",
        "at most one argument: [id]",
    ),
)
