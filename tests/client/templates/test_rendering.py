"""The functions of templates, the process that renders them, and what a hostile template gets."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from yurt.client.templates.functions import data
from yurt.client.templates.functions.cluster import Asking
from yurt.client.templates.functions.table import SPRIG_ABSENT, table
from yurt.client.templates.render_pass import render
from yurt.client.templates.render_protocol import Question, QuestionAnswer, RenderRequest
from yurt.client.templates.renderer import Renderer
from yurt.client.templates.settings import DENIED
from yurt.sdk.templates import PRODUCT_FUNCTIONS
from yurt.testing.agent import pid_is_alive
from yurt.testing.fakes import eventually

NOW = 1_700_000_000_123_456_789


def request(text: str, **changes: Any) -> RenderRequest:
    return RenderRequest(name="t", text=text.encode(), env={"A": "b", "EMPTY": ""}, now=NOW, denied=DENIED, **changes)


def shown(text: str, **changes: Any) -> str:
    found = render(request(text, **changes))
    assert not found.error and not found.missing, found
    return found.output.decode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{{ env "A" }}{{ env "NOPE" }}', "b"),
        ('{{ envOrDefault "EMPTY" "x" }}', "x"),
        ('{{ mustEnv "A" }}', "b"),
        ("{{ timestamp }}", "2023-11-14T22:13:20Z"),
        ('{{ timestamp "unix" }} {{ timestamp "02/Jan/06 3:04PM .000 -0700 MST" }}',
         "1700000000 14/Nov/23 10:13PM .123 +0000 UTC"),
        ("{{ 5 | subtract 2 }} {{ add 1 2 }} {{ multiply 2 3.5 }} {{ divide 2 7 }} {{ modulo 2 7 }}", "3 3 7 3 1"),
        ("{{ divide 2 -7 }} {{ -7 | modulo 2 }} {{ minimum 2 3 }} {{ maximum 2 3 }}", "-3 -1 2 3"),
        ('{{ "a-b" | split "-" | join "+" }} {{ "a:1,b:2" | splitToMap "," ":" | toJSON }}', 'a+b {"a":"1","b":"2"}'),
        ('{{ "héllo" | toUpper }} {{ "hello world" | toTitle }} {{ "  x " | trimSpace }}', "HÉLLO Hello World x"),
        ('{{ "ab" | base64Encode }} {{ "YWI=" | base64Decode }} {{ "aGk" | base64URLDecode | len }}', "YWI= ab 2"),
        ('{{ "aaa" | regexReplaceAll "a(a)" "<$1>" }} {{ "x1" | regexMatch "^[[:alpha:]]\\\\d$" }}', "<a>a true"),
        ('{{ "a.b.c" | replaceAll "." "/" }} {{ "a/b" | trimPrefix "a/" }} {{ "a/b" | trimSuffix "/b" }}', "a/b/c b a"),
        ("{{ range $i := loop 2 5 }}{{ $i }}{{ end }}", "234"),
        ('{{ "a\\n\\nb" | indent 2 }}', "  a\n\n  b"),
        ('{{ "x" | sha256Hex | len }} {{ "x" | md5sum | len }} {{ hmacSHA256Hex "m" "k" | len }}', "64 32 64"),
        ('{{ `{"a":{"b":[1,2.5,null,true]}}` | parseJSON | toJSON }}', '{"a":{"b":[1,2.5,null,true]}}'),
        ('{{ `a: [1, x]` | parseYAML | toYAML }}', "a:\n    - 1\n    - x"),
        ('{{ `{"b":{"c":1},"a":"x","d":[{"e":true}]}` | parseJSON | toTOML }}',
         'a = "x"\n\n[b]\nc = 1\n\n[[d]]\ne = true'),
        ('{{ "<&>" | toJSON }} {{ "<&>" | toUnescapedJSON }}', '"\\u003c\\u0026\\u003e" "<&>"'),
        ('{{ in (parseJSON "[1,2]") 2 }} {{ contains "a" (split "," "a,b") }}', "true true"),
        ('{{ containsAny (split "," "x,a") (split "," "a,b") }}{{ containsAll (split "," "x,a") (split "," "a,b") }}',
         "truefalse"),
        ('{{ parseBool "true" }} {{ parseInt "7" }} {{ parseFloat "1.5" }} {{ parseUint "3" }}', "true 7 1.5 3"),
        ('{{ mergeMap (parseJSON `{"a":1}`) (parseJSON `{"a":2,"b":3}`) | toJSON }}', '{"a":1,"b":3}'),
        ('{{ mergeMapWithOverride (parseJSON `{"a":1}`) (parseJSON `{"a":2}`) | toJSON }}', '{"a":2}'),
        ('{{ explodeMap (parseJSON `{"a/b":"1","a/c":"2"}`) | toJSON }}', '{"a":{"b":"1","c":"2"}}'),
        ('{{ scratch.Set "n" 1 }}{{ scratch.SetX "n" 2 }}{{ scratch.MapSet "m" "k" "v" }}{{ scratch.Get "n" }}'
         '{{ scratch.MapValues "m" }}{{ scratch.Key "z" }}', "1[v]false"),
        ('{{ sprig_list 1 2 3 | sprig_join "-" }} {{ sprig_default "d" "" }} {{ sprig_ternary "y" "n" true }}',
         "1-2-3 d y"),
        ('{{ sprig_dict "a" 1 "b" 2 | sprig_keys }} {{ sprig_until 3 }} {{ sprig_trunc -2 "abc" }}',
         "[a b] [0 1 2] bc"),
        ('{{ sprig_date "2006-01-02" sprig_now }} {{ sprig_quote "a" }} {{ sprig_nindent 2 "x" }}',
         '2023-11-14 "a" \n  x'),
        ('{{ sprig_round 2.345 2 }} {{ sprig_snakecase "fooBar" }} {{ sprig_camelcase "foo_bar" }}',
         "2.35 foo_bar FooBar"),
        ('{{ "x" | sprig_b64enc | sprig_b64dec }} {{ sprig_regexFind "b+" "abbc" }} {{ sprig_env "A" }}', "x bb b"),
        ('{{ sprig_dig "a" "b" "none" (parseJSON `{"a":{}}`) }} {{ sprig_coalesce "" 0 "z" }}', "none z"),
    ],
)  # fmt: skip
def test_functions(text: str, expected: str) -> None:
    assert shown(text) == expected


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('{{ plugin "x" }}', "disabled by the operator"),
        ('{{ key "x" }}', "not available: no Consul provider"),
        ('{{ secret "x" }}', "not available: no Vault provider"),
        ("{{ sprig_genPrivateKey `rsa` }}", "not available in this version"),
        ('{{ mustEnv "NOPE" }}', "NOPE is not set"),
        ("{{ divide 0 1 }}", "division by zero"),
        ('{{ parseJSON "{" }}', "not valid JSON"),
        ('{{ parseYAML "a: &b [" }}', "not supported YAML"),
        ('{{ regexMatch "(?=a)" "a" }}', "look-around"),
        ('{{ regexMatch "(" "a" }}', "error parsing regexp"),
        ('{{ "x" | base64Decode }}', "not valid base64"),
        ("{{ sprig_repeat 100000000 `xx` }}", "more than 1000000"),
        ("{{ loop 100000000 }}", "more than 1000000"),
        ("{{ sprig_fail `so` }}", "so"),
        ("{{ nomadVar `` }}", "wants a path"),
        ("{{ sprig_trunc 1 }}", "wrong number of args for sprig_trunc: want 2 got 1"),
        ("{{ range loop 1000000 }}{{ range loop 1000 }}{{ end }}{{ end }}", "steps"),
        ("{{ if }}", "missing value"),
    ],
)
def test_what_cannot_be_is_told_with_its_place(text: str, word: str) -> None:
    found = render(request(text))
    assert word in found.error and found.error.startswith("t:1:")


def test_every_function_that_consul_template_and_sprig_have_is_known() -> None:
    known = table(request(""), Asking({}, "default"))
    assert all(f"sprig_{name}" in known for name in SPRIG_ABSENT)
    assert all(name in known for names in PRODUCT_FUNCTIONS.values() for name in names)
    assert len(known) > 230


def test_addresses_of_the_node() -> None:
    known = {"eth0": ("10.1.2.3", "fd00::1"), "lo": ("127.0.0.1",), "wan": ("8.8.8.8", "192.168.0.9")}
    text = (
        "{{ sockaddr `GetPrivateIP` }} {{ sockaddr `GetPrivateIPs` }} {{ sockaddr `GetPublicIP` }} "
        '{{ sockaddr `GetInterfaceIP "eth0"` }} {{ sockaddr `GetInterfaceIPs none` }}'
    )
    assert shown(text, addresses=known) == "10.1.2.3 10.1.2.3 192.168.0.9 8.8.8.8 10.1.2.3 "
    for bad in ("GetAllInterfaces | sort", "", '"'):
        assert "sockaddr" in render(request(f"{{{{ sockaddr `{bad}` }}}}")).error


VARIABLE = Question(kind="variable", name="app/db", namespace="default")
DB = {"Path": "app/db", "Namespace": "default", "Items": {"user": "anna", "Keys": "k"}, "ModifyIndex": 7}


def test_items_of_a_variable_and_what_is_known_of_it() -> None:
    text = (
        '{{ with nomadVar "app/db" }}{{ .user }} {{ .user.Key }} {{ index . "Keys" }} {{ .Metadata.ModifyIndex }}'
        "{{ range .Tuples }} {{ .Key }}={{ .Value }}{{ end }} {{ .user | toJSON }} {{ . | toJSON }}{{ end }}"
    )
    expected = 'anna user k 7 Keys=k user=anna "anna" {"Keys":"k","user":"anna"}'
    assert shown(text, answers=((VARIABLE, QuestionAnswer(data=DB)),)) == expected


def test_a_missing_variable_holds_the_text_back_and_an_asked_one_does_not() -> None:
    found = render(request('{{ (nomadVar "app/db@ops").user }}{{ nomadVarExists "app/x" }}'))
    assert [question.shown for question in found.missing] == [
        "nomad.var.block(app/db@ops)", "nomad.var.block(app/x@default)",
    ]  # fmt: skip
    absent = QuestionAnswer(exists=False)
    known = ((Question(kind="variable", name="app/x", namespace="default"), absent),)
    assert shown('{{ nomadVarExists "app/x" }}', answers=known) == "false"
    assert render(request('{{ nomadVar "app/x" }}', answers=known)).missing


def test_lists_of_variables_and_services() -> None:
    listed = Question(kind="variables", name="app", namespace="default")
    service = Question(kind="service", name="db", namespace="default")
    one = {"ID": "1", "ServiceName": "db", "NodeID": "n", "Datacenter": "dc1", "Tags": ["a"], "JobID": "j",
           "AllocID": "x", "Address": "::1", "Port": 1}  # fmt: skip
    answers = (
        (listed, QuestionAnswer(data=[DB])),
        (service, QuestionAnswer(data=[one, one | {"ID": "2", "Port": 2, "Tags": None}])),
    )
    text = (
        '{{ range nomadVarList "app" }}{{ .Path }} {{ . }}{{ end }} {{ range nomadService "db" }}'
        "{{ .Name }}:{{ .Port }} "
        '{{ if .Tags.Contains "a" }}a{{ end }}{{ end }} {{ len (nomadService 1 "key" "db") }}'
        '{{ range $tag, $some := nomadService "db" | byTag }} {{ $tag }}{{ len $some }}{{ end }}'
    )
    assert shown(text, answers=answers) == "app/db app/db db:1 adb:2  1 a1"
    empty = ((listed, QuestionAnswer(data=[])),)
    assert shown('{{ nomadVarList "app" }}', answers=empty) == "[]"
    assert render(request('{{ nomadVarListSafe "app" }}', answers=empty)).missing == (listed,)


def test_a_missing_key_is_an_error_where_the_job_wants_it() -> None:
    text, answers = '{{ with nomadVar "app/db" }}{{ .pass }}{{ end }}', ((VARIABLE, QuestionAnswer(data=DB)),)
    assert shown(text, answers=answers) == "<no value>"
    assert "pass" in render(request(text, answers=answers, is_missing_key_error=True)).error


plain_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(st.characters(codec="utf-8"), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(plain_values)
def test_json_reads_back_as_it_was(value: Any) -> None:
    assert data.parse_json(data.to_json(value) or "null") == value


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.from_regex(r"[a-z]{1,4}", fullmatch=True), plain_values, min_size=1, max_size=3))
@example(value={"a": {"<<": "<<"}})
@example(value={"a": "\x7f\x80\u200b\U000e0001\U0001f600"})
def test_yaml_reads_back_as_it_was(value: Any) -> None:
    assert data.parse_yaml(data.to_yaml(value)) == value


@pytest.fixture
async def renderer() -> AsyncIterator[Renderer]:
    made = Renderer(limit_s=5.0)  # the start of its process counts, on a machine that may have much else to do
    yield made
    await made.close()


async def test_a_pattern_that_never_ends_costs_its_process_and_the_next_template_is_rendered(
    renderer: Renderer,
) -> None:
    assert (await renderer.render(request("one"))).output == b"one"
    first = renderer.pid
    bad = await renderer.render(request('{{ regexMatch "(a+)+$" "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab" }}'))
    assert "longer than 5 s" in bad.error
    assert (await renderer.render(request("two"))).output == b"two"
    assert renderer.pid not in (0, first)


async def test_bytes_that_are_no_text_pass_through(renderer: Renderer) -> None:
    question = Question(kind="file", name="local/x")
    asked = request("{{ file `local/x` }}", answers=((question, QuestionAnswer(data=b"\xff\x00a")),))
    assert (await renderer.render(asked)).output == b"\xff\x00a"


async def test_a_process_that_is_idle_leaves_and_another_one_comes() -> None:
    renderer = Renderer(idle_s=0.01)
    await renderer.render(request("one"))
    first = renderer.pid
    assert first
    await eventually(lambda: not renderer.pid)
    assert (await renderer.render(request("two"))).output == b"two"
    assert renderer.pid != first and not pid_is_alive(first)
    await renderer.close()
    assert "shutting down" in (await renderer.render(request("three"))).error


async def test_a_process_that_somebody_killed_fails_no_template(renderer: Renderer) -> None:
    await renderer.render(request("one"))
    os.kill(renderer.pid, signal.SIGKILL)
    assert (await renderer.render(request("two"))).output == b"two"


async def test_a_template_that_takes_too_much_memory_is_told(renderer: Renderer) -> None:
    grow = "{{ range loop 100000 }}{{ $x = sprig_append $x (print $x) }}{{ end }}"
    text = "{{ $x := sprig_list (sprig_repeat 900000 `x`) }}" + grow
    assert (await renderer.render(request(text))).error
    assert (await renderer.render(request("after"))).output == b"after"
