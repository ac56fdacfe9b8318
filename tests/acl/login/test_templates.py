"""Names with variables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yurt.acl.login.templates import TEMPLATE_MAX, interpolated, lower_ascii, variables
from yurt.sdk.errors import Invalid

VALUES = {"value.team": "web", "value.a/b": "x", "value.evil": "${value.team}", "value.none": ""}


@pytest.mark.parametrize(
    ("template", "result"),
    [
        ("", ""), ("ops", "ops"), ("${value.team}", "web"), ("team-${value.team}-rw", "team-web-rw"),
        ("${ value.team }", "web"), ("${value.team}${value.team}", "webweb"), ("$${value.team}", "${value.team}"),
        ("$", "$"), ("$value", "$value"), ("a}b", "a}b"), ("${value.a/b}", "x"), ("${value.evil}", "${value.team}"),
        ("x${value.none}", "x"), ("$$${value.team}", "$${value.team}"),
    ],
)  # fmt: skip
def test_variables_are_replaced_once(template: str, result: str) -> None:
    assert interpolated(template, VALUES) == result


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("${value.other}", "unknown variable accessed: value.other"),
        ("${team}", "unknown variable accessed: team"),
        ("${value.team", "the ${ at character 1 is not closed"),
        ("ab${", "the ${ at character 3 is not closed"),
        ("${}", "is not a variable"),
        ("${upper(value.team)}", "is not a variable"),
        ("${value.team + 1}", "is not a variable"),
        ('${"text"}', "is not a variable"),
        ("${value.${value.team}}", "the ${ at character 1 is not closed"),
        ("x" * (TEMPLATE_MAX + 1), "longer than"),
    ],
)
def test_what_is_no_variable_with_a_value_is_refused(template: str, problem: str) -> None:
    with pytest.raises(Invalid) as refused:
        interpolated(template, VALUES)
    assert problem in str(refused.value)


@given(value=st.text(), before=st.text("abc-"), after=st.text("abc-"))
def test_a_value_is_taken_as_it_is(value: str, before: str, after: str) -> None:
    assert interpolated(before + "${value.v}" + after, {"value.v": value}) == before + value + after


@given(template=st.text("${}value.tm ", max_size=30))
def test_any_template_has_variables_or_is_refused(template: str) -> None:
    try:
        names = variables(template)
    except Invalid:
        return
    assert "${" not in interpolated(template, dict.fromkeys(names, "x")) or "$${" in template


def test_only_ascii_letters_are_lowered() -> None:
    assert lower_ascii("OPS-\u212a\u0130") == "ops-\u212a\u0130"
