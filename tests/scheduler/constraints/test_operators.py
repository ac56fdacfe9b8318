"""Every constraint operator, on values that resolve and on values that do not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yurt.scheduler.constraints.operators import holds
from yurt.scheduler.constraints.targets import is_unique, resolve
from yurt.testing import factories


@pytest.mark.parametrize(
    ("left", "operand", "right", "expected"),
    [
        ("a", "=", "a", True),
        ("a", "is", "b", False),
        (None, "==", None, False),
        (None, "!=", "a", True),
        ("a", "not", "a", False),
        ("9", "<", "10", True),
        ("9.5", "<", "10", True),
        ("b", ">", "a", True),
        ("10", ">=", "10.0", True),
        ("9223372036854775806", "<", "9223372036854775807", True),
        ("1e3", ">", "999", True),
        (".5", "<", "1.", True),
        ("-Inf", "<", "-1", True),
        ("nan", "<=", "1", False),
        ("1e400", ">", "5", False),
        ("1_000", "<", "200", True),
        ("5 ", "<", "10", False),
        ("٣", "<", "4", False),
        ("true", ">", "false", True),
        (None, "<", "1", False),
        ("x", "is_set", None, True),
        (None, "is_set", None, False),
        (None, "is_not_set", None, True),
        ("linux-5.10", "regexp", "^linux-[0-9]", True),
        ("linux", "regexp", "(", False),
        ("a,b, c", "set_contains", "c,a", True),
        ("a,b", "set_contains_all", "a,d", False),
        ("a,b", "set_contains_any", "d,b", True),
        ("a", "no such operand", "a", False),
    ],
)
def test_an_operator_compares_as_documented(left: str | None, operand: str, right: str | None, expected: bool) -> None:
    assert holds(operand, left, right) is expected


@pytest.mark.parametrize(
    ("version", "constraint", "expected"),
    [
        ("1.2.3", ">= 1.2, < 2", True),
        ("v1.2", "= 1.2.0", True),
        ("2.0", ">= 1.2, < 2", False),
        ("1.3.9", "~> 1.2", True),
        ("2.0.0", "~> 1.2", False),
        ("1.2.9", "~> 1.2.3", True),
        ("1.3.0", "~> 1.2.3", False),
        ("1.2.3.4", "> 1.2.3", True),
        ("1.7.0-beta", ">= 1.6", False),
        ("1.7.0-beta", ">= 1.7.0-alpha", True),
        ("1.4", "!= 1.4", False),
        ("5.0", "~> 4", True),
        ("3.9", "~> 4", False),
        ("2.1.0-beta", "~> 2.1.0-a", True),
        ("2.1.0", "~> 2.1.0-a", False),
        ("2.2.0", "~> 2.1.0-a", False),
        ("2.1.0-beta", "~> 2.0", False),
        ("1.0.9.6", "~> 1.0.9.5", True),
        ("1.0.10", "~> 1.0.9.5", False),
        ("1.2.3", "~> 1.2.3.0", False),
        ("1.2.3~rc1", "< 1.2.3", False),
        ("1.2.3~rc1", ">= 1.2.3~rc0", True),
        ("1.2.3beta", "= 1.2.3-beta", True),
        ("nonsense", ">= 0", False),
        ("1.0", "nonsense", False),
    ],
)
def test_version_constraints(version: str, constraint: str, expected: bool) -> None:
    assert holds("version", version, constraint) is expected


@pytest.mark.parametrize(
    ("version", "constraint", "expected"),
    [
        ("1.7.0-beta", ">= 1.6.0", True),
        ("1.7.0-beta", ">= 1.7.0", False),
        ("1.7.0-beta.2", "< 1.7.0-beta.11", True),
        ("1.2.3.4", "> 1.0.0", False),
        ("1.2.3", "~> 1.2", True),
        ("1.2.3", "~> 1.2.3-beta", True),
        ("2.0.0", "~> 1.2", False),
    ],
)
def test_semver_orders_prereleases_before_their_release(version: str, constraint: str, expected: bool) -> None:
    assert holds("semver", version, constraint) is expected


@given(st.sampled_from(["version", "semver", "regexp", "<", "set_contains", "="]), st.text(), st.text())
def test_no_value_makes_an_operator_fail(operand: str, left: str, right: str) -> None:
    assert holds(operand, left, right) in (True, False)


def test_targets_resolve_on_a_node() -> None:
    node = factories.node(meta={"rack": "r1"}, node_class="big")
    assert resolve("${attr.kernel.name}", node) == "linux"
    assert resolve("${meta.rack}", node) == "r1"
    assert resolve("${node.class}", node) == "big"
    assert resolve("${node.unique.id}", node) == node.id
    assert resolve("literal", node) == "literal"
    assert resolve("${env.HOME}", node) is None
    assert is_unique("${attr.unique.hostname}") and not is_unique("${attr.kernel.name}")
