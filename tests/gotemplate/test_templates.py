"""Templates against the texts that Go's own text/template gave for them, and what bounds and errors add."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yurt.gotemplate import Limits, TemplateError, TemplateFunction, parse

DATA: dict[str, Any] = {
    "A": "x", "B": {"C": "deep"}, "L": ["a", "b", "c"], "M": {"k": "v", "a": 1}, "N": [[1, 2], [3]], "S": "hello",
    "E": [], "T": True, "Null": None, "F": 2.5, "I": 42,
}  # fmt: skip
CASES = json.loads((Path(__file__).parent / "as_go.json").read_text(encoding="utf-8"))


def failure(text: str, **options: Any) -> TemplateError:
    with pytest.raises(TemplateError) as caught:
        parse(text, name="t").render(DATA, **options)
    return caught.value


@pytest.mark.parametrize("case", [case for case in CASES if "text" in case], ids=lambda case: case["template"][:40])
def test_prints_what_go_prints(case: dict[str, str]) -> None:
    assert parse(case["template"]).render(DATA) == case["text"]


@pytest.mark.parametrize("case", [case for case in CASES if "refused" in case], ids=lambda case: case["template"][:40])
def test_refuses_what_go_refuses(case: dict[str, str]) -> None:
    assert failure(case["template"]).problem


def test_an_error_names_line_and_column() -> None:
    error = failure("one\n  {{ .A }} {{ index .L 9 }}")
    assert (error.line, error.column) == (2, 15)
    assert str(error) == "t:2:15: error calling index: index out of range: 9"


def test_an_unknown_function_is_refused_before_there_is_data() -> None:
    with pytest.raises(TemplateError, match='function "upper" not defined'):
        parse("{{ upper .A }}")


def test_functions_are_handed_in() -> None:
    upper = TemplateFunction(lambda text: str(text).upper(), 1, 1)
    assert parse('{{ .A | upper | printf "%s!" }}', functions={"upper": upper}).render(DATA) == "X!"


def test_a_function_that_refuses_its_argument_fails_where_it_is_called() -> None:
    template = parse("{{ whole .A }}", name="t", functions={"whole": TemplateFunction(int, 1, 1)})
    with pytest.raises(TemplateError, match="t:1:4: error calling whole: invalid literal"):
        template.render(DATA)


def test_another_exception_of_a_function_passes_through() -> None:
    def absent() -> str:
        raise LookupError("not there yet")

    with pytest.raises(LookupError):
        parse("{{ absent }}", functions={"absent": TemplateFunction(absent)}).render(DATA)


def test_other_delimiters() -> None:
    assert parse("{{ [[ .A -]]  ]", left="[[", right="]]").render(DATA) == "{{ x]"


def test_a_field_that_a_record_lacks_is_an_error_with_its_near_miss() -> None:
    error = failure("{{ .B.c }}", is_record=lambda mapping: "C" in mapping)
    assert error.problem == "can't evaluate field c: did you mean C?"


def test_and_stops_at_the_first_that_decides() -> None:
    assert parse("{{ and false (index .L 99) }}{{ or .A (index .L 99) }}").render(DATA) == "falsex"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{{ range 1000000000 }}{{ end }}", "more than 2000000 steps"),
        ('{{ define "a" }}{{ template "a" }}{{ end }}{{ template "a" }}', "nested deeper than 80"),
        ('{{ range 100 }}{{ printf "%1000000d" 1 }}{{ end }}', "steps|output"),
        ('{{ $x := "0123456789" }}{{ range 60 }}{{ $x = print $x $x }}{{ end }}', "steps|characters"),
        ("{{ if 1 }}" * 100 + "{{ end }}" * 100, "nested deeper than 60"),
        ("{{ " + "(" * 2000 + "1" + ")" * 2000 + " }}", "nested deeper than 60"),
        ("x" * 5_000_000, "longer than"),
    ],
)
def test_work_is_bounded(text: str, problem: str) -> None:
    with pytest.raises(TemplateError, match=problem):
        parse(text).render(DATA)


def test_limits_may_be_narrowed() -> None:
    assert "longer than 3 characters" in str(failure("{{ .S }}", limits=Limits(output=3)))


@given(st.text(alphabet="{}|.$:=()\"`'-/* \nabAB1 endifrange", max_size=60))
def test_any_text_is_a_template_or_refused(text: str) -> None:
    try:
        rendered = parse("{{" + text + "}}").render(DATA)
    except TemplateError as error:
        assert error.line >= 1
        assert error.column >= 1
    else:
        assert isinstance(rendered, str)


@given(st.text(max_size=40).filter(lambda text: "{{" not in text + "{"))
def test_text_outside_the_delimiters_stays(text: str) -> None:
    assert parse(text + "{{ 1 }}").render(None) == text + "1"
