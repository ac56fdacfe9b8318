"""Third-party expressions and templates, next to the checkout: each has the value, the type or the errors it should.

A third kind of answer is not run: cases with a variable whose value is unknown. A job file is read when everything it
refers to is known, or is text that the client fills in, so the evaluator has no unknown values; those cases ask what
is known about a value before it exists, which nothing here could use. They are distinguished by their variables alone.
"""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from yurt_jobspec.diagnostics import EvaluationError, JobspecError, OffsetDiagnostic, SourceText
from yurt_jobspec.evaluator import Evaluator, NameScope
from yurt_jobspec.functions.registry import FunctionError, FunctionSpec, Parameter, lookup
from yurt_jobspec.syntax.expressions import ExpressionParser, SyntaxProblem
from yurt_jobspec.syntax.lexer import tokenize_template
from yurt_jobspec.syntax.parser import parse_expression
from yurt_jobspec.syntax.templates import parse_template
from yurt_jobspec.values import ListValue, MapValue, Null, equal, make_set, type_of

CASES = Path(__file__).resolve().parents[3] / "shared" / "corpus" / "hcl-expressions" / "cases.jsonl"

pytestmark = pytest.mark.skipif(not CASES.exists(), reason="no corpus of expressions in ../shared next to the checkout")

ALL = [json.loads(line) for line in CASES.read_text().splitlines()] if CASES.exists() else []


def is_known(case: dict[str, Any]) -> bool:
    return not any(variable.get("unknown") for variable in case["variables"].values())


def type_from(spelled: Any) -> Any:
    if isinstance(spelled, str):
        return "any" if spelled == "dynamic" else spelled
    kind, inner = spelled
    if kind == "tuple":
        return kind, tuple(type_from(item) for item in inner)
    if kind == "object":
        return kind, tuple(sorted((name, type_from(item)) for name, item in inner.items()))
    return kind, type_from(inner)


def value_from(spelled: Any, value: Any) -> Any:
    if value is None:
        return None if spelled == "dynamic" else Null(type_from(spelled))
    if isinstance(spelled, str):
        return Decimal(str(value)) if isinstance(value, float) else value
    kind, inner = spelled
    match kind:
        case "tuple":
            return tuple(value_from(one, item) for one, item in zip(inner, value, strict=True))
        case "object":
            return {name: value_from(inner[name], value[name]) for name in inner}
        case "list":
            return ListValue(type_from(inner), tuple(value_from(inner, item) for item in value))
        case "set":
            return make_set(type_from(inner), [value_from(inner, item) for item in value])
    return MapValue(type_from(inner), {name: value_from(inner, item) for name, item in value.items()})


def misbehave(args: list[Any]) -> Any:
    raise FunctionError("it misbehaves")


def blame_second(args: list[Any]) -> Any:
    raise FunctionError("it is bad", 1)


upper = lookup("upper")
assert upper is not None
ANYTHING = Parameter("x", "any", True)
FUNCTIONS = {
    "foo::upper": upper,
    "negate": FunctionSpec((Parameter("n", "number"),), None, 1, lambda args: -args[0]),
    "misbehave": FunctionSpec((), ANYTHING, 0, misbehave),
    "argerrorexpand": FunctionSpec((), ANYTHING, 0, blame_second),
}


def outcome(case: dict[str, Any]) -> tuple[Any, list[tuple[int, int]]]:
    """The value, and where the errors begin."""
    text = case["input"]
    source = SourceText("case", text)
    scope = NameScope({name: value_from(item["type"], item["value"]) for name, item in case["variables"].items()})
    problems: list[OffsetDiagnostic] = []
    try:
        if case["kind"] == "template":
            tokens = tokenize_template(text)
            parser = ExpressionParser(text, tokens)
            problems = parser.problems
            node = parse_template(parser)
            problems += tokens.problems
        else:
            node = parse_expression(source)
        value = None if problems else Evaluator(text, functions=FUNCTIONS).evaluate(node, scope)
    except SyntaxProblem as error:
        problems.append(error.problem)
        value = None
    except EvaluationError as error:
        return None, [source.position(problem.start) for problem in error.problems]
    except JobspecError as error:
        return None, [(item.line or 0, item.column or 0) for item in error.diagnostics]
    return value, [source.position(problem.start) for problem in problems]


@pytest.mark.parametrize("case", [case for case in ALL if is_known(case)], ids=lambda case: case["id"])
def test_an_expression_of_the_corpus(case: dict[str, Any]) -> None:
    value, places = outcome(case)

    expected = {(item["range"][0], item["range"][1]) for item in case["diagnostics"]}
    assert set(places) == expected
    if not expected:
        want = case["want"]
        assert type_of(value) == type_from(want["type"])
        assert equal(value, value_from(want["type"], want["value"]))


def test_only_cases_with_unknown_values_are_not_run() -> None:
    left_out = [case for case in ALL if not is_known(case)]

    assert len(left_out) < len(ALL) / 4
    for case in left_out:
        names = [name for name, variable in case["variables"].items() if variable.get("unknown")]
        assert any(name in case["input"] for name in names), case["id"]
