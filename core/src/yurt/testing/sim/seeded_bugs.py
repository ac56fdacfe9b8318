"""Planted bugs: a check that the simulator would find a real bug of each kind.

A bug is one or more replacements of text in modules of Yurt. They are made while the modules are imported, in a process
of their own (`install`), so the source on disk never changes. A text that no longer occurs exactly once fails
`tests/sim/test_planted_bugs.py`: a change of such a place must update the bug's text.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Final

from yurt.testing.sim.planted import clients, log, scheduling, state, volumes
from yurt.testing.sim.planted.patch import Bug, Patch

BUGS: Final[dict[str, Bug]] = {**log.BUGS, **state.BUGS, **scheduling.BUGS, **clients.BUGS, **volumes.BUGS}


class _Loader(importlib.abc.SourceLoader):
    """An import loader that applies the replacements of a bug."""

    def __init__(self, path: str, patches: Sequence[Patch]) -> None:
        self._path = path
        self._patches = patches

    def get_filename(self, fullname: str) -> str:
        """The path of the module's file."""
        return self._path

    def get_data(self, path: str) -> bytes:
        """The patched source; bytecode caches are never read."""
        if not path.endswith(".py"):
            raise OSError(path)
        with open(path, encoding="utf-8") as file:
            return changed(file.read(), self._patches).encode()


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, patches: Sequence[Patch]) -> None:
        self._patches = patches

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        own = [patch for patch in self._patches if patch.module == fullname]
        if not own:
            return None
        found = importlib.machinery.PathFinder.find_spec(fullname, path)
        assert found is not None and found.origin is not None, fullname
        return importlib.util.spec_from_file_location(fullname, found.origin, loader=_Loader(found.origin, own))


def changed(source: str, patches: Sequence[Patch]) -> str:
    """Apply the replacements to a source; raises ValueError when a text does not occur exactly once."""
    for patch in patches:
        if source.count(patch.old) != 1:
            raise ValueError(f"{patch.module} has {source.count(patch.old)} times: {patch.old}")
        source = source.replace(patch.old, patch.new)
    return source


def install(name: str) -> None:
    """Plant a bug in this process; the modules must not be imported yet."""
    patches = BUGS[name].patches
    early = {patch.module for patch in patches} & sys.modules.keys()
    assert not early, f"imported before the bug was planted: {sorted(early)}"
    sys.meta_path.insert(0, _Finder(patches))
