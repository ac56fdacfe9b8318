"""Servers of two versions in one region: what the leader writes is known to all of them."""

from __future__ import annotations

import enum
import hashlib
import json
import types
import typing
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from yurt.sdk.errors import Conflict, Reason
from yurt.sdk.value import Duration, UnixNano, replace
from yurt.state import TABLES
from yurt.structs import commands as c
from yurt.structs.alloc import Allocation
from yurt.structs.cluster import Namespace
from yurt.structs.commands import versions
from yurt.structs.commands.allocs import IdleReport
from yurt.structs.commands.base import Command
from yurt.structs.commands.codec import AnyCommand
from yurt.structs.commands.versions import (
    ADDED_COMMANDS,
    ADDED_FIELDS,
    ADDED_VALUES,
    UNPUBLISHED_RULES,
    Addition,
    RegionRules,
    region_rules,
    ruled,
)
from yurt.structs.job import Job
from yurt.structs.node import Attribute, NodeDevice, NodeDeviceResource
from yurt.structs.policies import IdlePolicy
from yurt.structs.resources import RequestedDevice, Resources
from yurt.structs.rules import DEVICE_RULES, RECLAIM_RULES, RULES_VERSION
from yurt.testing import factories

RECORD = Path(__file__).parent / "stored_fields.txt"
"""Each line: a type, the rules since which it has these fields, and the fields."""
VALUES = Path(__file__).parent / "stored_values.txt"
"""Each line: a type and its field, the rules since which it has these values, and the values in JSON."""
EARLIER_FIELDS = {
    3: "a5162adc1f693a8e", 4: "1cbe8e70d7913c24", 5: "c8a0bc5ee606d860", 6: "c3dcff22b89f2841", 9: "aa066dad9df4d598",
    11: "157bc3bd5b735a56", 12: "4dd227aa3caf93df", 13: "4408883063c77c87",
}  # fmt: skip
"""A digest of the lines of each version before the newest, which never change: a new field belongs to newer rules."""
OLD = RegionRules(version=UNPUBLISHED_RULES, behind=("srv2.global",))


def stored_types() -> dict[str, type[msgspec.Struct]]:
    """Every struct that a command or a row of the state may hold."""
    found: dict[str, type[msgspec.Struct]] = {}
    rest: list[Any] = [
        AnyCommand,
        Job,
        Allocation,
        *[getattr(each.codec, "row_type", None) for each in TABLES.values()],
    ]
    while rest:
        kind = rest.pop()
        rest.extend(each for each in typing.get_args(kind) if not isinstance(each, str | int | bytes))
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__name__ not in found:
            found[kind.__name__] = kind
            rest.extend(typing.get_type_hints(kind).values())
    return found


def recorded() -> dict[str, dict[int, list[str]]]:
    """The fields of each type, by the first rules with them."""
    found: dict[str, dict[int, list[str]]] = defaultdict(dict)
    for name, version, *fields in [line.split() for line in RECORD.read_text().splitlines()]:
        found[name][int(version)] = fields
    return found


def test_a_new_field_or_command_raises_the_rules_and_is_known_to_be_new() -> None:
    record, kinds = recorded(), stored_types()
    for name, kind in sorted(kinds.items()):
        fields = {field for each in record.get(name, {}).values() for field in each}
        declared = set(kind.__struct_fields__)
        assert declared == fields, (
            f"{name}: {', '.join(sorted(declared ^ fields))} is new or gone. A server of the version before would drop "
            "the field: raise RULES_VERSION, name the field in ADDED_FIELDS (or the command in ADDED_COMMANDS), and "
            f"record it in {RECORD.name} with the new version"
        )
    assert record.keys() <= kinds.keys(), "older servers may still send it"
    lines: dict[int, list[str]] = defaultdict(list)
    for line in RECORD.read_text().splitlines():
        lines[int(line.split()[1])].append(line)
    digests = {version: hashlib.sha256("\n".join(found).encode()).hexdigest()[:16] for version, found in lines.items()}
    assert {version: digests[version] for version in digests if version < RULES_VERSION} == EARLIER_FIELDS


def test_what_is_newer_than_the_first_recorded_rules_stands_in_the_tables() -> None:
    kinds = stored_types()
    for name, by_version in recorded().items():
        kind = kinds[name]
        for version, fields in by_version.items():
            if version == UNPUBLISHED_RULES:
                continue
            assert version <= RULES_VERSION
            is_new_type = version == min(by_version)
            if issubclass(kind, Command):
                assert not is_new_type or ADDED_COMMANDS[kind].rules == version
            if not is_new_type:
                assert {ADDED_FIELDS[kind][field].rules for field in fields} == {version}, name


def values_of(hint: Any) -> Iterator[Any]:
    """The values that a type hint lists."""
    if typing.get_origin(hint) is typing.Literal:
        yield from typing.get_args(hint)
    elif isinstance(hint, type) and issubclass(hint, enum.Enum):
        yield from (each.value for each in hint)
    else:
        inner = [value for each in typing.get_args(hint) for value in values_of(each)]
        is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
        assert is_union or not inner, f"{hint}: a new value inside another type would reach older servers"
        yield from inner


def stored_values() -> dict[tuple[type[msgspec.Struct], str], set[Any]]:
    """The values of each stored field whose type lists them."""
    hints = {
        (kind, name): hint for kind in stored_types().values() for name, hint in typing.get_type_hints(kind).items()
    }
    return {field: found for field, hint in hints.items() if (found := set(values_of(hint)))}


def recorded_values() -> dict[str, dict[int, list[Any]]]:
    """The values of each field, by the first rules with them."""
    found: dict[str, dict[int, list[Any]]] = defaultdict(dict)
    for field, version, values in [line.split(maxsplit=2) for line in VALUES.read_text().splitlines()]:
        found[field][int(version)] = json.loads(values)
    return found


def test_a_new_value_of_a_stored_field_raises_the_rules_and_is_known_to_be_new() -> None:
    record, stored = recorded_values(), stored_values()
    assert {f"{kind.__name__}.{name}" for kind, name in stored} == set(record)
    for (kind, name), declared in stored.items():
        by_version = record[f"{kind.__name__}.{name}"]
        assert declared == {value for values in by_version.values() for value in values}, (
            f"{kind.__name__}.{name}: a value is new or gone. A server of the version before cannot read it: raise "
            f"RULES_VERSION, name the value in ADDED_VALUES, and record it in {VALUES.name} with the new version"
        )
        first = min(by_version)
        newer = {value: version for version, values in by_version.items() if version > first for value in values}
        added = ADDED_VALUES.get((kind, name), {})
        assert {value: each.rules for value, each in added.items()} == newer
        assert all(each.name or each.instead in by_version[first] for each in added.values())


def test_a_value_that_older_servers_cannot_read_waits_for_their_upgrade(monkeypatch: pytest.MonkeyPatch) -> None:
    named = Addition(RULES_VERSION, 'the status "disconnected"')
    monkeypatch.setattr(versions, "ADDED_VALUES", {(c.SetNodeStatus, "status"): {"disconnected": named}})
    versions._holders.cache_clear()
    try:
        command = c.SetNodeStatus(node_id="n", status="disconnected", updated_at=UnixNano(1))
        with pytest.raises(Conflict, match='the status "disconnected" needs all servers'):
            ruled(command, OLD)
        assert ruled(command, RegionRules()).status == "disconnected"
        assert ruled(replace(command, status="down"), OLD).status == "down"
        reported = Addition(RULES_VERSION, "", instead="down")
        monkeypatch.setattr(versions, "ADDED_VALUES", {(c.SetNodeStatus, "status"): {"disconnected": reported}})
        assert ruled(command, OLD).status == "down" and ruled(command, RegionRules()).status == "disconnected"
    finally:
        versions._holders.cache_clear()


def test_the_rules_of_a_region_are_those_of_its_oldest_server() -> None:
    newest = {"a.global": RULES_VERSION, "b.global": RULES_VERSION + 1}
    assert region_rules(newest) == RegionRules() and region_rules({}) == RegionRules()
    assert region_rules({**newest, "c.global": 4}) == RegionRules(version=4, behind=("c.global",))
    assert region_rules({**newest, "c.global": 0}) == RegionRules(version=UNPUBLISHED_RULES, behind=("c.global",))


def idle_job() -> c.AnyCommand:
    """The registration of a job with a device that is ended when it is idle."""
    job = factories.job()
    (group,) = job.task_groups
    (task, *rest) = group.tasks
    device = RequestedDevice(name="nvidia/gpu", count=1, idle=IdlePolicy(window=Duration(60_000_000_000)))
    task = replace(task, resources=replace(task.resources or Resources(), devices=(device,)))
    return c.RegisterJob(job=replace(job, task_groups=(replace(group, tasks=(task, *rest)),)))


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (idle_job(), '"idle" of a device'),
        (c.UpsertNamespaces(namespaces=(Namespace(name="a", idle=IdlePolicy()),)), '"idle" of a namespace'),
        (c.KeepAlloc(alloc_id="a", duration=Duration(1), now=UnixNano(1)), "keeping an idle allocation"),
    ],
)
def test_what_a_user_asks_for_is_refused_until_all_servers_know_it(command: c.AnyCommand, name: str) -> None:
    with pytest.raises(Conflict) as refused:
        ruled(command, OLD)
    assert str(refused.value).startswith(name) and "srv2.global. Upgrade them" in str(refused.value)
    assert refused.value.reason is Reason.UPGRADE_UNFINISHED
    assert ruled(command, RegionRules()) == replace(command, rules_version=RULES_VERSION)
    between = RegionRules(version=DEVICE_RULES, behind=("srv2.global",))
    assert ruled(command, between) == replace(command, rules_version=DEVICE_RULES)


def test_what_agents_report_is_left_out_until_all_servers_know_it() -> None:
    update = c.AllocUpdate(id="a", node_id="n", client_status="running", idle=IdleReport(idle_for=Duration(5)))
    command = c.UpdateAllocsFromClient(updates=(update,), now=UnixNano(1))
    assert ruled(command, OLD) == replace(
        command, updates=(replace(update, idle=None),), rules_version=UNPUBLISHED_RULES
    )
    assert ruled(command, RegionRules()).updates == (update,)


def test_a_restore_is_refused_and_what_abandons_one_is_not() -> None:
    part = c.StageRestore(restore_id="r", number=0, data=b"x")
    with pytest.raises(Conflict, match="restoring a snapshot needs all servers"):
        ruled(part, OLD)
    assert ruled(replace(part, data=b""), OLD).rules_version == UNPUBLISHED_RULES


def test_a_command_without_new_parts_only_gets_the_mark() -> None:
    command = c.RegisterJob(job=factories.job())
    stamped = ruled(command, OLD)
    assert stamped.rules_version == UNPUBLISHED_RULES and stamped.job is command.job


def test_a_command_of_newer_rules_is_not_applied() -> None:
    newer = replace(c.KeepAlive(), rules_version=RULES_VERSION + 1)
    text = f"it follows rules {RULES_VERSION + 1}, this version applies {RULES_VERSION}"
    with pytest.raises(msgspec.DecodeError, match=text):
        c.decode_command(c.encode_command(newer))
    with pytest.raises(msgspec.DecodeError, match=text):
        c.decode_commands(msgspec.msgpack.encode((c.KeepAlive(), newer)))
    assert (
        c.decode_command(c.encode_command(replace(newer, rules_version=RULES_VERSION))).rules_version == RULES_VERSION
    )


def device_node(of_group: dict[str, str], of_device: dict[str, str]) -> c.RegisterNode:
    """The registration of a node with one card."""
    group, own = ({name: Attribute(string_val=text) for name, text in each.items()} for each in (of_group, of_device))
    device = NodeDevice(id="GPU-0", healthy=True, attributes=own)
    kind = NodeDeviceResource(vendor="nvidia", type="gpu", name="H100", instances=(device,), attributes=group)
    node = factories.node(factories.number_id(1, kind=1))
    return c.RegisterNode(node=replace(node, node_resources=replace(node.node_resources, devices=(kind,))))


PROFILES = {"mig_profiles": "1g.10gb:9856:14:1:0"}


@pytest.mark.parametrize(
    ("newer", "older"),
    [
        (({"memory": "80", **PROFILES}, PROFILES), ({"memory": "80"}, {})),
        (({"sharing": "mps,slice,mig", **PROFILES}, {}), ({"sharing": "mps,slice"}, {})),
        (({"sharing": "slice,mig"}, PROFILES), ({"sharing": "slice"}, {})),
        (({}, {"sharing": "mig", **PROFILES}), ({}, {})),
        (({"sharing": "mig"}, {}), ({"sharing": "mig"}, {})),
    ],
    ids=["profiles", "of the group", "of the device", "the only mode", "made by hand"],
)
def test_older_servers_see_no_card_that_may_be_split(
    newer: tuple[dict[str, str], dict[str, str]], older: tuple[dict[str, str], dict[str, str]]
) -> None:
    """Neither its profiles nor the mode `mig`: they would give the whole card as an instance made by hand."""
    before = RegionRules(version=RECLAIM_RULES, behind=("srv2.global",))
    assert ruled(device_node(*newer), before) == replace(device_node(*older), rules_version=RECLAIM_RULES)
    assert ruled(device_node(*newer), RegionRules()).node == device_node(*newer).node
