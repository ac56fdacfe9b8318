"""The folders of a simulated node's volumes."""

from __future__ import annotations

from pathlib import Path
from typing import Final

REGISTERED: Final = ("a", "b")
"""The folders of each node that may be registered."""


def folder_of_volumes(folder: Path, name: str) -> Path:
    """The folder in which a node makes volumes."""
    return folder / name / "volumes"


def folder_to_register(folder: Path, name: str) -> Path:
    """The folder below which a node's folders may be registered."""
    return folder / name / "registered"


def make_folders(folder: Path, name: str) -> None:
    """Make the folders that may be registered, which an operator made before."""
    for each in REGISTERED:
        (folder_to_register(folder, name) / each).mkdir(parents=True, exist_ok=True)
