"""Devices of a node and of a task: a list, their users, and their usage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from yurt.cli.declaration import Invocation
from yurt.cli.json_object import Json
from yurt.cli.terminal.screen import key_values
from yurt.cli.terminal.text import mebibytes

MARK = "::"


def group_name(group: Json) -> str:
    """ "nvidia/gpu/NVIDIA H100" """
    return "/".join(group.get(key) or "" for key in ("Vendor", "Type", "Name"))


def groups_of(node: Json) -> list[Json]:
    """The device groups of a node."""
    return (node.get("NodeResources") or {}).get("Devices") or []


def holders(allocs: Iterable[Json]) -> dict[str, list[str]]:
    """Ids of the allocations that hold each device, whole or a share of it."""
    found: dict[str, list[str]] = {}
    for alloc in allocs:
        is_live = alloc.get("ClientStatus") in ("pending", "running", "unknown")
        for device in devices_of(alloc) if is_live else ():
            found.setdefault(device.partition(MARK)[0], []).append(alloc["ID"])
    return found


def devices_of(alloc: Json) -> Iterator[str]:
    """The bookings of an allocation's tasks."""
    tasks = ((alloc.get("AllocatedResources") or {}).get("Tasks") or {}).values()
    devices = (device for task in tasks for device in task.get("Devices") or ())
    yield from (each for device in devices for each in device.get("DeviceIDs") or ())


def show_allocated(call: Invocation, alloc: Json, task: str) -> None:
    """The devices that a task was given, and of a share how much."""
    devices = (((alloc.get("AllocatedResources") or {}).get("Tasks") or {}).get(task) or {}).get("Devices")
    rows = [[group_name(device), each.partition(MARK)[0], share_text(device)] for device in devices or ()
            for each in device.get("DeviceIDs") or ()]  # fmt: skip
    if rows:
        call.screen.title("Task Devices:")
        call.screen.table("Device Group|ID|Share", rows)


def share_text(device: Json) -> str:
    """ "slice, 20 GiB, 30 %", or "whole" """
    if not device.get("Share"):
        return "whole"
    words = [device["Share"], mebibytes(device["MemoryMB"]) if device.get("MemoryMB") else ""]
    words.append(f"{device['Compute']} %" if device.get("Compute") else "")
    return ", ".join(word for word in words if word)


def plugin_words(node: Json) -> list[str]:
    """The state of a node's device plugins: healthy, or why they report no devices."""
    attributes: dict[str, str] = node.get("Attributes") or {}
    words = []
    for name, value in sorted(attributes.items()):
        plugin, _, rest = name.removeprefix("device.").partition(".")
        if name.startswith("device.") and rest == "":
            words.append(plugin)
        if name.startswith("device.") and rest == "reason":
            words.append(f"{plugin} (none: {value})")
    return words


def show_node_devices(call: Invocation, node: Json, allocs: Iterable[Json]) -> None:
    """Each group with its counts of reserved and healthy devices, and every unhealthy device."""
    groups = groups_of(node)
    if not groups:
        return
    used = holders(allocs)
    rows, ill = [], []
    for group in groups:
        instances = group.get("Instances") or []
        healthy = [each for each in instances if each.get("Healthy")]
        ill += [[group_name(group), each["ID"], each.get("HealthDescription") or ""] for each in instances
                if not each.get("Healthy")]  # fmt: skip
        rows.append([group_name(group), f"{sum(e['ID'] in used for e in instances)}/{len(instances)}", len(healthy)])
    call.screen.title("Devices")
    call.screen.table("Device Group|Allocated|Healthy", rows)
    if ill:
        call.screen.title("Unhealthy Devices")
        call.screen.table("Device Group|ID|Reason", ill)


def show_group_attributes(call: Invocation, node: Json) -> None:
    """The attributes of each group, and of its instances."""
    groups = groups_of(node)
    if not groups:
        return
    call.screen.title("Device Group Attributes")
    for number, group in enumerate(groups):
        rows = [("Device Group", group_name(group)), *attribute_rows(group)]
        call.screen.line(("\n" if number else "") + key_values(rows))
        for instance in group.get("Instances") or ():
            own = list(attribute_rows(instance))
            if own:
                call.screen.line("\n" + key_values([("Device", f"{group_name(group)}[{instance['ID']}]"), *own]))


def attribute_rows(holder: Json) -> Iterator[tuple[str, str]]:
    """Attributes by name."""
    for name, attribute in sorted((holder.get("Attributes") or {}).items()):
        yield name, attribute_text(attribute)


def attribute_text(attribute: Json) -> str:
    """A typed value with its unit."""
    value = next((attribute[key] for key in ("Int", "Float", "String", "Bool") if attribute.get(key) is not None), "")
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"{text} {attribute.get('Unit') or ''}".strip()


def stat_text(stat: Json) -> str:
    """A figure: `5 / 11441 MiB`, `31 C`."""
    numbers = [
        next((stat[f"{kind}{part}Val"] for kind in ("Int", "Float") if stat.get(f"{kind}{part}Val") is not None), None)
        for part in ("Numerator", "Denominator")
    ]
    words = [f"{number:.1f}" if isinstance(number, float) else str(number) for number in numbers if number is not None]
    text = " / ".join(words) or stat.get("StringVal") or str(bool(stat.get("BoolVal"))).lower()
    return f"{text} {stat.get('Unit') or ''}".strip()


def used_devices(stats: Iterable[Json] | None) -> list[tuple[str, Json]]:
    """Every device with figures, by `group[id]`."""
    return [
        (f"{group_name(group)}[{device}]", use)
        for group in stats or ()
        for device, use in sorted((group.get("InstanceStats") or {}).items())
    ]


def show_use(call: Invocation, title: str, stats: Iterable[Json] | None, *, is_whole: bool) -> None:
    """The most important figure of each device, or all of them."""
    found = used_devices(stats)
    if not found:
        return
    call.screen.title(title)
    if not is_whole:
        call.screen.pairs([(name, stat_text(use.get("Summary") or {})) for name, use in found])
        return
    for number, (name, use) in enumerate(found):
        figures = (use.get("Stats") or {}).get("Attributes") or {}
        nested = (use.get("Stats") or {}).get("Nested") or {}
        rows = [("Device", name), *((key, stat_text(stat)) for key, stat in sorted(figures.items()))]
        for group, inner in sorted(nested.items()):
            rows += [(f"{group} {key}", stat_text(s)) for key, s in sorted((inner.get("Attributes") or {}).items())]
        call.screen.line(("\n" if number else "") + key_values(rows))
