"""The client's options: which drivers and fingerprints a node has, and what has no effect."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.client.config import ClientConfig
from yurt.client.fingerprint.exclusion import FINGERPRINTS, without_excluded
from yurt.client.options import DRIVER, DriverChoice, choice_of
from yurt.sdk.value import replace
from yurt.structs.network import NetworkResource
from yurt.structs.node import NodeNetworkResource
from yurt.testing import factories


@pytest.mark.parametrize(
    ("options", "used"),
    [
        ({}, {"docker", "exec", "raw_exec"}),
        ({"driver.allowlist": "docker, exec"}, {"docker", "exec"}),
        ({"driver.whitelist": "exec"}, {"exec"}),
        ({"driver.denylist": "raw_exec"}, {"docker", "exec"}),
        ({"driver.blacklist": "raw_exec,docker"}, {"exec"}),
        ({"driver.allowlist": "docker,exec", "driver.denylist": "exec"}, {"docker"}),
        ({"driver.allowlist": "", "driver.denylist": ""}, {"docker", "exec", "raw_exec"}),
    ],
)
def test_drivers_are_those_that_the_lists_let_through(options: dict[str, str], used: set[str]) -> None:
    choice = choice_of(DRIVER, options)
    assert {name for name in ("docker", "exec", "raw_exec") if not choice.refusal(name)} == used


def test_what_has_no_effect_is_told_with_the_nearest_name() -> None:
    options = {
        "driver.alowlist": "x", "driver.denylist": "dockr", "fingerprint.allowlist": "cpuu", "mine": "1",
        "env.blacklist": "A", "user.denylist": "root",
    }  # fmt: skip
    choice = DriverChoice(options)
    assert choice.options.get("mine") == "1"
    assert [choice.refusal(name) for name in ("docker", "exec")] == ["", ""]
    unknown, driver, fingerprint = choice.warnings(FINGERPRINTS)
    assert unknown == ('client.options "driver.alowlist": unknown option; did you mean "driver.allowlist"?')
    assert driver.endswith('name "dockr", which is not an installed driver; did you mean "docker"?')
    assert fingerprint.endswith('name "cpuu", which is not an installed fingerprint; did you mean "cpu"?')


def node_for(**options: str) -> Any:
    """A node as it is with these options."""
    node = factories.node()
    resources = replace(
        node.node_resources,
        networks=(NetworkResource(mode="host"), NetworkResource(mode="bridge"), NetworkResource(mode="cni/a")),
        node_networks=(NodeNetworkResource(mode="host"), NodeNetworkResource(mode="bridge")),
    )
    attributes = {
        "cpu.arch": "amd64", "cpu.numcores": "4", "memory.totalbytes": "1", "os.name": "debian",
        "unique.network.ip-address": "10.0.0.1", "plugins.cni.version.bridge": "1", "os.signals": "SIGHUP",
    }  # fmt: skip
    config = ClientConfig(state_dir="", alloc_dir="", memory_total_mb=64, options=options)
    return without_excluded(replace(node, attributes=attributes, node_resources=resources), config)


def test_a_denied_fingerprint_finds_nothing_out() -> None:
    node = node_for(**{"fingerprint.denylist": "cpu,memory,network,cni"})
    assert set(node.attributes) == {"cpu.arch", "os.name", "os.signals"}
    assert node.node_resources.cpu.cpu_shares == 0
    assert node.node_resources.memory.memory_mb == 64
    assert [each.mode for each in node.node_resources.networks] == ["bridge"]
    assert [each.mode for each in node.node_resources.node_networks] == ["bridge"]


def test_an_allowlist_of_fingerprints_leaves_the_others_out_under_its_old_name_too() -> None:
    node = node_for(**{"fingerprint.whitelist": "cpu,arch"})
    assert set(node.attributes) == {"cpu.arch", "cpu.numcores"}
    assert node.node_resources.networks == ()


def test_without_lists_a_node_is_what_was_found() -> None:
    assert len(node_for().attributes) == 7
