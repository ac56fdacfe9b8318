"""`yurt volume snapshot`: snapshots that CSI plugins make of volumes."""

from __future__ import annotations

from yurt.cli.api.paging import show_next_page
from yurt.cli.commands.volume.lookup import find_csi
from yurt.cli.commands.volume.secrets import SECRET, key_values, secret_header
from yurt.cli.declaration import VERBOSE, CliCommand, Invocation
from yurt.cli.errors import UsageError
from yurt.cli.flags import number, text, texts
from yurt.cli.json_object import Json
from yurt.cli.terminal.text import SECOND, bytes_text, local_time

PATH = "/v1/volumes/snapshot"
PAGE_ROWS = 30


def create_snapshot(call: Invocation) -> int:
    """Make a snapshot of a volume."""
    volume = find_csi(call, call.args[0])
    snapshot = {
        "SourceVolumeID": volume["ID"],
        "PluginID": volume.get("PluginID") or "",
        "Name": call.args[1] if len(call.args) > 1 else "",
        "Parameters": key_values(call, "parameter"),
        "Secrets": key_values(call, "secret"),
    }
    body = {"Snapshots": [snapshot]}
    answer: Json = call.api.put(PATH, body, {"namespace": volume.get("Namespace")}) or {}
    _show(call, answer.get("Snapshots") or [])
    return 0


def delete_snapshot(call: Invocation) -> int:
    """Delete a snapshot by the ids of plugin and snapshot."""
    plugin, snapshot = call.args
    call.api.delete(PATH, {"plugin_id": plugin, "snapshot_id": snapshot}, headers=secret_header(call))
    call.screen.line(f"Successfully deleted snapshot {snapshot}!")
    return 0


def list_snapshots(call: Invocation) -> int:
    """The snapshots that a plugin knows."""
    plugin = call.flags.text("plugin") or (call.args[0] if call.args else "")
    if not plugin:
        raise UsageError("Name the plugin with -plugin; yurt plugin status -type csi lists them")
    query: dict[str, str | int | bool | None] = {
        "plugin_id": plugin,
        "per_page": call.flags.number("per-page") or None,
        "next_token": call.flags.text("page-token"),
    }
    answer: Json = call.api.get(PATH, query, headers=secret_header(call)) or {}
    found: list[Json] = answer.get("Snapshots") or []
    if not found:
        call.screen.line("No snapshots")
        return 0
    _show(call, found)
    show_next_page(call, answer.get("NextToken") or "")
    return 0


def _show(call: Invocation, snapshots: list[Json]) -> None:
    rows = []
    for each in snapshots:
        made = local_time((each.get("CreateTime") or 0) * SECOND)
        external, source = each.get("ExternalSourceVolumeID") or "", each.get("SourceVolumeID") or ""
        row = [each.get("ID") or "", *([external] if call.is_verbose else []), source]
        rows.append([*row, bytes_text(each.get("SizeBytes") or 0), made, str(bool(each.get("IsReady"))).lower()])
    header = "Snapshot ID|External ID|Volume ID" if call.is_verbose else "Snapshot ID|Volume ID"
    call.screen.table(f"{header}|Size|Create Time|Ready?", rows)


COMMANDS = (
    CliCommand(
        "volume snapshot create",
        "Make a snapshot of a CSI volume",
        create_snapshot,
        (texts("parameter", "key=value for the plugin; may be repeated."), SECRET, VERBOSE),
        (1, 2),
        "<volume id> [<snapshot name>]",
        "one or two arguments: <volume id> [<snapshot name>]",
        details="The volume's plugin needs a controller that makes snapshots; without one the agent says so.",
    ),
    CliCommand(
        "volume snapshot delete",
        "Delete a snapshot of a CSI volume",
        delete_snapshot,
        (SECRET,),
        (2, 2),
        "<plugin id> <snapshot id>",
        "two arguments: <plugin id> <snapshot id>",
    ),
    CliCommand(
        "volume snapshot list",
        "List the snapshots that a CSI plugin knows",
        list_snapshots,
        (
            text("plugin", "The plugin to ask; wins over the argument."),
            SECRET,
            number("per-page", "How many at a time.", default=PAGE_ROWS),
            text("page-token", "Where to go on."),
            VERBOSE,
        ),
        (0, 1),
        "[<plugin id>]",
        "at most one argument: <plugin id>",
    ),
)
