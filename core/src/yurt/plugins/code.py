"""Reloads the code of a plugin, and restores the previous code when the new one fails."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType

from yurt.sdk import plugin as declarations
from yurt.sdk.errors import Invalid, NotFound

SHARED = frozenset({"yurt", "yurt_jobspec"})

Modules = dict[str, ModuleType]


def find(name: str) -> EntryPoint:
    """The entry point of the plugin as it is installed now; raises NotFound."""
    importlib.invalidate_caches()
    for each in entry_points(group=declarations.ENTRY_POINT_GROUP):
        if each.name == name:
            return each
    raise NotFound(f'the plugin "{name}" is no longer installed')


def take_out(entry_point: EntryPoint) -> Modules:
    """Remove a plugin's modules from `sys.modules` and return them; the next import reads its files again."""
    top = entry_point.module.partition(".")[0]
    if top in SHARED or top in sys.stdlib_module_names:
        raise Invalid(f'the plugin "{entry_point.name}" is part of {top}, which only a restart of the agent reloads')
    modules = {name: module for name, module in sys.modules.items() if name == top or name.startswith(f"{top}.")}
    for name, module in modules.items():
        del sys.modules[name]
        remove_compiled(module)
    importlib.invalidate_caches()
    return modules


def put_back(entry_point: EntryPoint, modules: Modules) -> Modules:
    """Restore the modules that `take_out` removed; returns the modules that they replace."""
    top = entry_point.module.partition(".")[0]
    failed = {name: module for name, module in sys.modules.items() if name == top or name.startswith(f"{top}.")}
    for name in failed:
        del sys.modules[name]
    sys.modules.update(modules)
    return failed


def remove_compiled(module: ModuleType) -> None:
    """Remove the compiled file of a module, because a change within one second and of the same size would be missed."""
    source = getattr(module, "__file__", None)
    if source:
        with contextlib.suppress(OSError, NotImplementedError):
            os.unlink(importlib.util.cache_from_source(source))
