"""What lint says of a policy that is right in the language."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yurt.access import Scope
from yurt.access.needs import Capability
from yurt.acl import AuthenticationLevel, CompiledPolicies, PolicyError, Rights, parse_policy
from yurt.acl.globs import Labels
from yurt.acl.lint import Names, lint
from yurt.http.route_table import ROUTES


def told(text: str, names: Names | None = None) -> list[str]:
    return [f"{each.line}:{each.column} {each.code} {each.text}" for each in lint(text, names=names)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        'namespace "prod" { policy = "write" }',
        'namespace "*" { policy = "deny" }\nnamespace "prod" { policy = "read" }',
        'namespace "a-*" { policy = "read" }\nnamespace "*-c" { policy = "write" }',
        'namespace "a" { policy = "read" capabilities = ["submit-job"] }',
        'namespace "a" { policy = "scale" capabilities = ["read-logs"] }',
        'namespace "a" {\n variables {\n path "app/*" { capabilities = ["read", "write"] }\n }\n}',
        'operator { policy = "read" capabilities = ["snapshot-save"] }\nplugin { policy = "list" }',
        'node_pool "gpu-*" { policy = "write" }\nhost_volume "data" { capabilities = ["mount-readonly"] }',
    ],
)
def test_a_good_policy_has_no_finding(text: str) -> None:
    assert told(text) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            'namespace "a" {\n policy = "read"\n}\nnamespace "a" {\n capabilities = ["deny"]\n}',
            ['2:2 never-matches "read" never counts: line 5 denies everything here'],
        ),
        (
            'namespace "a" {\n variables {\n path "x" { capabilities = ["deny", "read"] }\n }\n}',
            ['3:37 never-matches "read" never counts: line 3 denies everything here'],
        ),
        (
            'namespace "*" { policy = "read" }\nnamespace "**" { policy = "write" }',
            ['1:11 never-matches namespace "*" never decides: namespace "**" (line 2) matches the same names'],
        ),
        (
            'namespace "*" { policy = "write" }\nnamespace "prod" {\n variables {\n path "a" { capabilities = ["read"] '
            "}\n }\n}",
            ['2:11 never-matches namespace "prod" grants nothing here, and hides namespace "*" (line 1) for its names'],
        ),
        ('namespace "prod" { }', ['1:11 never-matches namespace "prod" grants nothing and denies nothing']),
        (
            'node { policy = "scale" }\nplugin { policy = "write" }\nsentinel { policy = "read" }',
            [
                '1:8 never-matches level "scale" grants nothing in a node block',
                '2:10 never-matches level "write" grants nothing on plugins, not even what "read" grants',
                "3:12 never-matches sentinel has no effect: sentinel policies are Nomad Enterprise's",
            ],
        ),
        (
            'namespace "a" {\n capabilities = ["read-job", "sentinel-override"]\n}',
            [
                '2:30 never-matches "sentinel-override" has no effect: sentinel policies are Nomad Enterprise\'s'
            ],
        ),
        (
            'namespace "a" {\n variables {\n path "app.db" { capabilities = ["read"] }\n }\n}',
            [
                '3:7 never-matches no variable can have the path "app.db": a path holds letters, digits, "-", "_", "~" '
                'and "/"'
            ],
        ),
        (
            'namespace "a" {\n policy = "read"\n capabilities = ["read-job", "submit-job", "register-job"]\n}',
            [
                '3:18 redundant "read-job" says nothing new: level "read" in line 2 includes it',
                '3:44 redundant "register-job" says nothing new: "submit-job" in line 3 includes it',
            ],
        ),
        (
            'namespace "a" {\n variables {\n path "x" { capabilities = ["list", "read", "read"] }\n }\n}',
            [
                '3:29 redundant "list" says nothing new: "read" in line 3 includes it',
                '3:45 redundant "read" says nothing new: "read" in line 3 includes it',
            ],
        ),
        (
            'namespace "a" { policy = "write" }\nnamespace "a" { policy = "read" }',
            ['2:17 redundant level "read" says nothing new: level "write" in line 1 includes it'],
        ),
        (
            'operator {\n policy = "write"\n capabilities = ["keyring-read"]\n}',
            ['3:18 redundant "keyring-read" says nothing new: level "write" in line 2 includes it'],
        ),
    ],
)  # fmt: skip
def test_a_finding_says_where_and_why(text: str, found: list[str]) -> None:
    assert told(text) == found


def test_names_that_nobody_has_are_told_with_what_was_probably_meant() -> None:
    text = (
        'namespace "porduction" { policy = "read" }\nnamespace "team-*" { policy = "read" }\n'
        'node_pool "gpu" { policy = "read" }\nhost_volume "data" { policy = "read" }\nnamespace "*" { policy = "deny" }'
    )
    names = Names(namespaces=["default", "production"], node_pools=["default", "gpu"], host_volumes=[])
    found = lint(text, names=names)
    assert [(each.line, each.text, each.hint) for each in found] == [
        (1, 'there is no namespace "porduction" now', 'Did you mean "production"?'),
        (2, 'no namespace matches "team-*" now', ""),
        (4, 'there is no host volume "data" now', ""),
    ]
    assert told(text) == []


def test_a_text_that_is_no_policy_is_an_error_with_its_place() -> None:
    with pytest.raises(PolicyError) as caught:
        lint('namespace "a" { policy = "raed" }', filename="ops.hcl")
    assert str(caught.value).startswith("ops.hcl:1:26: ")


GLOBS = st.lists(st.text("ab*", min_size=1, max_size=4), min_size=1, max_size=5, unique=True)
NAMES = st.lists(st.text("abc", min_size=1, max_size=6), max_size=30)


@given(GLOBS, NAMES)
def test_a_label_that_never_decides_decides_about_no_name(labels: list[str], names: list[str]) -> None:
    text = "\n".join(f'namespace "{label}" {{ policy = "read" }}' for label in labels)
    hidden = {labels[each.line - 1] for each in lint(text) if "never decides" in each.text}
    table = Labels({label: label for label in labels})
    for name in (*names, *(label.replace("*", filler) for label in labels for filler in ("", "c", "ca"))):
        assert table.find(name) not in hidden


WORDS = st.lists(st.sampled_from(sorted(Capability)), min_size=1, max_size=5)


@given(WORDS, st.sampled_from(["", "read", "scale", "write"]))
def test_what_is_redundant_can_be_left_out(words: list[str], level: str) -> None:
    head = f'policy = "{level}"\n' if level else "\n"
    text = f'namespace "a" {{\n{head}' + "\n".join(("capabilities = [", *(f'"{word}",' for word in words), "]\n}"))
    redundant = [each for each in lint(text) if each.code == "redundant"]
    lines = text.splitlines()
    kept = [line for number, line in enumerate(lines, 1) if number not in {each.line for each in redundant}]
    before, after = rights(text), rights("\n".join(kept))
    for need in {route.needs for route in ROUTES}:
        assert before.allows(need, Scope(namespace="a")) is after.allows(need, Scope(namespace="a")), need


def rights(text: str) -> Rights:
    return Rights(AuthenticationLevel.KNOWN, CompiledPolicies([parse_policy("p", text)]))
