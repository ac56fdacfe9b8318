"""Bounds of classes, import cycles, what plugins import, and parts that are complete once constructed (ADR 0020)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.structure import Code, classes, cycles, decisions_by_text, importers, late_parts, layers, shared_class_names

ROOT = Path(__file__).resolve().parent.parent
MAX_METHODS, MAX_ATTRIBUTES = 25, 15
COMPOSITION_ROOT = "yurt.agent.node"
"""The only module that holds a whole server: it makes the parts of an agent and runs them."""


@pytest.fixture(scope="module")
def code() -> Code:
    return Code(ROOT)


def test_a_class_has_one_job(code: Code) -> None:
    too_wide = [
        f"{name}: {methods} methods, {attributes} attributes"
        for name, methods, attributes in classes(code)
        if methods > MAX_METHODS or attributes > MAX_ATTRIBUTES
    ]
    assert not too_wide, "\n".join(too_wide)


def test_a_class_name_means_one_thing() -> None:
    shared = shared_class_names(ROOT)
    assert not shared, "\n".join(f"rename all but one {name}: {', '.join(each)}" for name, each in shared.items())


def test_a_class_name_of_two_modules_is_found(tmp_path: Path) -> None:
    for file in ("core/src/yurt/a.py", "core/src/yurt/b.py", "drivers/x/src/yurt_driver_x/config.py"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("class Rule: ...")
    (tmp_path / "drivers/y/src/yurt_driver_y").mkdir(parents=True)
    (tmp_path / "drivers/y/src/yurt_driver_y/config.py").write_text("class Own: ...")
    (tmp_path / "drivers/x/src/yurt_driver_x/config.py").write_text("class Own: ...")
    assert shared_class_names(tmp_path) == {"Rule": ["yurt.a", "yurt.b"]}


def test_modules_do_not_import_each_other(code: Code) -> None:
    shipped = {name: of for name, of in code.imports.items() if not name.startswith("yurt.testing")}
    assert cycles(shipped) == []


def test_parts_are_complete_after_their_construction(code: Code) -> None:
    late = [f"{code.name(path)}:{line}: {text}" for path, tree in code.trees.items() for line, text in late_parts(tree)]
    assert not late, "pass it to the constructor:\n" + "\n".join(late)


def test_only_the_composition_root_holds_the_server(code: Code) -> None:
    assert importers(code, "yurt.server.server") == [COMPOSITION_ROOT]


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and module of each import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.lineno, node.module


def is_of_sdk(module: str) -> bool:
    return module == "yurt.sdk" or module.startswith("yurt.sdk.")


def imports_beyond_sdk(tree: ast.AST) -> list[int]:
    """Lines that import something of Yurt that is not its sdk."""
    return [line for line, name in imported(tree) if name.split(".")[0] == "yurt" and not is_of_sdk(name)]


def imports_of_plugins(tree: ast.AST) -> list[int]:
    return [line for line, name in imported(tree) if name.startswith(("yurt_driver_", "yurt_device_"))]


def test_a_plugin_imports_only_the_sdk() -> None:
    paths = [path for kind in ("drivers", "devices") for path in sorted((ROOT / kind).glob("*/src/**/*.py"))]
    assert len({path.relative_to(ROOT).parts[:2] for path in paths}) > 1, "no plugin found"
    beyond = [f"{path}:{line}" for path in paths for line in imports_beyond_sdk(ast.parse(path.read_text()))]
    assert not beyond, "take it from yurt.sdk:\n" + "\n".join(beyond)


def test_core_and_jobspec_name_no_plugin(code: Code) -> None:
    trees = code.trees | {path: ast.parse(path.read_text()) for path in (ROOT / "jobspec" / "src").rglob("*.py")}
    named = [f"{path}:{line}" for path, tree in trees.items() for line in imports_of_plugins(tree)]
    assert not named, "\n".join(named)


@pytest.mark.parametrize(
    ("text", "beyond", "plugins"),
    [
        ("from yurt.sdk.driver import Driver", [], []),
        ("import yurt.sdk\nimport os, yurt.structs.job", [2], []),
        ("def f():\n    from yurt.sdkx import a", [2], []),
        ("from yurt import server", [1], []),
        ("from yurt_driver_exec import plugin\nimport yurt_device_nvidia.nvml", [], [1, 2]),
    ],
)
def test_a_forbidden_import_is_found(text: str, beyond: list[int], plugins: list[int]) -> None:
    tree = ast.parse(text)
    assert (imports_beyond_sdk(tree), imports_of_plugins(tree)) == (beyond, plugins)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("server.peers = links", ["server.peers"]),
        ("applier.on_dropped = note", ["applier.on_dropped"]),
        ("a.on_start, a.count = f, 1", ["a.on_start"]),
        ("self.applier.look = lambda: 1", ["self.applier.look"]),
        ("class A:\n    def f(self): self.b.done = self.f", ["self.b.done"]),
        ("class A:\n    def f(self): self.on_end = 1", []),
        ("loader.awaits = 'a cluster'", []),
    ],
)
def test_a_part_that_is_set_late_is_found(text: str, found: list[str]) -> None:
    assert [target for _, target in late_parts(ast.parse(text))] == found


def test_cycles_and_layers_are_found() -> None:
    imports = {"p.a": ["p.b"], "p.b": ["p.c"], "p.c": ["p.b", "p.d"], "p.d": ["q.e"], "q.e": ["p.a"], "q.f": []}
    assert [sorted(group) for group in cycles(imports)] == [["p.a", "p.b", "p.c", "p.d", "q.e"]]
    assert cycles({"p.a": ["p.b"], "p.b": []}) == []
    assert layers({"p.a": ["p.b", "p.d"], "p.b": ["p.c"], "p.c": ["p.b"], "p.d": []}, "p") == 2
    assert layers({"p.a": ["p.b"], "p.b": ["p.c"], "p.c": []}, "p") == 3


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('str(error).startswith("No path")', 1),
        ('str(error) == "No leader"', 1),
        ('"in use" in str(error)', 1),
        ("print(str(error))", 0),
        ('name.startswith("x")', 0),
    ],
)
def test_a_decision_by_text_is_found(text: str, found: int) -> None:
    assert decisions_by_text(ast.parse(text)) == found


ENDINGS = ("ations", "ation", "ings", "ing", "ers", "er", "ors", "or", "ions", "ion", "ies", "ed", "es", "s", "y", "e")


def stem(name: str) -> str:
    """A module's name without its ending: `routing` and `routes` share theirs."""
    ending = next((each for each in ENDINGS if name.endswith(each) and len(name) - len(each) >= 3), "")
    return name.removesuffix(ending)


def alike(names: list[str]) -> list[str]:
    """The names that differ from an earlier one only by their ending."""
    seen: dict[str, str] = {}
    return [f"{first}, {name}" for name in names if (first := seen.setdefault(stem(name), name)) != name]


def test_no_two_modules_of_a_folder_differ_only_by_an_ending() -> None:
    folders: dict[Path, list[str]] = {}
    for source in ("core/src/yurt", "jobspec/src", "drivers", "devices"):
        for path in sorted((ROOT / source).rglob("*.py")):
            if path.stem != "__init__" and not {".venv", "tests"} & set(path.parts):
                folders.setdefault(path.parent, []).append(path.stem)
    found = [f"{folder.relative_to(ROOT)}: {pair}" for folder, names in folders.items() for pair in alike(names)]
    assert not found, "name them by what each holds:\n" + "\n".join(found)


@pytest.mark.parametrize("names", [["change", "changes"], ["routes", "routing"], ["reschedule", "rescheduling"]])
def test_names_that_differ_by_an_ending_are_found(names: list[str]) -> None:
    assert alike(names) == [", ".join(names)]
