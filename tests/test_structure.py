"""Bounds of classes, import cycles, and parts that are complete once they are constructed (ADR 0020)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from bench.structure import Code, classes, cycles, decisions_by_text, importers, late_parts, layers

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


def test_modules_do_not_import_each_other(code: Code) -> None:
    shipped = {name: of for name, of in code.imports.items() if not name.startswith("yurt.testing")}
    assert cycles(shipped) == []


def test_parts_are_complete_after_their_construction(code: Code) -> None:
    late = [f"{code.name(path)}:{line}: {text}" for path, tree in code.trees.items() for line, text in late_parts(tree)]
    assert not late, "pass it to the constructor:\n" + "\n".join(late)


def test_only_the_composition_root_holds_the_server(code: Code) -> None:
    assert importers(code, "yurt.server.server") == [COMPOSITION_ROOT]


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
