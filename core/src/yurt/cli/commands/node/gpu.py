"""`yurt node gpu`: the health of a node's devices with their history, and taking one out or putting it back."""

from __future__ import annotations

from typing import Any

from yurt.cli.api.lookup import api_path
from yurt.cli.api.variables import check_index
from yurt.cli.declaration import JSON_FLAGS, VERBOSE, CliCommand, Invocation
from yurt.cli.errors import ApiError, CliError, UsageError
from yurt.cli.flags import switch, text
from yurt.cli.terminal.data import show_data, wants_data
from yurt.cli.terminal.text import go_duration
from yurt.sdk.errors import Reason

Json = dict[str, Any]


def show_or_set(call: Invocation) -> int:
    """Show the devices' health, or change whether one may be used."""
    from yurt.cli.api.choose import chosen_node

    enable, disable = call.flags.text("enable"), call.flags.text("disable")
    if enable and disable:
        raise UsageError("Only one of -enable and -disable can be given")
    if call.flags.text("reason") and not disable:
        raise UsageError("-reason goes with -disable")
    if call.flags.text("check-index") and not (enable or disable):
        raise UsageError("-check-index goes with -enable and -disable")
    wants_data(call)  # refuses -json with -t before a node is asked for
    node = chosen_node(call)
    if enable or disable:
        return _set(call, node, enable or disable, "eligible" if enable else "ineligible")
    return _show(call, node)


def _set(call: Invocation, node: Json, wanted: str, eligibility: str) -> int:
    rows = health_rows(node, {})
    found = chosen_rows(rows, wanted)
    if len(found) != 1:
        named = ", ".join(each["ID"] for each in found or rows) or "none"
        problem = "names several devices" if found else "names no device"
        raise CliError(f'"{wanted}" {problem} of node {call.short(node["ID"])}: {named}')
    seen = check_index(call)
    body = {
        "Device": found[0]["Key"],
        "Eligibility": eligibility,
        "Reason": call.flags.text("reason"),
        "MarkIndex": found[0]["MarkIndex"] if seen is None else seen,
    }
    _put(call, node, body, is_asked_for=seen is not None)
    done = (
        "enabled: its agent tests it if it had a fault" if eligibility == "eligible" else "disabled for new allocations"
    )
    call.screen.line(f"Device {found[0]['ID']} {done}")
    mark: Json = (node.get("DeviceMarks") or {}).get(found[0]["Key"]) or {}
    if eligibility == "eligible" and mark.get("Kind") in ("disabled", "suspected"):
        call.screen.line(f"It was {mark['Kind']}" + (f": {mark['Reason']}" if mark.get("Reason") else ""))
    return 0


def _put(call: Invocation, node: Json, body: Json, *, is_asked_for: bool) -> None:
    """Change a device; without the condition on its mark where servers are too old for it, unless it was asked for."""
    path = api_path("yurt", "node", node["ID"], "device")
    try:
        call.api.put(path, body)
    except ApiError as error:
        if is_asked_for or error.reason is not Reason.UPGRADE_UNFINISHED:
            raise
        call.api.put(path, {name: value for name, value in body.items() if name != "MarkIndex"})
        call.screen.line("Servers are being upgraded: another operator's change of the device meanwhile is not noticed")


def _show(call: Invocation, node: Json) -> int:
    from yurt.cli.views.devices import holders

    is_data = wants_data(call)
    allocs: list[Json] = call.api.get(api_path("node", node["ID"], "allocations")) or []
    rows = health_rows(node, holders(allocs))
    if is_data:
        return show_data(call, {"NodeID": node["ID"], "Devices": rows})
    if not rows:
        call.screen.line("The node has no devices.")
        return 0
    call.screen.table(
        "ID|Device Group|State|Placeable|Since|Allocations|Reason",
        [
            [
                each["ID"],
                each["Group"],
                each["State"],
                "yes" if each["Placeable"] else "no",
                each["Since"] or "-",
                ", ".join(call.short(alloc) for alloc in each["Allocations"]) or "-",
                each["Reason"] or "-",
            ]
            for each in rows
        ],
    )
    trials = [
        [each["ID"], each["Trial"]["Until"], go_duration(each["Trial"]["RunMax"])] for each in rows if each["Trial"]
    ]
    if trials:
        call.screen.title("On Trial")
        call.screen.line("Given only to groups with requeue or checkpoint, or that run no longer than allowed:")
        call.screen.table("ID|Until|Max Run Duration", trials)
    changes = [
        [change["At"], each["ID"], change["State"], change["Reason"]] for each in rows for change in each["History"]
    ]
    if changes:
        call.screen.title("Changes")
        call.screen.table("At|ID|State|Reason", sorted(changes))
    return 0


def chosen_rows(rows: list[Json], wanted: str) -> list[Json]:
    """The devices with this key or id, else those whose ids begin so."""
    exact = [each for each in rows if wanted in (each["Key"], each["ID"])]
    return exact or [each for each in rows if each["ID"].startswith(wanted)]


def health_rows(node: Json, allocs_by_device: dict[str, list[str]]) -> list[Json]:
    """Every device with its state, its last changes and its users, in order of group and id.

    A device that the node does not offer any more and that servers have a mark of is `gone`.
    """
    from yurt.cli.views.devices import group_name, groups_of

    marks: dict[str, Json] = node.get("DeviceMarks") or {}
    found = []
    for group in groups_of(node):
        for each in group.get("Instances") or ():
            key, health = f"{group_name(group)}/{each['ID']}", each.get("Health") or {}
            mark, is_placeable = marks.get(key) or {}, bool(each.get("Healthy"))
            found.append(
                {
                    "ID": each["ID"],
                    "Key": key,
                    "Group": group_name(group),
                    "State": shown_state(health.get("State") or "", mark.get("Kind") or "", is_placeable),
                    "Placeable": is_placeable,
                    "Reason": each.get("HealthDescription") or health.get("Reason") or "",
                    "Since": health["Since"] if health.get("History") else "",
                    "MarkIndex": mark.get("Index") or 0,
                    "FailedJobs": len(mark.get("FailedJobs") or ()),
                    "Allocations": allocs_by_device.get(each["ID"], []),
                    "Trial": health.get("Trial"),
                    "History": health.get("History") or [],
                }
            )
    known = {each["Key"] for each in found}
    found += [_gone_row(key, mark) for key, mark in marks.items() if key not in known]
    return sorted(found, key=lambda each: each["Key"])


def _gone_row(key: str, mark: Json) -> Json:
    group, _, device = key.rpartition("/")
    reason = "its node does not offer it any more" + (f"; {mark['Kind']} by a mark" if mark.get("Kind") else "")
    return {
        "ID": device,
        "Key": key,
        "Group": group,
        "State": "gone",
        "Placeable": False,
        "Reason": reason + (f": {mark['Reason']}" if mark.get("Reason") else ""),
        "Since": "",
        "MarkIndex": mark.get("Index") or 0,
        "FailedJobs": len(mark.get("FailedJobs") or ()),
        "Allocations": [],
        "Trial": None,
        "History": [],
    }


def shown_state(state: str, mark: str, is_placeable: bool) -> str:
    """The state by the client, or that of a mark of the servers which the client does not know yet."""
    if mark == "disabled":
        return "disabled"
    if mark == "suspected":
        return "suspect"
    return state or ("healthy" if is_placeable else "failed")


COMMANDS = (
    CliCommand(
        "node gpu",
        "Show the health of a node's devices; take one out or put it back",
        show_or_set,
        (
            switch("self", "The node of the agent that is asked."),
            text("disable", "Place nothing new on the device with this id, or this beginning of one."),
            text("enable", "Put the device with this id back: it is tested first if it had a fault."),
            text("check-index", "With -enable and -disable: only while the device's MarkIndex (-json) is this one."),
            text("reason", "With -disable: why, for those who look at the node."),
            VERBOSE,
            *JSON_FLAGS,
        ),
        (0, 1),
        "[<node>]",
        "at most one argument: <node>",
        details="All kinds of devices are shown, not GPUs only.",
    ),
)
