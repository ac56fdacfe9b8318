"""The rules of size: small functions, files and folders, little nesting, few parameters. Excuses carry a reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("core/src", "jobspec/src", "drivers", "devices", "e2e", "bench", "tests")
MAX_FUNCTION_LINES, MAX_FILE_LINES, MAX_NESTING, MAX_PARAMETERS = 70, 600, 3, 6

EXCUSES: dict[str, str] = {
    "core/src/yurt/storage/etcd/log.py::__init__": "what a server is told of its log, all keyword-only",
    "jobspec/src/yurt_jobspec/job.py::parse_job": "the public signature, all keyword-only after the source",
    "jobspec/src/yurt_jobspec/job.py::parse_job_with_positions": "the same signature as parse_job",
}
"""`path::function` or `path`: why it may break a rule."""

MAX_MODULES = 25
SILENT = "no docstring"
Function = ast.FunctionDef | ast.AsyncFunctionDef
NESTS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)


class Finding(NamedTuple):
    """One broken rule."""

    place: str
    text: str


def python_files() -> Iterator[Path]:
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if ".venv" not in path.parts and "build" not in path.parts:
                yield path


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """The statements, handlers and cases directly in a node: its expressions hold no function and nest nothing."""
    for field in ("body", "handlers", "orelse", "finalbody", "cases"):
        found = getattr(node, field, ())
        if isinstance(found, list):
            yield from found


def functions(node: ast.AST) -> Iterator[Function]:
    for child in statements(node):
        if isinstance(child, Function):
            yield child
        yield from functions(child)


def nesting(node: ast.AST, depth: int = 0) -> int:
    deepest = depth
    for child in statements(node):
        if isinstance(child, (*Function.__args__, ast.ClassDef)):
            continue
        chained = isinstance(node, ast.If) and isinstance(child, ast.If) and child in node.orelse
        step = 1 if isinstance(child, NESTS) and not chained else 0
        deepest = max(deepest, nesting(child, depth + step))
    return deepest


def findings_in(path: Path) -> Iterator[Finding]:
    name = path.relative_to(ROOT).as_posix()
    text = path.read_text()
    tree = ast.parse(text)
    if "/src/" in path.as_posix() and not ast.get_docstring(tree):
        yield Finding(name, SILENT)
    lines = text.count("\n") + 1
    if lines > MAX_FILE_LINES:
        yield Finding(name, f"{lines} lines, at most {MAX_FILE_LINES}")
    for function in functions(tree):
        place = f"{name}::{function.name}"
        length = (function.end_lineno or function.lineno) - function.lineno + 1
        if length > MAX_FUNCTION_LINES:
            yield Finding(place, f"{length} lines, at most {MAX_FUNCTION_LINES}")
        if (depth := nesting(function)) > MAX_NESTING:
            yield Finding(place, f"nested {depth} deep, at most {MAX_NESTING}")
        arguments = function.args
        names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        count = len([n for n in names if n not in ("self", "cls")])
        if count > MAX_PARAMETERS and not path.is_relative_to(ROOT / "tests"):
            yield Finding(place, f"{count} parameters, at most {MAX_PARAMETERS}")


@cache
def all_findings() -> tuple[Finding, ...]:
    """Three tests ask, and to read every file takes seconds."""
    return tuple(finding for path in python_files() for finding in findings_in(path))


def test_functions_and_files_stay_small() -> None:
    unexcused = [
        f"{finding.place}: {finding.text}"
        for finding in all_findings()
        if finding.place not in EXCUSES and finding.text != SILENT
    ]
    assert not unexcused, "\n".join(unexcused)


def test_every_excuse_is_still_needed() -> None:
    found = {finding.place for finding in all_findings() if finding.text != SILENT}
    assert not set(EXCUSES) - found, "excuses without a finding"


def test_nothing_is_left_for_later() -> None:
    marks = ("TO" + "DO", "FIX" + "ME", "XX" + "X:", "HA" + "CK:")
    left = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in python_files()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if any(mark in line for mark in marks)
    ]
    assert not left, "\n".join(left)


def test_no_module_is_left_without_its_theory() -> None:
    silent = [finding.place for finding in all_findings() if finding.text == SILENT]
    assert not silent, "\n".join(silent)


def packages() -> Iterator[Path]:
    """The folders of modules in what is shipped."""
    yield from sorted({path.parent for path in python_files() if "src" in path.parts})


def modules_in(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*.py") if path.name != "__init__.py"]


def is_empty(folder: Path) -> bool:
    """There is nothing in the package but a docstring and at most one module: the package says nothing."""
    package = folder / "__init__.py"
    has_code = package.exists() and len(ast.parse(package.read_text()).body) > 1
    return not has_code and len(modules_in(folder)) < 2


def test_no_package_is_empty() -> None:
    empty = [folder.relative_to(ROOT).as_posix() for folder in packages() if is_empty(folder)]
    assert not empty, "\n".join(empty)


def test_no_folder_is_crowded() -> None:
    counts = {folder.relative_to(ROOT).as_posix(): len(modules_in(folder)) for folder in packages()}
    crowded = {name: count for name, count in counts.items() if count > MAX_MODULES}
    assert not crowded, f"at most {MAX_MODULES} modules in a folder: {crowded}"


def test_an_empty_package_is_seen(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text('"""Says nothing."""\n')
    (tmp_path / "only.py").write_text("x = 1\n")
    assert is_empty(tmp_path)

    (tmp_path / "__init__.py").write_text('"""Declares something."""\n\nNAMES = ("only",)\n')
    assert not is_empty(tmp_path)

    (tmp_path / "__init__.py").write_text("")
    (tmp_path / "other.py").write_text("x = 1\n")
    assert not is_empty(tmp_path)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("def f():\n" + "    x = 1\n" * 80, "lines, at most"),
        (
            "def f():\n    if 1:\n        if 1:\n            if 1:\n                if 1:\n                    pass\n",
            "nested",
        ),
        ("def f(a, b, c, d, e, g, h):\n    pass\n", "parameters"),
        ("class A:\n    if 1:\n        def f(self, a, b, c, d, e, g, h):\n            pass\n", "parameters"),
        (
            "def f():\n    try:\n        pass\n    except E:\n        match x:\n            case 1:\n"
            "                with y:\n                    while z:\n                        pass\n",
            "nested",
        ),
    ],
)
def test_a_breach_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, expected: str) -> None:
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    path = tmp_path / "breach.py"
    path.write_text(body)

    found = list(findings_in(path))

    assert any(expected in finding.text for finding in found)
