"""Imports engines' Python packages on demand, in threads.

An import that fails half-way leaves modules behind: Python removes only the failed module from `sys.modules`, and its
submodules stay. Every later import then creates a package without these submodules as attributes. So a failed import is
undone completely and tried again.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from threading import Lock, get_ident
from types import ModuleType

_ONE_AT_A_TIME = Lock()
"""Packages share dependencies: an import must not be undone while another one uses it."""


class _Begun:
    """Records the modules that this thread begins to import; finds none itself."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._thread = get_ident()

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        if get_ident() == self._thread:
            self.names.append(name)

    def __enter__(self) -> _Begun:
        sys.meta_path = [self, *sys.meta_path]  # a new list: another thread may walk through the old one
        return self

    def __exit__(self, *failure: object) -> None:
        sys.meta_path = [finder for finder in sys.meta_path if finder is not self]


@cache
def import_whole(name: str) -> ModuleType:
    """Import a package completely or not at all; one retry follows a failure at once.

    Raises ImportError or AttributeError, as the second import did.
    """
    with _ONE_AT_A_TIME:
        try:
            return _import_or_undo(name)
        except (ImportError, AttributeError):
            return _import_or_undo(name)


def _import_or_undo(name: str) -> ModuleType:
    """Import; a failure removes all modules it began, and remains of earlier failures below them."""
    with _Begun() as begun:
        try:
            return import_module(name)
        except (ImportError, AttributeError):
            _forget(begun.names)
            raise


def _forget(names: Sequence[str]) -> None:
    """Remove modules and their submodules from `sys.modules`, except the standard library's."""
    begun = {name for name in names if name.partition(".")[0] not in sys.stdlib_module_names}
    for module in tuple(sys.modules):
        parents = (module[:end] for end, letter in enumerate(module) if letter == ".")
        if module in begun or not begun.isdisjoint(parents):
            sys.modules.pop(module, None)
