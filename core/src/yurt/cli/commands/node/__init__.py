"""`yurt node`: show client nodes and act on them."""

from __future__ import annotations

MODULES = {
    "config": (
        "config",
        "meta",
    ),
    "drain": (
        "drain",
        "eligibility",
    ),
    "gpu": ("gpu",),
    "identity": (
        "identity",
        "intro",
    ),
    "pool": ("pool",),
    "status": ("status",),
    "topology": ("topo",),
}
"""Which module has the commands of which second words."""
GROUPS = {
    "node identity": "Show and renew the identity of a node",
    "node intro": "Let new nodes register",
    "node meta": "Show the metadata of a node and change it",
    "node pool": "Show node pools and change them",
}
