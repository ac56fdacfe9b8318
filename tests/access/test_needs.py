"""Needs are values: what their combinations mean, and how they read."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from yurt.access import needs
from yurt.access.needs import Capability, Leaf, Need, describe, is_scoped, satisfied

READ, SUBMIT = needs.namespace(Capability.READ_JOB), needs.namespace(Capability.SUBMIT_JOB)


def holding(*held: Leaf) -> Callable[[Leaf], bool]:
    return lambda leaf: leaf in held


def test_anyone_satisfies_the_anonymous_need_and_only_the_holder_any_other() -> None:
    assert satisfied(needs.ANONYMOUS, holding(), has_row=False)
    assert not satisfied(needs.MANAGEMENT, holding(READ), has_row=False)
    assert satisfied(needs.MANAGEMENT, holding(needs.MANAGEMENT), has_row=False)


def test_one_of_several_is_enough_for_any_of_and_not_for_all_of() -> None:
    either, both = needs.any_of(READ, needs.NODE_READ), needs.all_of(READ, needs.NODE_READ)
    assert satisfied(either, holding(READ), has_row=True)
    assert not satisfied(both, holding(READ), has_row=True)
    assert satisfied(both, holding(READ, needs.NODE_READ), has_row=True)


def test_a_list_that_filters_lets_everybody_ask_and_no_row_pass() -> None:
    listed = needs.each_row(READ)
    assert satisfied(listed, holding(), has_row=False)
    assert not satisfied(listed, holding(), has_row=True)
    assert satisfied(listed, holding(READ), has_row=True)


def test_a_gate_beside_a_filter_still_holds() -> None:
    gated = needs.all_of(needs.NODE_READ, needs.each_row(READ))
    assert not satisfied(gated, holding(READ), has_row=False)
    assert satisfied(gated, holding(needs.NODE_READ), has_row=False)
    assert not satisfied(gated, holding(needs.NODE_READ), has_row=True)


@pytest.mark.parametrize(
    ("need", "text", "scoped"),
    [
        (needs.ANONYMOUS, "none", False),
        (needs.AUTHENTICATED, "any token", False),
        (needs.MANAGEMENT, "management", False),
        (needs.NODE_WRITE, "node:write", False),
        (needs.PLUGIN_LIST, "plugin:list", False),
        (needs.operator(needs.OperatorCapability.KEYRING_READ), "operator:keyring-read", False),
        (needs.ANY_CAPABILITY, "any capability in the namespace", True),
        (needs.node_pool(needs.NodePoolCapability.DELETE), "node_pool:delete", True),
        (needs.variable(needs.VariableCapability.DESTROY), "variables:destroy", True),
        (needs.namespace(Capability.SUBMIT_JOB, Capability.PLAN_JOB), "submit-job or plan-job", True),
        (needs.any_of(SUBMIT, needs.all_of(READ, needs.NODE_READ)), "submit-job or (read-job and node:read)", True),
        (needs.each_row(READ), "each row: read-job", True),
    ],
)
def test_a_need_reads_as_in_a_policy_and_knows_whether_a_place_decides(need: Need, text: str, scoped: bool) -> None:
    assert (describe(need), is_scoped(need)) == (text, scoped)


def test_a_combination_of_one_is_refused() -> None:
    for make in (needs.any_of, needs.all_of):
        with pytest.raises(AssertionError):
            make(READ)
    with pytest.raises(AssertionError):
        needs.namespace()
