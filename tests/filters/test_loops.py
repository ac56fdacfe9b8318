"""`any` and `all` over lists and maps, and expressions whose fields are known."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yurt.filters import compile_filter
from yurt.sdk.errors import Invalid

ROW: dict[str, Any] = {
    "list": {"groups": ["dev", "ops"], "none": []},
    "value": {"team": "web", "org": "acme"},
    "any": "thing",
}


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        ("any list.groups as g { g == ops }", True),
        ("any list.groups as g { g == admins }", False),
        ("all list.groups as g { g matches `^(dev|ops)$` }", True),
        ("all list.groups as g { g == dev }", False),
        ("any list.groups as i, g { i == 1 and g == ops }", True),
        ("any list.groups as i, g { i == 0 and g == ops }", False),
        ("any list.groups as _, g { g == dev }", True),
        ("any value as name { name == team }", True),
        ("any value as name, text { name == org and text == acme }", True),
        ("all value as _, text { text is not empty }", True),
        ("not any list.groups as g { g == admins }", True),
        ("any list.groups as g{g==dev}and value.team==web", True),
        ("any list.groups as g { value.team == web and ops in list.groups and g == ops }", True),
        ("any list.groups as a { any list.groups as b { a != b } }", True),
        ("any list.none as g { g == dev }", False),
        ("all list.none as g { g == dev }", True),
        ("any list.missing as g { g != dev }", False),
        ("all list.missing as g { g != dev }", False),
        ("any == thing", True),
    ],
)
def test_a_loop_holds_for_any_or_for_all_items(expression: str, holds: bool) -> None:
    assert compile_filter(expression)(ROW) is holds


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("any list.groups as { g == a }", "expected a selector or a value"),
        ("any list.groups as g g == a", 'expected "{"'),
        ("any list.groups as g { g == a", 'the expression ends where "}" is expected'),
        ("any list.groups as g { }", "expected a selector or a value"),
        ("any list.groups as a.b { a == b }", "'a.b' is not a name"),
        ('any list.groups as "g" { g == a }', "is not a name"),
        ("any list.groups as a, b, c { a == b }", 'expected "{"'),
        ("any a as b { " * 40 + "b == c" + " }" * 40, "nested deeper than 32 levels"),
    ],
)
def test_a_loop_that_cannot_be_read_is_refused_with_its_place(expression: str, problem: str) -> None:
    with pytest.raises(Invalid, match="failed to read filter expression") as refused:
        compile_filter(expression)
    assert problem in str(refused.value)


def test_a_loop_over_a_text_is_an_error() -> None:
    with pytest.raises(Invalid, match="value/team is not a list or a map"):
        compile_filter("any value.team as t { t == w }")(ROW)


@pytest.mark.parametrize(
    "expression",
    [
        "all list as a { all list as b { a != x and b != x } }",
        "all list as a { 0 in list }",
        "all list as a { list not contains x }",
    ],
)
def test_the_work_of_loops_is_bounded(expression: str) -> None:
    row = {"list": [str(number) for number in range(1000)]}
    with pytest.raises(Invalid, match="regular expressions and loops take too much work"):
        compile_filter(expression)(row)


@pytest.mark.parametrize("name", ["groups", "Value", "g"])
def test_a_selector_begins_with_a_known_field(name: str) -> None:
    expression = f"any list.groups as g {{ g == a }} or {name} == a"
    with pytest.raises(Invalid, match=f"'{name}' is not one of list, value"):
        compile_filter(expression, fields={"list", "value"})


def test_the_name_of_a_loop_is_known_inside_it() -> None:
    assert compile_filter("any list.groups as g { g == dev }", fields={"list"})(ROW)


@given(
    items=st.lists(st.text("abc", min_size=1, max_size=2), max_size=6), expected=st.text("abc", min_size=1, max_size=2)
)
def test_loops_agree_with_python(items: list[str], expected: str) -> None:
    row = {"list": items}
    assert compile_filter(f"any list as i {{ i == {expected} }}")(row) == any(each == expected for each in items)
    assert compile_filter(f"all list as i {{ i != {expected} }}")(row) == all(each != expected for each in items)
