"""Functions give what Go's libraries of the language give, and blame the same place.

`go_values.jsonl` was recorded from hashicorp/hcl 2.20.1, go-cty 1.16.3 and go-cty-yaml 1.1.0: an expression with its
value as JSON, or with line and column of its error.
"""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from yurt_jobspec.diagnostics import EvaluationError, SourceText
from yurt_jobspec.evaluator import Evaluator, NameScope
from yurt_jobspec.functions.encoding import json_text
from yurt_jobspec.syntax.parser import parse_expression
from yurt_jobspec.values import ListValue, MapValue, Null, make_set

RECORDED = [json.loads(line) for line in (Path(__file__).parent / "go_values.jsonl").read_text().splitlines()]
SCOPE = NameScope(
    {
        "ns": Null("string"),
        "nn": Null("number"),
        "nb": Null("bool"),
        "nl": Null(("list", "string")),
        "nm": Null(("map", "string")),
        "l": ListValue("string", ("a", Null("string"))),
        "set": make_set("string", ["a", "b"]),
        "m": MapValue("string", {"k": "v", "n": Null("string")}),
    }
)


def outcome(source: str) -> tuple[str, Any]:
    try:
        value = Evaluator(source).evaluate(parse_expression(SourceText("x", source)), SCOPE)
    except EvaluationError as error:
        return "error", list(SourceText("x", source).position(error.problems[0].start))
    return "value", parsed(json_text(value))


def parsed(text: str) -> Any:
    return json.loads(text, parse_float=lambda number: Decimal(number) + 0, parse_int=Decimal)


@pytest.mark.parametrize("function", sorted({row["source"].partition("(")[0] for row in RECORDED}))
def test_a_function_gives_what_was_recorded(function: str) -> None:
    rows = [row for row in RECORDED if row["source"].startswith(f"{function}(")]

    wrong = []
    for row in rows:
        kind = "value" if "value" in row else "error"
        expected = parsed(row["value"]) if kind == "value" else row["error"]
        if outcome(row["source"]) != (kind, expected):
            wrong.append((row, outcome(row["source"])))

    assert wrong == []
