"""Which modules a page of the web UI needs at once: the static imports of its scripts, read from their text.

Modules are served as they are written, one file each. A browser finds a module's imports only when it has read it, so
without a list each level of imports costs another round to the agent. The shell names all modules of a page up front
(`<link rel="modulepreload">`); the pages and their modules are those that `routes.js` declares.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import Final

START: Final = "app/main.js"
ROUTES: Final = "app/routes.js"
_STATIC: Final = re.compile(r'^(?:import|export) [^;]*?from "([^"]+)";|^import "([^"]+)";', re.MULTILINE | re.DOTALL)
_LOADER: Final = re.compile(r'const (\w+) = \(\) => import\("([^"]+)"\)')
_ROUTE: Final = re.compile(r'pattern: "([^"]*)", load: (?:(\w+)|\(\) => import\("([^"]+)"\))')


class ModuleGraph:
    """The modules by their paths below the folder of the pages."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts
        self._imports: dict[str, tuple[str, ...]] = {}
        routes = texts.get(ROUTES, "")
        loaders = dict(_LOADER.findall(routes))
        self.pages: tuple[tuple[tuple[str, ...], str], ...] = tuple(
            (tuple(pattern.split("/")) if pattern else (), _resolved(ROUTES, target or loaders.get(name, "")))
            for pattern, name, target in _ROUTE.findall(routes)
        )
        """The parts of each pattern of `routes.js`, and the module that shows it; the first match counts."""
        self._of_page: dict[str, tuple[str, ...]] = {}

    def of_path(self, path: str) -> tuple[str, ...]:
        """The modules for a path below `/ui/`, sorted; those of the frame alone for an unknown page."""
        parts = [part for part in path.split("/") if part]
        page = next((module for pattern, module in self.pages if _matches(pattern, parts)), "")
        names = self._of_page.get(page)
        if names is None:
            names = self._of_page[page] = self.closure(START, page)
        return names

    def closure(self, *starts: str) -> tuple[str, ...]:
        """Modules with all that they import statically."""
        names, pending = set[str](), list(starts)
        while pending:
            name = pending.pop()
            if name not in names and name in self._texts:
                names.add(name)
                pending += self._imported(name)
        return tuple(sorted(names))

    def _imported(self, name: str) -> tuple[str, ...]:
        cached = self._imports.get(name)
        if cached is None:
            matches = _STATIC.findall(self._texts[name])
            cached = self._imports[name] = tuple(_resolved(name, first or second) for first, second in matches)
        return cached


def _resolved(name: str, target: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), target)) if target else ""


def _matches(pattern: tuple[str, ...], parts: list[str]) -> bool:
    """Whether a path fits a pattern: `:name` takes one part, `*name` the rest, of which there is some."""
    for at, expected in enumerate(pattern):
        if at >= len(parts):
            return False
        if expected.startswith("*"):
            return True
        if not expected.startswith(":") and expected != parts[at]:
            return False
    return len(pattern) == len(parts)
