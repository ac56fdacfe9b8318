"""The policy language: both of its forms, all mistakes with their places, and what was probably meant."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yurt.access.needs import Capability, NodePoolCapability, VariableCapability
from yurt.acl import PolicyError, parse_policy
from yurt.acl.parsing import RULES_CHARACTERS_MAX
from yurt.acl.policy import Policy


def problems(text: str) -> list[str]:
    with pytest.raises(PolicyError) as caught:
        parse_policy("p", text)
    return str(caught.value).split("\n")


def spoken(policy: Policy) -> object:
    """What a policy says, without places."""
    return (
        [(each.label, set(each.granted)) for each in (*policy.namespaces, *policy.node_pools, *policy.host_volumes)],
        [(each.namespace, each.path, set(each.granted)) for each in policy.variables],
        [(each.area, each.level) for each in policy.levels],
        [set(each) for each in policy.operator],
    )


NATIVE = """
# Comments of all kinds.
namespace "a" { policy = "read" }   // on one line
namespace "b-*" {
  policy       = "scale"
  capabilities = ["submit-job", "read-logs",]
  variables {
    path "app/*" { capabilities = ["read"] }
    path "nomad/jobs" { capabilities = ["write", "destroy"] }
  }
  variables { path "x" { capabilities = ["deny", "read"] } }
}
/* and */
node_pool "gpu_*" { policy = "write" }
host_volume "data" { capabilities = ["mount-readonly"] }
node { policy = "read" }
agent = { policy = "write" }
operator { capabilities = ["snapshot-save"] }
quota { policy = "read" }
plugin { policy = "list" }
sentinel { policy = "write" }
"""
JSON = {
    "namespace": {
        "a": {"policy": "read"},
        "b-*": {
            "policy": "scale",
            "capabilities": ["submit-job", "read-logs"],
            "variables": [
                {"path": {"app/*": {"capabilities": ["read"]}, "nomad/jobs": {"capabilities": ["write", "destroy"]}}},
                {"path": {"x": {"capabilities": ["deny", "read"]}}},
            ],
        },
    },
    "node_pool": {"gpu_*": {"policy": "write"}},
    "host_volume": [{"data": {"capabilities": ["mount-readonly"]}}],
    "node": {"policy": "read"},
    "agent": [{"policy": "write"}],
    "operator": {"capabilities": ["snapshot-save"]},
    "quota": {"policy": "read"},
    "plugin": {"policy": "list"},
    "sentinel": {"policy": "write"},
}


def test_json_says_the_same_as_native_syntax() -> None:
    assert spoken(parse_policy("p", NATIVE)) == spoken(parse_policy("p", json.dumps(JSON)))


def test_a_policy_says_what_its_blocks_and_the_short_hands_say() -> None:
    policy = parse_policy("p", NATIVE)
    by_label = {each.label: set(each.granted) for each in policy.namespaces}
    assert by_label["b-*"] >= {Capability.SCALE_JOB, Capability.SUBMIT_JOB, Capability.READ_LOGS}
    assert Capability.LIST_JOBS not in by_label["b-*"]
    assert [set(each.granted) for each in policy.node_pools] == [set(NodePoolCapability)]
    assert [set(each.granted) for each in policy.variables] == [
        {VariableCapability.READ, VariableCapability.LIST},
        {VariableCapability.WRITE, VariableCapability.DESTROY},
        {"deny"},
    ]


def test_a_namespace_of_variables_alone_is_read_from_json() -> None:
    text = json.dumps({"namespace": {"a": {"variables": {"path": {"x": {"capabilities": ["read"]}}}}}})
    assert [(each.namespace, each.path) for each in parse_policy("p", text).variables] == [("a", "x")]


def test_namespaces_in_a_list_are_read_from_json() -> None:
    text = json.dumps({"namespace": [{"a": {"policy": "read"}}, {"b": [{"policy": "write"}, {"policy": "deny"}]}]})
    assert [each.label for each in parse_policy("p", text).namespaces] == ["a", "b", "b"]


def test_an_empty_text_is_an_empty_policy_and_a_text_without_rules_is_none() -> None:
    assert parse_policy("p", "") == Policy("p")
    for text in (" ", "# nothing\n", "{}"):
        assert problems(text)[0].startswith("rules:1:1: Invalid policy: it has no rules")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('namespace "d" { policy = "raed" }', 'rules:1:26: Invalid namespace policy: "raed" is not a valid level; '
         'write "deny" or "read" or "write" or "scale". Did you mean "read"?'),
        ('namespace "d" { capabilities = ["read-jb"] }', 'rules:1:33: Invalid namespace capability: "read-jb" is not a '
         'capability of this block. Did you mean "read-job"?'),
        ('namespace "d" { capabilities = ["write"] }', '"write" is a level: policy = "write".'),
        ('namespace "d" { capabilities = "read-job" }', "Invalid namespace capability: write a list"),
        ('namespace "d" { capabilites = ["deny"] }', 'Unknown name in a policy: "capabilites" is not expected here. '
         'Did you mean "capabilities"?'),
        ('namespace "d/e" { policy = "read" }', "rules:1:11: Invalid namespace name"),
        ('namespace { policy = "read" }', "Invalid namespace name: write a label"),
        ('namespace "d" "e" { policy = "read" }', "Unknown name in a policy"),
        ('namespace "d" { variables { } }', "Invalid variable policy: no variable paths in namespace d"),
        ('namespace "d" { variables { path "" { capabilities = ["read"] } } }', "Invalid missing variable path"),
        ('namespace "d" { variables { path { capabilities = ["read"] } } }', "Invalid missing variable path"),
        ('namespace "d" { variables { path "/a" { capabilities = ["read"] } } }', "Invalid variable path"),
        ('namespace "d" { variables { path "a" { capabilities = ["submit"] } } }', "Invalid variable capability"),
        ('namespace "d" { variables { paths "a" { capabilities = ["read"] } } }', 'Did you mean "path"?'),
        ('node_pool "a.b" { policy = "read" }', "Invalid node pool name"),
        ('node_pool "a" { policy = "list" }', "Invalid node pool policy"),
        ('node_pool "a" { capabilities = ["rad"] }', "Invalid node pool capability"),
        ('host_volume "a_b" { policy = "read" }', "Invalid host volume name"),
        ('host_volume "a" { policy = "list" }', "Invalid host volume policy"),
        ('host_volume "a" { capabilities = ["mount-readonl"] }', 'Did you mean "mount-readonly"?'),
        ("agent { }", "Invalid agent policy: it needs a level"),
        ('node { policy = "list" }', "Invalid node policy"),
        ('quota { policy = "" }', "Invalid quota policy"),
        ('plugin { policy = "scale" }', "Invalid plugin policy"),
        ('operator { capabilities = ["license"] }', "Invalid operator capability"),
        ('node { policy = "read" }\nnode { policy = "write" }', 'rules:2:1: Invalid or duplicate policy keys: "node"'),
        ('nod { policy = "read" }', 'Invalid or duplicate policy keys: "nod" is not a block of a policy. '
         'Did you mean "node"?'),
        ('node "x" { policy = "read" }', 'rules:1:6: Invalid node policy: it takes no label: write node { policy ='),
        ('node = "read"', 'Invalid policy: "node" is a block'),
        ('node { policy = "${level}" }', "rules:1:17: Expressions are not allowed"),
        ('node { policy = lower("READ") }', "Expressions are not allowed"),
        ('node { policy = "read" \n policy = "write" }', "rules:2:2: Attribute redefined"),
        ('{"node": {"policy": "read", "policy": "write"}}', "rules:1:29: Attribute redefined"),
        ('namespace "a" {', "rules:1:15: Unclosed configuration block"),
        ('{"namespace": ', "Invalid JSON value"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_place(text: str, problem: str) -> None:
    assert any(problem in each for each in problems(text)), problems(text)


def test_a_label_that_a_block_does_not_take_is_one_mistake() -> None:
    assert len(problems('node "x" { policy = "read" }')) == len(problems('operator "y" { capabilities = [] }')) == 1


def test_all_mistakes_are_told_at_once() -> None:
    text = 'namespace "a" {\n  policy = "raed"\n  capabilities = ["x", "read-jobs"]\n}\nnods {\n  policy = "read"\n}\n'
    places = {each.split(" ")[0] for each in problems(text)}
    assert places == {"rules:2:12:", "rules:3:19:", "rules:3:24:", "rules:5:1:"}


def test_a_place_names_the_file() -> None:
    with pytest.raises(PolicyError, match=r"^ops\.hcl:1:17: "):
        parse_policy("ops", 'node { policy = "x" }', filename="ops.hcl")


def test_a_stored_policy_of_a_newer_version_is_read_without_what_is_unknown() -> None:
    text = 'future { policy = "read" }\nnode { policy = "read" }\nnode { policy = "write"\n since = 2 }\n'
    policy = parse_policy("p", text, is_strict=False)
    assert [(each.area, each.level) for each in policy.levels] == [("node", "write")]
    with pytest.raises(PolicyError):
        parse_policy("p", 'namespace "a" { capabilities = ["future-job"] }', is_strict=False)


def test_a_policy_that_is_too_long_is_refused_before_it_is_read() -> None:
    assert "Policy too large" in problems("#" * (RULES_CHARACTERS_MAX + 1))[0]


WORDS = st.sampled_from(
    [
        "namespace", "node_pool", "node", "operator", "variables", "path", "policy", "capabilities", '"a"', '"read"',
        '"deny"', "{", "}", "[", "]", "=", ":", ",", "\n", '"*"', "null", "1", "${", "\x00", "#", "/*", "<<EOT",
    ]
)  # fmt: skip
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.sampled_from(["read", "deny", "", "/a"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["namespace", "node", "operator", "variables", "path", "policy", "capabilities", "a", ""]),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)


@given(st.one_of(st.lists(WORDS, max_size=30).map(" ".join), VALUES.map(json.dumps)), st.booleans())
def test_a_text_is_a_policy_or_refused_and_nothing_else(text: str, is_strict: bool) -> None:
    with contextlib.suppress(PolicyError):
        parse_policy("p", text, is_strict=is_strict)
