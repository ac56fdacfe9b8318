"""Engines' packages, imported late and in threads.

An import that fails half-way leaves what it had begun: Python takes only the module that failed out of `sys.modules`,
and what was imported beneath it stays. The next import makes a new package that does not know its own parts, and so
does each one after it. An import that failed is therefore undone wholly, and tried anew.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from threading import Lock, get_ident
from types import ModuleType

_ONE_AT_A_TIME = Lock()
"""Packages share what lies beneath them: nobody undoes what another import is using."""


class _Begun:
    """Notes which modules this thread looks for while it imports; it finds none itself."""

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
    """Import a package and what it needs, or leave nothing of it; one that fails is tried once more at once.

    Raises ImportError or AttributeError, as the second import did.
    """
    with _ONE_AT_A_TIME:
        try:
            return _import_or_undo(name)
        except (ImportError, AttributeError):
            return _import_or_undo(name)


def _import_or_undo(name: str) -> ModuleType:
    """Import; what fails takes along all that it had begun, and what earlier failures left beneath that."""
    with _Begun() as begun:
        try:
            return import_module(name)
        except (ImportError, AttributeError):
            _forget(begun.names)
            raise


def _forget(names: Sequence[str]) -> None:
    """Take modules and all beneath them out of `sys.modules`; the standard library's are whole, and stay."""
    begun = {name for name in names if name.partition(".")[0] not in sys.stdlib_module_names}
    for module in tuple(sys.modules):
        parents = (module[:end] for end, letter in enumerate(module) if letter == ".")
        if module in begun or not begun.isdisjoint(parents):
            sys.modules.pop(module, None)
