"""CSI volumes on the screen."""

from __future__ import annotations

from yurt.cli.api.lookup import api_path
from yurt.cli.declaration import Invocation
from yurt.cli.json_object import Json
from yurt.cli.terminal.data import show_data
from yurt.cli.views.allocs import show_allocs

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def show_all_csi(call: Invocation, found: list[Json]) -> None:
    """A table of all."""
    call.screen.title("Container Storage Interface")
    if not found:
        call.screen.line("No CSI volumes")
        return
    rows = [
        [
            each["ID"], each["Name"], each["Namespace"], each["PluginID"], shown_bool(each["Schedulable"]),
            each["AccessMode"] or "<none>",
        ]
        for each in sorted(found, key=lambda each: (each["Namespace"], each["ID"]))
    ]  # fmt: skip
    call.screen.table("ID|Name|Namespace|Plugin ID|Schedulable|Access Mode", rows)


def show_csi(call: Invocation, stub: Json, is_data: bool) -> int:
    """One volume."""
    volume: Json = call.api.get(api_path("volume", "csi", stub["ID"]), {"namespace": stub["Namespace"]})
    if is_data:
        return show_data(call, volume)
    call.screen.pairs(_facts(volume))
    if call.flags.is_on("short"):
        return 0
    if volume.get("Topologies"):
        call.screen.title("Topologies")
        rows = [[str(number), _words(each.get("Segments"))] for number, each in enumerate(volume["Topologies"])]
        call.screen.table("Topology|Segments", rows)
    call.screen.title("Capabilities")
    modes = [[each["AccessMode"], each["AttachmentMode"]] for each in volume.get("RequestedCapabilities") or []]
    call.screen.table("Access Mode|Attachment Mode", modes)
    call.screen.title("Allocations")
    show_allocs(call, volume.get("Allocations") or [])
    return 0


def _facts(volume: Json) -> list[tuple[str, object]]:
    return [
        ("ID", volume["ID"]),
        ("Name", volume["Name"]),
        ("Namespace", volume["Namespace"]),
        ("External ID", volume["ExternalID"]),
        ("Plugin ID", volume["PluginID"]),
        ("Provider", volume["Provider"]),
        ("Version", volume["ProviderVersion"]),
        ("Capacity", shown_size(volume.get("Capacity") or 0)),
        ("Schedulable", shown_bool(volume["Schedulable"])),
        ("Controllers Healthy", volume["ControllersHealthy"]),
        ("Controllers Expected", volume["ControllersExpected"]),
        ("Nodes Healthy", volume["NodesHealthy"]),
        ("Nodes Expected", volume["NodesExpected"]),
        ("Access Mode", volume["AccessMode"] or "<none>"),
        ("Attachment Mode", volume["AttachmentMode"] or "<none>"),
        ("Mount Options", mount_options(volume.get("MountOptions"))),
    ]


def mount_options(options: Json | None) -> str:
    """How a volume is mounted, in words."""
    if not options:
        return "<none>"
    flags = ",".join(options.get("MountFlags") or ())
    parts = (f"fs_type: {options['FSType']}" if options.get("FSType") else "", f"flags: {flags}" if flags else "")
    return " ".join(part for part in parts if part) or "<none>"


def _words(entries: Json | None) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted((entries or {}).items()))


def shown_bool(value: object) -> str:
    """true or false."""
    return str(bool(value)).lower()


def shown_size(size: int) -> str:
    """A number of bytes in the unit that makes it short."""
    value, unit = float(size), 0
    while value >= 1024 and unit < len(UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.3g} {UNITS[unit]}"
