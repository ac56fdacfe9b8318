"""`yurt alloc`: show allocations and act on them."""

from __future__ import annotations

MODULES = {
    "control": (
        "keep",
        "restart",
        "signal",
        "stop",
    ),
    "exec": ("exec",),
    "files": (
        "fs",
        "logs",
    ),
    "pause": ("pause",),
    "status": (
        "checks",
        "status",
    ),
    "why": ("why",),
}
"""Which module has the commands of which second words."""
