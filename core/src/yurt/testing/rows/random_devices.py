"""Random devices of nodes, for commands on them."""

from __future__ import annotations

from random import Random
from typing import Final

from yurt.sdk.value import replace
from yurt.structs.node import DeviceHealth, DeviceState, Node, NodeDevice, NodeDeviceResource

DEVICE_ID: Final = "gpu-0"
_STATES: Final[tuple[DeviceState, ...]] = ("healthy", "suspect", "degraded", "failed", "probation")


def with_devices(node: Node, seed: str) -> Node:
    """The node with two devices of some health, or with one of an agent that knows no health, by the seed.

    The seed is the caller's, so that the commands that follow do not depend on these draws.
    """
    random = Random(seed)
    healths = [DeviceHealth(state=random.choice(_STATES)) if random.randrange(4) else None for _ in range(2)]
    instances = tuple(
        NodeDevice(id=f"gpu-{number}", healthy=health is None or health.state == "healthy", health=health)
        for number, health in enumerate(healths)
    )
    group = NodeDeviceResource(vendor="nvidia", type="gpu", name="a", instances=instances)
    return replace(node, node_resources=replace(node.node_resources, devices=(group,)))
