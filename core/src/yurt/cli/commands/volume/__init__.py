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
    "status": ("status",),
}
"""Which module has the commands of which second words."""
GROUPS = {
    "volume claim": "Which allocations go back to which volumes",
}
