"""What the servers say of a driver that no node has."""

from __future__ import annotations

import msgspec
from yurt.fsm import apply
from yurt.sdk.schema import AttributeSpec, Schema
from yurt.server.resources.admission import driver_problems
from yurt.state import Snapshot
from yurt.structs.commands import RegisterNode, StoreSchema
from yurt.structs.node import DriverInfo
from yurt.testing import factories


def test_a_misspelt_driver_is_refused_with_the_nearest_name_and_another_one_warned_of() -> None:
    command = StoreSchema(driver="raw_exec", digest="d", schema={})
    state = apply(Snapshot.empty(), command, index=1).state
    errors, warnings = driver_problems(state, factories.task(driver="raw_exce"), factories.group())
    assert (errors, warnings) == (('unknown driver "raw_exce": no node has it (did you mean "raw_exec"?)',), ())
    for other in ("qemu", "raw_exec2"):
        assert driver_problems(state, factories.task(driver=other), factories.group()) == (
            (), (f'no node has shown which options driver "{other}" takes, so they are not checked',),
        )  # fmt: skip


def test_a_driver_that_nodes_have_disabled_is_suggested() -> None:
    node = factories.node(drivers={"raw_exec": DriverInfo(detected=False), "docker": DriverInfo(detected=False)})
    state = apply(Snapshot.empty(), RegisterNode(node=node), index=1).state
    errors, _ = driver_problems(state, factories.task(driver="xraw_exec"), factories.group())
    assert errors == ('unknown driver "xraw_exec": no node has it (did you mean "raw_exec"?)',)
    assert driver_problems(state, factories.task(driver="docker"), factories.group())[0] == ()


def test_a_port_label_is_checked_where_the_driver_names_ports_as_nomads_docker_does() -> None:
    state, options = Snapshot.empty(), {"ports": "list(string)", "port_map": "list(map(number))"}
    for index, names in enumerate((options, {"ports": "list(string)"}), start=1):
        attributes = tuple(AttributeSpec(name=name, type=kind) for name, kind in names.items())
        schema = msgspec.to_builtins(Schema(attributes=attributes))
        state = apply(state, StoreSchema(driver=f"d{index}", digest=f"d{index}", schema=schema), index=index).state
    told = ('config.ports: the group has no port "htp" (add port "htp" to its network block)',)

    for driver, errors in (("d1", told), ("d2", ())):
        task = factories.task(driver=driver, config={"ports": ["htp"]})
        assert driver_problems(state, task, factories.group()) == (errors, ())
