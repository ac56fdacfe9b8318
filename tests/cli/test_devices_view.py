"""How devices are shown: figures, attributes, shares, the matrix of a node."""

from __future__ import annotations

import json
from typing import Any

import pytest
from yurt.api.encode import to_wire
from yurt.cli.commands.node.gpu import health_rows
from yurt.cli.commands.node.topology import names, topology
from yurt.cli.views.devices import attribute_text, holders, plugin_words, share_text, stat_text
from yurt.client.devices.wire import attribute, stat_value
from yurt.sdk.device import Quantity, Stat
from yurt.sdk.value import NANOSECONDS, Duration, UnixNano
from yurt.structs.node import DeviceHealth, DeviceTrial

from tests.cli.conftest import FixedApi, Run


def instance(device: str, **attributes: Any) -> dict[str, Any]:
    shown = {name: to_wire(attribute(value)) for name, value in attributes.items()}
    return {"ID": device, "Healthy": True, "Locality": {"PciBusID": "0000:19:00.0"}, "Attributes": shown}


def node(*instances: dict[str, Any], name: str = "H100") -> dict[str, Any]:
    group = {"Vendor": "nvidia", "Type": "gpu", "Name": name, "Instances": list(instances)}
    return {"ID": "n", "NodeResources": {"Devices": [group]}}


@pytest.mark.parametrize(
    ("stat", "text"),
    [
        (Stat(value=0, of=81559, unit="MiB"), "0 / 81559 MiB"),
        (Stat(value=71.25, of=700, unit="W"), "71.2 / 700.0 W"),
        (Stat(value=31, unit="C"), "31 C"),
        (Stat(value="on"), "on"),
        (Stat(value=False), "false"),
    ],
)
def test_figures_are_read_at_a_glance(stat: Stat, text: str) -> None:
    assert stat_text(to_wire(stat_value(stat))) == text


def test_attributes_have_their_units() -> None:
    values = [Quantity(value=80, unit="GiB"), "Enabled", True, 3]

    assert [attribute_text(to_wire(attribute(value))) for value in values] == ["80 GiB", "Enabled", "true", "3"]


def test_the_matrix_prefers_nvlink_and_is_ordered_by_number() -> None:
    two = instance("b", index=1, numa_node=1, nvlink_links="a=18", topology="a=SYS", cpu_affinity="8-15")
    one = instance("a", index=0, numa_node=0, nvlink_links="b=18", topology="b=SYS,c=PIX", cpu_affinity="0-7")
    found = topology(node(two, one), {"a": ["alloc-1"]})

    assert [each["ID"] for each in found] == ["a", "b"]
    assert found[0]["Links"] == {"b": "NV18", "c": "PIX"}
    assert (found[0]["Allocations"], found[1]["NUMANode"], found[1]["CPUAffinity"]) == (["alloc-1"], 1, "8-15")


def test_parts_of_one_card_and_devices_without_numbers_have_names_of_their_own() -> None:
    parts = topology(node(instance("m1", index=0), instance("m2", index=0), instance("g", index=1)), {})

    assert names(parts) == ["GPU0", "GPU0.1", "GPU1"]
    assert names(topology(node(instance("x"), instance("y")), {})) == ["GPU0", "GPU1"]
    assert topology({"NodeResources": None}, {}) == []


def test_a_share_counts_for_its_card_and_ended_allocations_hold_nothing() -> None:
    def alloc(name: str, status: str, *ids: str) -> dict[str, Any]:
        tasks = {"t": {"Devices": [{"DeviceIDs": list(ids)}]}}
        return {"ID": name, "ClientStatus": status, "AllocatedResources": {"Tasks": tasks}}

    found = holders([alloc("1", "running", "a::0", "b"), alloc("2", "pending", "a::1"), alloc("3", "complete", "b")])

    assert found == {"a": ["1", "2"], "b": ["1"]}


def test_shares_are_told_in_a_word() -> None:
    assert share_text({}) == "whole"
    assert share_text({"Share": "mps", "MemoryMB": 20480, "Compute": 30}) == "mps, 20 GiB, 30 %"


def test_plugins_say_that_they_work_or_why_not() -> None:
    attributes = {
        "device.nvidia": "1",
        "device.nvidia.cuda_version": "12.4",
        "device.fpga.reason": "no driver",
        "cpu": "x",
    }

    assert plugin_words({"Attributes": attributes}) == ["fpga (none: no driver)", "nvidia"]


def test_health_has_the_state_of_marks_that_the_client_does_not_know_yet() -> None:
    change = {"At": "2026-01-02T03:04:05Z", "State": "failed", "Reason": "Xid 79"}
    sick = {"ID": "g0", "Healthy": False, "HealthDescription": "Xid 79",
            "Health": {"State": "failed", "Reason": "Xid 79", "Since": change["At"], "History": [change]}}  # fmt: skip
    out = {"ID": "g1", "Healthy": False, "HealthDescription": "disabled by an operator", "Health": {"State": "healthy"}}
    marked = {**node(sick, out), "DeviceMarks": {"nvidia/gpu/H100/g1": {"Kind": "disabled"}}}
    rows = health_rows(marked, {"g0": ["alloc"]})

    shown = [(row["ID"], row["State"], row["Placeable"]) for row in rows]
    assert shown == [("g0", "failed", False), ("g1", "disabled", False)]
    assert (rows[0]["History"], rows[0]["Allocations"], rows[1]["Since"]) == ([change], ["alloc"], "")


MARK = {"Kind": "disabled", "Reason": "fan", "Index": 12}
CHANGED = "/v1/yurt/node/node-1/device"


def marked_node(api: FixedApi, *instances: dict[str, Any]) -> None:
    """The node of the agent with these cards, of which g1 has a mark."""
    api.answers["/v1/agent/self"] = {"stats": {"client": {"node_id": "node-1"}}}
    api.answers["/v1/node/node-1"] = {**node(*instances), "ID": "node-1", "DeviceMarks": {"nvidia/gpu/H100/g1": MARK}}
    api.answers[CHANGED] = {}


def sent(api: FixedApi) -> list[Any]:
    """The requests to change a device."""
    return [body for method, path, _, body in api.asked if path.startswith(CHANGED)]


def test_a_change_during_an_upgrade_of_servers_is_made_without_the_condition_that_nobody_asked_for(
    api: FixedApi, run: Run
) -> None:
    marked_node(api, instance("g0"), instance("g1"))
    refusals = [(409, "a condition on the mark of a device needs all servers", "upgrade-unfinished")]
    api.answers[CHANGED] = lambda _: refusals.pop() if refusals else {}
    code, out, _ = run("node", "gpu", "-enable=g1", "-self")

    assert (code, [body.get("MarkIndex") for body in sent(api)]) == (0, [12, None])
    assert "Servers are being upgraded" in out and "It was disabled: fan" in out
    refusals.append((409, "a condition on the mark of a device needs all servers", "upgrade-unfinished"))
    code, _, err = run("node", "gpu", "-enable=g1", "-check-index=12", "-self")
    assert code == 1 and "a condition on the mark" in err and len(sent(api)) == 3


def test_a_conflict_is_not_tried_again(api: FixedApi, run: Run) -> None:
    marked_node(api, instance("g1"))
    api.answers[CHANGED] = (409, "device g1 was changed since", "conflict")
    code, _, err = run("node", "gpu", "-enable=g1", "-self")

    assert code == 1 and "was changed since" in err and len(sent(api)) == 1


def test_the_mark_of_a_device_that_is_gone_is_shown_in_its_own_words(api: FixedApi, run: Run) -> None:
    marked_node(api, instance("g0"))
    code, out, _ = run("node", "gpu", "-enable=g1", "-self")

    assert (code, out.splitlines()[1:]) == (0, ["It was disabled: fan"])


def test_devices_on_trial_are_listed_with_their_end_and_what_they_are_open_to(api: FixedApi, run: Run) -> None:
    trial = DeviceTrial(until=UnixNano(1_893_456_000 * NANOSECONDS), run_max=Duration(5400 * NANOSECONDS))
    health = DeviceHealth(state="suspect", reason="back after a fault", trial=trial)
    tried = {**instance("g0"), "Health": to_wire(health)}
    marked_node(api, tried, instance("g1"))
    api.answers["/v1/node/node-1/allocations"] = []

    code, out, _ = run("node", "gpu", "-self")

    assert code == 0
    told, *table = out.partition("On Trial\n")[2].splitlines()
    assert told == "Given only to groups with requeue or checkpoint, or that run no longer than allowed:"
    assert [line.split() for line in table] == [
        ["ID", "Until", "Max", "Run", "Duration"], ["g0", "2030-01-01T00:00:00Z", "1h30m0s"],
    ]  # fmt: skip
    code, out, _ = run("node", "gpu", "-self", "-json")
    devices = {each["ID"]: each["Trial"] for each in json.loads(out)["Devices"]}
    assert devices == {"g0": {"Until": "2030-01-01T00:00:00Z", "RunMax": 5400 * NANOSECONDS}, "g1": None}


def test_without_a_trial_no_table_of_trials_is_shown(api: FixedApi, run: Run) -> None:
    marked_node(api, instance("g0"), instance("g1"))
    api.answers["/v1/node/node-1/allocations"] = []

    code, out, _ = run("node", "gpu", "-self")

    assert code == 0 and "g0" in out and "Trial" not in out
