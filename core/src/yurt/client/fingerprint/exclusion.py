"""Excludes fingerprints by the client's options: their attributes and resources are removed from the node.

Names are Nomad's. A node without the fingerprint of its processor, memory or disk offers what the configuration says
(`cpu_total_compute`, `memory_total_mb`, `disk_total_mb`), and nothing where it says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from yurt.client.config import ClientConfig
from yurt.client.options import FINGERPRINT, NameFilter, choice_of
from yurt.sdk.fingerprints import NodeFingerprint
from yurt.sdk.value import replace
from yurt.structs.node import (
    NETWORK_PROBLEM,
    Node,
    NodeCpuResources,
    NodeDiskResources,
    NodeMemoryResources,
    NodeResources,
)

ATTRIBUTES: Final[Mapping[str, tuple[str, ...]]] = {
    "arch": ("cpu.arch",),
    "bridge": ("nomad.bridge.", f"{NETWORK_PROBLEM}bridge"),
    "cgroup": ("unique.cgroup.", "os.cgroups."),
    "cni": ("plugins.cni.", f"{NETWORK_PROBLEM}cni/"),
    "cpu": ("cpu.modelname", "cpu.numcores", "cpu.reservablecores", "cpu.frequency", "cpu.totalcompute"),
    "host": ("os.name", "os.version", "kernel.", "unique.hostname"),
    "landlock": ("kernel.landlock",),
    "memory": ("memory.",),
    "network": ("unique.network.",),
    "nomad": ("nomad.version", "yurt.version"),
    "signal": ("os.signals",),
    "storage": ("unique.storage.",),
}
"""Prefixes of the attributes that each fingerprint detects."""
CLOUDS: Final = frozenset({"env_aws", "env_azure", "env_digitalocean", "env_gce"})
"""Fingerprints that query a cloud's metadata address."""
ELSEWHERE: Final = frozenset({
    "consul", "dmidecode", "dynamic_host_volumes", "hugepages", "numa", "plugins_cni", "secrets", "vault",
})  # fmt: skip
"""Fingerprints of Nomad that Yurt does not have; excluding them is permitted and has no effect."""
FINGERPRINTS: Final = frozenset(ATTRIBUTES) | CLOUDS | ELSEWHERE


def without_excluded(node: Node, config: ClientConfig) -> Node:
    """The node without the results of excluded fingerprints."""
    choice = choice_of(FINGERPRINT, config.options)
    if not choice.names:
        return node
    excluded = {name for name in ATTRIBUTES if choice.refusal(name)}
    prefixes = tuple(prefix for name in excluded for prefix in ATTRIBUTES[name])
    attributes = {name: text for name, text in node.attributes.items() if not prefixes or not name.startswith(prefixes)}
    resources = _resources(node.node_resources, config, choice)
    return replace(node, attributes=attributes, node_resources=resources)


def permitted_fingerprints(config: ClientConfig) -> Mapping[str, NodeFingerprint]:
    """The fingerprints of packages that the operator does not exclude."""
    choice = choice_of(FINGERPRINT, config.options)
    return {name: each for name, each in config.added.fingerprints.items() if not choice.refusal(name)}


def cloud_fingerprints(clouds: Mapping[str, str], config: ClientConfig) -> Mapping[str, NodeFingerprint]:
    """The fingerprints of these clouds that the operator does not exclude; the values are metadata addresses or ""."""
    choice = choice_of(FINGERPRINT, config.options)
    asked = {name: address for name, address in clouds.items() if not choice.refusal(f"env_{name}")}
    if not asked:
        return {}
    from yurt.client.fingerprint.clouds import CloudFingerprint  # Most machines are in no cloud.

    found = (CloudFingerprint(name, address) for name, address in asked.items())
    return {each.name: each for each in found}


def _resources(found: NodeResources, config: ClientConfig, choice: NameFilter) -> NodeResources:
    if choice.refusal("cpu"):
        found = replace(found, cpu=NodeCpuResources(cpu_shares=config.cpu_total_compute))
    if choice.refusal("memory"):
        found = replace(found, memory=NodeMemoryResources(memory_mb=config.memory_total_mb))
    if choice.refusal("storage"):
        found = replace(found, disk=NodeDiskResources(disk_mb=config.disk_total_mb))
    modes: Mapping[str, Callable[[str], bool]] = {
        "network": lambda mode: mode in ("", "host"),
        "bridge": lambda mode: mode == "bridge",
        "cni": lambda mode: mode.startswith("cni/"),
    }
    for name, is_of in modes.items():
        if choice.refusal(name):
            found = replace(
                found,
                networks=tuple(each for each in found.networks if not is_of(each.mode)),
                node_networks=tuple(each for each in found.node_networks if not is_of(each.mode)),
            )
    return found
