"""Describes the node by its network modes and the reasons why others are missing; pure."""

from __future__ import annotations

from yurt.client.networks.bridge import BRIDGE
from yurt.client.networks.detection import ATTRIBUTE, Offered
from yurt.client.networks.settings import NetworkSettings
from yurt.sdk.value import replace
from yurt.structs.network import NetworkResource
from yurt.structs.node import NETWORK_PROBLEM, Node, NodeNetworkResource

HOST_MODES = ("", "host")
HAIRPIN = "nomad.bridge.hairpin_mode"
OF_NETWORKS = (ATTRIBUTE, NETWORK_PROBLEM, HAIRPIN)


def with_networks(node: Node, offered: Offered, settings: NetworkSettings) -> Node:
    """The node with the offered networks."""
    attributes = {name: text for name, text in node.attributes.items() if not name.startswith(OF_NETWORKS)}
    attributes |= offered.attributes
    attributes |= {f"{NETWORK_PROBLEM}{mode}": reason for mode, reason in offered.problems}
    old = node.node_resources
    devices = {mode: settings.bridge_name if mode == BRIDGE else "" for mode in offered.networks}
    resources = replace(
        old,
        networks=(
            *(each for each in old.networks if each.mode in HOST_MODES),
            *(NetworkResource(mode=mode, device=device) for mode, device in devices.items()),
        ),
        node_networks=(
            *(each for each in old.node_networks if each.mode in HOST_MODES),
            *(NodeNetworkResource(mode=mode, device=device) for mode, device in devices.items()),
        ),
    )
    return replace(node, attributes=attributes, node_resources=resources)
