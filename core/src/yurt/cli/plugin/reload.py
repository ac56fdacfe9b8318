"""`yurt plugin reload`: take in the changed code of a plugin."""

from __future__ import annotations

from typing import Any

from yurt.cli.api.lookup import api_path
from yurt.cli.command import JSON_FLAGS, Command, Invocation
from yurt.cli.terminal.data import show_data, wants_data

Json = dict[str, Any]


def run(call: Invocation) -> int:
    """Have the code read again and say what was kept."""
    is_data = wants_data(call)
    found: Json = call.api.put(api_path("yurt", "plugin", call.args[0], "reload"))
    if is_data:
        return show_data(call, found)
    version = f" {found['Version']}" if found.get("Version") else ""
    drivers = ", ".join(found.get("Drivers") or ())
    count = found.get("Tasks") or 0
    kept = {0: "no task was running", 1: "1 task was kept"}.get(count, f"{count} tasks were kept")
    call.screen.line(f"Reloaded the plugin {found['Name']}{version} (drivers: {drivers}); {kept}")
    return 0


COMMAND = Command(
    "plugin reload",
    "Read the code of a plugin again, with the tasks of its drivers kept.",
    run,
    JSON_FLAGS,
    (1, 1),
    "<name>",
    "one argument: <name>",
    details="""
The plugin is one of the agent that is asked. When the new code cannot be imported, does not work on this machine or
does not find the running tasks, the old code goes on and the command says why. Exec sessions in the tasks end.
""",
)
