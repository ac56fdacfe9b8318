"""`yurt var`: show variables and change them."""

from __future__ import annotations

MODULES = {
    "items": (
        "get",
        "put",
        "list",
        "purge",
        "init",
    ),
    "lock": ("lock",),
}
"""Which module has the commands of which second words."""
