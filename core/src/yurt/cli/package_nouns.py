"""The first words of packages' commands, from the metadata of what is installed.

They are read from the `entry_points.txt` files next to the packages: to import `importlib.metadata` alone takes longer
than all else that `yurt -help` does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

_SECTION = "[yurt.commands.v1]"
"""`yurt.sdk.commands.ENTRY_POINT_GROUP`, which is not imported for help."""


class PackageNoun(NamedTuple):
    """A first word of commands, the module that has them, and the distribution with its version."""

    module: str
    distribution: str

    @property
    def summary(self) -> str:
        """The word's summary in help; available without importing the module."""
        return f"Commands of the package {self.distribution}"


@cache
def package_nouns() -> Mapping[str, PackageNoun]:
    """The words that installed packages add, sorted; of two packages with one word the first on `sys.path` has it."""
    found: dict[str, PackageNoun] = {}
    for folder in sys.path:
        for name, text in _entry_points(folder):
            distribution = " ".join(name.removesuffix(".dist-info").rsplit("-", 1)).replace("_", "-")
            for word, module in _declared(text):
                found.setdefault(word, PackageNoun(module, distribution))
    return dict(sorted(found.items()))


def _entry_points(folder: str) -> Iterator[tuple[str, str]]:
    """The name of each installed distribution of a folder that declares commands, and its entry points."""
    try:
        names = sorted(name for name in os.listdir(folder or ".") if name.endswith(".dist-info"))
    except OSError:
        return
    for name in names:
        try:
            with open(os.path.join(folder, name, "entry_points.txt"), encoding="utf-8") as file:
                text = file.read()
        except (OSError, UnicodeDecodeError):
            continue
        if _SECTION in text:
            yield name, text


def _declared(text: str) -> Iterator[tuple[str, str]]:
    """The words and modules of our section."""
    is_ours = False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            is_ours = line == _SECTION
        elif is_ours and "=" in line:
            word, _, module = line.partition("=")
            yield word.strip(), module.strip()
