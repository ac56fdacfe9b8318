"""The page about the HTTP API lists the fields of each body that a route reads."""

from __future__ import annotations

import ast

from docs.generator.http_api import Line, is_fixed, key, lines
from docs.generator.http_reading import functions, reads_of


def reads_a_body(line: Line) -> bool:
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("document", "body")
        for _, tree in functions(line.handler, set())
        for node in ast.walk(tree)
    )


def test_a_route_that_reads_a_body_says_which_fields() -> None:
    writing = [line for line in lines() if line.method != "GET" and not is_fixed(line) and reads_a_body(line)]
    assert len(writing) > 20
    assert [key(line) for line in writing if not reads_of(line.handler).body] == []
