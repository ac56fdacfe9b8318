"""`yurt plugin`: Yurt's own plugins, and the CSI plugins that jobs run."""

from __future__ import annotations

import re

from yurt.cli.api.lookup import api_path
from yurt.cli.declaration import JSON_FLAGS, CliCommand, Invocation
from yurt.cli.errors import CliError
from yurt.cli.flags import switch, text
from yurt.cli.json_object import Json
from yurt.cli.terminal.data import show_data, wants_data
from yurt.cli.views.allocs import show_allocs

PARTS = {
    "Drivers": "", "Devices": "", "Providers": "", "TaskHooks": "task hook ", "AllocHooks": "allocation hook ",
    "ServiceProviders": "service provider ", "Fingerprints": "fingerprint ", "ArtifactGetters": "artifact getter ",
    "LogEngines": "log engine ",
}  # fmt: skip
"""The fields of a plugin that list its parts, and the label of each."""


def list_plugins(call: Invocation) -> int:
    """One line a plugin."""
    is_json = wants_data(call)
    found: list[Json] = call.api.get("/v1/yurt/plugins") or []
    if is_json:
        return show_data(call, found)
    if not found:
        call.screen.line("No plugins are installed; drivers come with: pip install 'yurt[all]'")
        return 0
    rows = []
    for each in sorted(found, key=lambda plugin: plugin["Name"]):
        offers = ", ".join(f"{kind}{name}" for field, kind in PARTS.items() for name in each.get(field) or ())
        about = [each.get("Distribution") or "", each.get("Version") or ""]
        rows.append([each["Name"], each["State"], offers, *about, each.get("Reason") or ""])
    call.screen.table("Name|State|Offers|Distribution|Version|Reason", rows)
    return 0


def reload_plugin(call: Invocation) -> int:
    """Reload the code of a plugin and report the adopted tasks."""
    is_data = wants_data(call)
    found: Json = call.api.put(api_path("yurt", "plugin", call.args[0], "reload"))
    if is_data:
        return show_data(call, found)
    version = f" {found['Version']}" if found.get("Version") else ""
    drivers = ", ".join(found.get("Drivers") or ())
    count = found.get("Tasks") or 0
    tasks_text = {0: "no task was running", 1: "1 task was kept"}.get(count, f"{count} tasks were kept")
    call.screen.line(f"Reloaded the plugin {found['Name']}{version} (drivers: {drivers}); {tasks_text}")
    return 0


def show_csi_plugins(call: Invocation) -> int:
    """One plugin, or all."""
    if call.flags.text("type") not in ("", "csi"):
        raise CliError(f'unknown plugin type "{call.flags.text("type")}"; it is "csi"')
    is_data = wants_data(call)
    return _show_one(call, call.args[0], is_data) if call.args else _show_all(call, is_data)


def _show_all(call: Invocation, is_data: bool) -> int:
    found: list[Json] = call.api.get("/v1/plugins", {"type": "csi"}) or []
    if is_data:
        return show_data(call, found)
    call.screen.title("Container Storage Interface")
    if not found:
        call.screen.line("No CSI plugins")
        return 0
    rows = [[each["ID"], each["Provider"], _share(each, "Controllers"), _share(each, "Nodes")] for each in found]
    call.screen.table("ID|Provider|Controllers Healthy/Expected|Nodes Healthy/Expected", rows)
    return 0


def _share(plugin: Json, part: str) -> str:
    return f"{plugin[f'{part}Healthy']}/{plugin[f'{part}Expected']}"


def _show_one(call: Invocation, prefix: str, is_data: bool) -> int:
    found: list[Json] = call.api.get("/v1/plugins", {"type": "csi", "prefix": prefix}) or []
    chosen = [each for each in found if each["ID"] == prefix] or found
    if len(chosen) != 1:
        names = ", ".join(each["ID"] for each in chosen)
        raise CliError(
            f"Prefix matched several: {names}" if names else f'No plugin(s) with prefix or ID "{prefix}" found'
        )
    plugin: Json = call.api.get(api_path("plugin", "csi", chosen[0]["ID"]))
    if is_data:
        return show_data(call, plugin)
    call.screen.pairs(
        [
            ("ID", plugin["ID"]),
            ("Provider", plugin["Provider"]),
            ("Version", plugin["Version"]),
            ("Controllers Healthy", plugin["ControllersHealthy"]),
            ("Controllers Expected", plugin["ControllersExpected"]),
            ("Nodes Healthy", plugin["NodesHealthy"]),
            ("Nodes Expected", plugin["NodesExpected"]),
        ]
    )
    if not call.flags.is_on("short"):
        _show_parts(call, plugin)
    return 0


def _show_parts(call: Invocation, plugin: Json) -> None:
    for part, info, title in (
        ("Controllers", "ControllerInfo", "Controller Capabilities"),
        ("Nodes", "NodeInfo", "Node Capabilities"),
    ):
        facts = [each[info] for each in (plugin.get(part) or {}).values() if each.get(info)]
        if facts:
            call.screen.title(title)
            able = [name for name, value in sorted(facts[0].items()) if value is True]
            call.screen.line(", ".join(_words(name) for name in able) or "none")
    sick = [
        [part[:-1], call.short(node), each.get("HealthDescription") or ""]
        for part in ("Controllers", "Nodes")
        for node, each in sorted((plugin.get(part) or {}).items())
        if not each.get("Healthy")
    ]
    if sick:
        call.screen.title("Unhealthy")
        call.screen.table("Part|Node ID|Reason", sick)
    call.screen.title("Allocations")
    show_allocs(call, plugin.get("Allocations") or [])


def _words(name: str) -> str:
    """SupportsCreateDelete: create delete."""
    return re.sub(r"(?<!^)(?=[A-Z])", " ", name.removeprefix("Supports")).lower()


COMMANDS = (
    CliCommand(
        "plugin list",
        "List Yurt's plugins: drivers, devices, hooks, providers, fingerprints",
        list_plugins,
        JSON_FLAGS,
    ),
    CliCommand(
        "plugin reload",
        "Load the code of a plugin again, and keep the tasks of its drivers",
        reload_plugin,
        JSON_FLAGS,
        (1, 1),
        "<name>",
        "one argument: <name>",
        details="""
The plugin is one of the agent that is asked. When the new code cannot be imported, does not work on this machine or
does not find the running tasks, the old code goes on and the command says why. Exec sessions in the tasks end.
""",
    ),
    CliCommand(
        "plugin status",
        "List CSI plugins, or show the status of one",
        show_csi_plugins,
        (
            text("type", "The type of the plugins: csi."),
            switch("short", "Neither capabilities nor allocations."),
            switch("verbose", "Whole ids."),
            *JSON_FLAGS,
        ),
        (0, 1),
        "[plugin]",
        "at most one argument: [plugin]",
    ),
)
