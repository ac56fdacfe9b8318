"""`yurt volume`: show, create, register and delete volumes."""

from __future__ import annotations

MODULES = {
    "claims": ("claim",),
    "examples": ("init",),
    "lifecycle": (
        "create",
        "delete",
        "register",
        "deregister",
        "detach",
    ),
    "snapshots": ("snapshot",),
    "status": ("status",),
}
"""Which module has the commands of which second words."""
GROUPS = {
    "volume snapshot": "Snapshots of CSI volumes",
    "volume claim": "Which allocations go back to which volumes",
}
