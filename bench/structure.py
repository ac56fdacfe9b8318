"""Metrics of the code's structure: `python -m bench structure [CHECKOUT ...]`, one column per checkout.

Import cycles count imports under TYPE_CHECKING, because they couple what a reader has to know together. An attribute is
what a class assigns to `self`. A decision by message text compares, or searches, `str(error)`. A raw read is an access
of a module of `yurt.http` to the server or to the state that no view of the caller limits.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Final, TypeGuard

FOLDER_MAX: Final = 25
LATE: Final = re.compile(r"_?on_\w+|\w+_callback|_?peers")
"""Names of attributes that only a constructor sets."""
CLASS: Final = re.compile(r"^class (\w+)", re.MULTILINE)
TEXT_METHODS: Final = ("startswith", "endswith")
RAW_READS: Final = ("server", "read_state", "table", "state")
PURE: Final = ("fsm", "state", "scheduler", "broker", "lifecycle")
CODE_FOLDERS: Final = ("core", "drivers", "devices", "jobspec")
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Code:
    """The sources of one checkout, parsed once."""

    def __init__(self, checkout: Path) -> None:
        self.root = checkout / "core" / "src" / "yurt"
        self.trees = {path: ast.parse(path.read_text()) for path in sorted(self.root.rglob("*.py"))}
        self.lines = {path: path.read_text().splitlines() for path in self.trees}

    def shipped(self, package: str = "") -> Iterator[Path]:
        """Modules of a package, or of all that are shipped: `yurt.testing` is not."""
        for path in self.trees:
            first = path.relative_to(self.root).parts[0]
            if first == package or (not package and first != "testing"):
                yield path

    def name(self, path: Path) -> str:
        """The dotted name of a module."""
        parts = ("yurt", *path.relative_to(self.root).with_suffix("").parts)
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @cached_property
    def imports(self) -> Mapping[str, frozenset[str]]:
        """Which modules each module imports; a package's own `__init__` counts only where it is named."""
        names = {self.name(path) for path in self.trees}
        return {
            self.name(path): frozenset(_imported(tree, names)) - {self.name(path)} for path, tree in self.trees.items()
        }


def _imported(tree: ast.Module, names: set[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from inner & names or {node.module} & names


def cycles(imports: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Groups of modules that import each other, the largest first: strongly connected components, by Tarjan."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for following in sorted(each for each in imports[node] if each in imports):
            if following not in order:
                visit(following)
                low[node] = min(low[node], low[following])
            elif following in stack:
                low[node] = min(low[node], order[following])
        if low[node] == order[node]:
            at = stack.index(node)
            found.append(stack[at:])
            del stack[at:]

    for start in imports:
        if start not in order:
            visit(start)
    return sorted((group for group in found if len(group) > 1), key=len, reverse=True)


def layers(imports: Mapping[str, Iterable[str]], package: str) -> int:
    """Modules on the longest chain of imports inside a package; a cycle counts as one."""
    inside = {name: [each for each in of if each.startswith(f"{package}.")] for name, of in imports.items()}
    inside = {name: of for name, of in inside.items() if name.startswith(f"{package}.")}
    group = {name: name for name in inside} | {name: each[0] for each in cycles(inside) for name in each}
    depth: dict[str, int] = {}

    def depth_of(name: str) -> int:
        if name not in depth:
            members = [each for each in inside if group[each] == name]
            below = {group[other] for each in members for other in inside[each]} - {name}
            depth[name] = 1 + max((depth_of(each) for each in below), default=0)
        return depth[name]

    return max(depth_of(each) for each in set(group.values()))


def classes(code: Code) -> Iterator[tuple[str, int, int]]:
    """Each shipped class with the number of its methods and of its attributes."""
    for path in code.shipped():
        for node in ast.walk(code.trees[path]):
            if isinstance(node, ast.ClassDef):
                methods = [each for each in node.body if isinstance(each, Function)]
                yield f"{code.name(path)}.{node.name}", len(methods), len(_attributes(methods))


def shared_class_names(checkout: Path) -> dict[str, list[str]]:
    """Top-level classes of one name in several modules, with these modules.

    Drivers are variants of one design: what `config` of one driver calls `TaskConfig` means the same in the others, so
    equal module names of drivers count as one module.
    """
    modules: dict[str, set[str]] = defaultdict(set)
    for path in sorted(checkout.glob("*/**/src/**/*.py")):
        package, *rest = path.relative_to(checkout).with_suffix("").parts
        module = ".".join(rest[rest.index("src") + 1 :])
        if package not in CODE_FOLDERS or module.startswith("yurt.testing."):
            continue
        family = module.split(".", 1)[1] if package == "drivers" else module
        for name in CLASS.findall(path.read_text()):
            modules[name].add(family)
    return {name: sorted(each) for name, each in sorted(modules.items()) if len(each) > 1}


def _attributes(methods: Iterable[ast.AST]) -> set[str]:
    return {
        node.attr
        for method in methods
        for node in ast.walk(method)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }


def late_parts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and text of each part or callback that is set on another object after its construction."""
    methods = {
        each.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for each in node.body
        if isinstance(each, Function) and not each.decorator_list
    }
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    for target, value in _assignments(tree):
        if not _is_of_other(target) or ast.unparse(target.value) in imported:
            continue
        if LATE.fullmatch(target.attr) or _is_function(value, methods):
            yield target.lineno, ast.unparse(target)


def _assignments(tree: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=targets, value=value):
                yield from _pairs(targets, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                yield target, value


def _pairs(targets: Iterable[ast.expr], value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each target with its value; both sides of `a.x, b.y = 1, 2` are taken apart."""
    for target in targets:
        if isinstance(target, ast.Tuple):
            values = value.elts if isinstance(value, ast.Tuple) else [value] * len(target.elts)
            yield from zip(target.elts, values, strict=True)
        else:
            yield target, value


def _is_of_other(target: ast.expr) -> TypeGuard[ast.Attribute]:
    return isinstance(target, ast.Attribute) and not (isinstance(target.value, ast.Name) and target.value.id == "self")


def _is_function(value: ast.expr, methods: Collection[str]) -> bool:
    """A lambda, or a method of a class of the same module."""
    is_method = isinstance(value, ast.Attribute) and value.attr in methods and ast.unparse(value.value) == "self"
    return isinstance(value, ast.Lambda) or is_method


def importers(code: Code, module: str) -> list[str]:
    """The shipped modules that import a module, type checking included."""
    return [name for name in map(code.name, code.shipped()) if module in code.imports[name]]


def decisions_by_text(tree: ast.AST) -> int:
    """Places where the text of an error decides."""
    return sum(_is_text_test(node) for node in ast.walk(tree))


def _is_text_test(node: ast.AST) -> bool:
    if isinstance(node, ast.Compare):
        return any(_is_error_text(each) for each in (node.left, *node.comparators))
    is_search = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in TEXT_METHODS
    return is_search and _is_error_text(node.func.value)  # type: ignore[attr-defined]


def _is_error_text(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "str"
        and len(node.args) == 1
        and isinstance(node.args[0], ast.Name)
        and node.args[0].id in ("error", "failure", "problem", "why")
    )


def raw_reads(tree: ast.AST) -> int:
    """Accesses to a call's server or state, and to tables by name."""
    return sum(
        isinstance(node, ast.Attribute)
        and node.attr in RAW_READS
        and ast.unparse(node.value).split(".")[-1] in ("call", "context", "state", "server", "snapshot")
        for node in ast.walk(tree)
    )


def count_any(code: Code) -> int:
    """Uses of `Any` in shipped code."""
    return sum(
        isinstance(node, ast.Name) and node.id == "Any"
        for path in code.shipped()
        for node in ast.walk(code.trees[path])
    )


def comment_share(code: Code, package: str) -> str:
    """Lines of comments and docstrings, and of comments alone, in percent of a package's lines."""
    lines = [line for path in code.shipped(package) for line in code.lines[path]]
    if not lines:
        return "-"
    comments = sum(line.lstrip().startswith("#") for line in lines)
    prose = comments + sum(_docstring_lines(code.trees[path]) for path in code.shipped(package))
    return f"{100 * prose / len(lines):.1f} ({100 * comments / len(lines):.1f})"


def assertion_share(code: Code, *packages: str) -> str:
    """Assertions in 1,000 lines of packages together, or of all that is shipped."""
    paths = [path for package in packages or ("",) for path in code.shipped(package)]
    lines = sum(len(code.lines[path]) for path in paths)
    asserts = sum(isinstance(node, ast.Assert) for path in paths for node in ast.walk(code.trees[path]))
    return f"{1000 * asserts / lines:.1f}" if lines else "-"


def _docstring_lines(tree: ast.AST) -> int:
    return sum(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )


def rows(code: Code) -> Iterator[tuple[str, object]]:
    """Every figure with its name."""
    folders = Counter(path.parent for path in code.shipped() if path.name != "__init__.py")
    wide = [(count, str(folder.relative_to(code.root))) for folder, count in folders.items() if count > FOLDER_MAX]
    shipped_imports = {name: of for name, of in code.imports.items() if not name.startswith("yurt.testing")}
    found = cycles(shipped_imports)
    widths = list(classes(code))
    cli = list(code.shipped("cli"))
    yield "modules", len(list(code.shipped()))
    yield "lines", sum(len(code.lines[path]) for path in code.shipped())
    yield f"folders with more than {FOLDER_MAX} modules", len(wide)
    yield (
        "largest folder",
        max((f"{count} ({name})" for count, name in wide), default=max(folders.values()), key=_number),
    )
    yield "layers of the scheduler", layers(code.imports, "yurt.scheduler")
    yield "layers of the server", layers(code.imports, "yurt.server")
    yield "import cycles, modules in them", f"{len(found)}, {sum(map(len, found))}"
    yield "largest import cycle", len(found[0]) if found else 0
    yield "most methods of a class", "{1} ({0})".format(*max(widths, key=lambda row: row[1]))
    yield "most attributes of a class", "{2} ({0})".format(*max(widths, key=lambda row: row[2]))
    yield "classes with more than 25 methods or 15 attributes", sum(row[1] > 25 or row[2] > 15 for row in widths)
    yield "class names of several modules", len(shared_class_names(code.root.parents[2]))
    lines = sum(len(code.lines[path]) for path in code.shipped())
    yield "`Any`; in 1,000 lines", f"{count_any(code)}; {1000 * count_any(code) / lines:.1f}"
    yield "decisions by the text of an error", sum(decisions_by_text(code.trees[path]) for path in code.shipped())
    reads = {path: raw_reads(code.trees[path]) for path in code.shipped("http")}
    yield "raw reads in http", sum(reads.values())
    yield "modules of http with raw reads", ", ".join(sorted({path.stem for path, count in reads.items() if count}))
    yield "files of the command line, empty", f"{len(cli)}, {sum(len(code.lines[path]) <= 1 for path in cli)}"
    yield "assertions in 1,000 lines", assertion_share(code)
    yield "assertions in 1,000 lines of pure packages", assertion_share(code, *PURE)
    for package in PURE:
        yield f"assertions in 1,000 lines of {package}", assertion_share(code, package)
    yield "parts set after construction", sum(len(list(late_parts(tree))) for tree in code.trees.values())
    yield "modules that import the server", len(importers(code, "yurt.server.server"))
    for package in ("scheduler", "fsm", "state", "broker", "lifecycle", "server", "client", "http", "cli"):
        yield f"prose (comments) in {package}, %", comment_share(code, package)


def _number(text: object) -> int:
    return int(str(text).split()[0])


def main() -> None:
    """Print the table."""
    checkouts = [Path(word).resolve() for word in sys.argv[1:]] or [Path(__file__).resolve().parent.parent]
    columns = [{name: str(value) for name, value in rows(Code(each))} for each in checkouts]
    names = list(dict.fromkeys(name for column in columns for name in column))
    table = [["figure", *(each.name for each in checkouts)]]
    table += [[name, *(column.get(name, "-") for column in columns)] for name in names]
    widths = [max(map(len, cells)) for cells in zip(*table, strict=True)]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


if __name__ == "__main__":
    main()
