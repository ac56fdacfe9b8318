"""Expressions: what each construct evaluates to, and where a failing one is blamed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yurt_jobspec import JobspecError, parse_body, parse_job, parse_job_with_findings
from yurt_jobspec.diagnostics import EvaluationError, SourceText
from yurt_jobspec.evaluator import Evaluator, NameScope
from yurt_jobspec.functions.encoding import json_text
from yurt_jobspec.syntax.parser import parse_expression

NAMES: dict[str, Any] = {
    "fruits": ("apple", "pear", "plum"),
    "limits": {"soft": 3, "hard": 7},
    "racks": ({"name": "r1", "slots": (1, 2)}, {"name": "r2", "slots": (3,)}),
    "nothing": None,
}


def evaluate(text: str) -> Any:
    return Evaluator(text).evaluate(parse_expression(SourceText("test", text)), NameScope(NAMES))


def as_json(text: str) -> str:
    return json_text(evaluate(text))


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("2 + 3 * 4 - 1", "13"),
        ("(2 + 3) * 4", "20"),
        ("-7 % 3", "-1"),
        ("10 / 4", "2.5"),
        ("0.1 + 0.2", "0.3"),
        ("2 / 3 * 3", "2"),
        ("1e3", "1000"),
        ('"7" + 1', "8"),
        ("1 < 2 && 2 <= 2 && !(3 > 4)", "true"),
        ('5 == "5"', "false"),
        ("null == nothing", "true"),
        ('limits.soft > 2 ? "big" : "small"', '"big"'),
        ('true ? 1 : "x"', '"1"'),
        ('[for f in fruits : upper(f) if f != "pear"]', '["APPLE","PLUM"]'),
        ("{for i, f in fruits : f => i}", '{"apple":0,"pear":1,"plum":2}'),
        ("{for r in racks : length(r.slots) => r.name...}", '{"1":["r2"],"2":["r1"]}'),
        ('[for k, v in limits : "${k}${v}"]', '["hard7","soft3"]'),
        ("racks[*].name", '["r1","r2"]'),
        ("racks[*].slots[0]", "[1,3]"),
        ("racks.*.slots.0", "[1,3]"),
        ("nothing[*]", "[]"),
        ('"one"[*]', '["one"]'),
        ("racks[1 - 1].name", '"r1"'),
        ('limits["hard"]', "7"),
        ('{ a = 1, "b" : 2, (fruits[0]) = 3 }', '{"a":1,"apple":3,"b":2}'),
        ("max([4, 9, 2]...)", "9"),
        ('try(limits.none, fruits[9], "last")', '"last"'),
        ("can(limits.none)", "false"),
        ('convert(["b", "a", "b"], set(string))', '["a","b"]'),
    ],
)
def test_an_expression_has_its_value(text: str, result: str) -> None:
    assert as_json(text) == result


@pytest.mark.parametrize(
    ("text", "result"),
    [
        (r'"tab\there \u00e9 \\ \""', 'tab\there é \\ "'),
        ('"$${kept} %%{kept} $ %"', "${kept} %{kept} $ %"),
        ('"${fruits[0]}s"', "apples"),
        ('"%{ for f in fruits }${f};%{ endfor }"', "apple;pear;plum;"),
        ('"%{ if false }a%{ else }b%{ endif }"', "b"),
        ('"a ${~ "b" ~} c"', "abc"),
        ("<<EOT\none\n  two\nEOT\n", "one\n  two\n"),
        ("<<-EOT\n    one\n      two\n\n    three\n    EOT\n", "one\n  two\n\nthree\n"),
        ('<<EOT\n${upper("x")} $${y}\nEOT\n', "X ${y}\n"),
        ("<<EOT\n%{ for f in fruits ~}\n- ${f}\n%{ endfor ~}\nEOT\n", "- apple\n- pear\n- plum\n"),
    ],
)
def test_a_template_gives_its_text(text: str, result: str) -> None:
    assert evaluate(text) == result


@pytest.mark.parametrize(
    "text", ["attr.kernel.name", "node.class", 'env["HOME"]', "NOMAD_PORT_http", "attr.driver.docker.0"]
)
def test_an_unknown_root_stands_for_its_own_text(text: str) -> None:
    assert evaluate(text) == "${" + text + "}"
    assert evaluate(f'"a-${{{text}}}-b"') == "a-${" + text + "}-b"


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("1 + true", 5),
        ("limits.none", 7),
        ("fruits[7]", 7),
        ('upper("a", "b")', 13),
        ('replace("a")', 12),
        ("uper(1)", 1),
        ('abs("x")', 6),
        ('{for f in fruits : "same" => f}', 21),
        ("[for x in 5 : x]", 11),
        ('"${fruits}!"', 4),
        ("true ? [1] : {}", 8),
        ("1 / 0", 1),
        ("!5", 2),
    ],
)
def test_a_failing_expression_is_blamed_at_its_place(text: str, column: int) -> None:
    with pytest.raises(EvaluationError) as caught:
        evaluate(text)
    assert SourceText("test", text).position(caught.value.problems[0].start) == (1, column)


@pytest.mark.parametrize(
    "text", ["1 +", "[1, 2", "foo(", '"open', "{ a }", "[for x y : x]", "a.", "1 2", "", "<<EOT\nx"]
)
def test_a_broken_expression_is_a_syntax_error(text: str) -> None:
    with pytest.raises(JobspecError) as caught:
        parse_expression(SourceText("test", text))
    assert caught.value.diagnostics


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**15), 10**15)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abc_-é", min_size=1, max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(JSON_VALUES)
def test_json_text_survives_decoding_and_encoding(value: Any) -> None:
    import json
    import unicodedata

    text = json.dumps(value, ensure_ascii=False)
    literal = json.dumps(unicodedata.normalize("NFC", text)).replace("${", "$${").replace("%{", "%%{")
    if any(ord(char) > 0xFFFF for char in text):
        literal = (
            json.dumps(unicodedata.normalize("NFC", text), ensure_ascii=False).replace("${", "$${").replace("%{", "%%{")
        )
    escaped = literal.replace("\\b", "\\u0008").replace("\\f", "\\u000c")
    if "\\\\u0008" in escaped or "\\\\u000c" in escaped:
        return
    assert json.loads(as_json(f"jsondecode({escaped})")) == json.loads(unicodedata.normalize("NFC", text))


@given(st.integers(-(10**30), 10**30), st.integers(-(10**30), 10**30))
def test_whole_numbers_are_exact(left: int, right: int) -> None:
    assert evaluate(f"({left}) + ({right})") == left + right
    assert evaluate(f"({left}) * ({right})") == left * right


@given(st.decimals(-(10**9), 10**9, places=6))
def test_decimals_keep_their_digits(value: Any) -> None:
    assert float(evaluate(str(value) if value >= 0 else f"-({-value})")) == float(value)


@given(st.text(max_size=60))
def test_no_text_crashes_the_parser(text: str) -> None:
    try:
        parse_job(text, filename="any.hcl")
    except JobspecError as error:
        assert error.diagnostics


def test_a_mistake_in_a_one_line_block_is_told_once_and_the_next_one_too() -> None:
    source = (
        'job "a" {\n  group "g" { count = 2, x = 1 }\n  group "h" {\n    resources { cpu = 1 memory = 2 }\n  }\n}\n'
    )
    with pytest.raises(JobspecError) as caught:
        parse_job(source, filename="a.hcl")
    assert [(each.line, each.summary) for each in caught.value.diagnostics] == [
        (2, "Invalid single-argument block definition"),
        (4, "Invalid single-argument block definition"),
    ]


def test_agent_files_may_hold_blocks_on_one_line() -> None:
    source = 'plugin "raw_exec" { config { enabled = true } }\nclient { enabled = true, options { "a" = "b" } }\n'
    assert parse_body(source, filename="a.hcl") == {
        "plugin": [{"raw_exec": [{"config": [{"enabled": True}]}]}],
        "client": [{"enabled": True, "options": [{"a": "b"}]}],
    }


def test_a_word_without_quotes_is_warned_of_with_its_place() -> None:
    source = 'job "a" {\n  group "g" {\n    task "t" {\n      driver = docker\n    }\n  }\n}\n'
    job, _, warnings = parse_job_with_findings(source, filename="a.hcl")
    assert job["TaskGroups"][0]["Tasks"][0]["Driver"] == "${docker}"
    assert [(each.line, each.column, each.hint) for each in warnings] == [
        (4, 16, 'Write "docker" if the word itself is meant.')
    ]
