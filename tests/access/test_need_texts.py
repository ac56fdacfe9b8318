"""The words for a need are read back as the same need."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yurt.access import Need, needs
from yurt.access.need_texts import LEAVES, parse_need
from yurt.access.needs import Leaf, describe, satisfied
from yurt.http.route_table import ROUTES
from yurt.sdk.errors import Invalid

ALL = st.recursive(
    st.sampled_from(sorted(LEAVES)).map(LEAVES.__getitem__),
    lambda inner: st.tuples(
        st.sampled_from([needs.any_of, needs.all_of]), st.lists(inner, min_size=2, max_size=3)
    ).map(lambda made: made[0](*made[1])),
    max_leaves=5,
)  # fmt: skip


def answers(need: Need, held: frozenset[str]) -> bool:
    """Whether these rights are enough; a leaf of several capabilities is held by one of them."""

    def holds(leaf: Leaf) -> bool:
        return not held.isdisjoint(describe(leaf).split(" or "))

    return satisfied(need, holds, has_row=True)


@pytest.mark.parametrize("need", sorted({describe(route.needs) for route in ROUTES}))
def test_what_a_route_needs_is_read_back(need: str) -> None:
    assert describe(parse_need(need)) == need


@given(ALL, st.frozensets(st.sampled_from(sorted(LEAVES)), max_size=4), st.booleans())
def test_a_need_that_is_read_back_means_the_same(need: Need, held: frozenset[str], is_of_rows: bool) -> None:
    asked = needs.each_row(need) if is_of_rows else need
    assert answers(parse_need(describe(asked)), held) is answers(asked, held)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("submit-jobs", '"submit-jobs" is not a right; did you mean "submit-job"?'),
        ("", '"" is not a right'),
        ("(read-job", "a parenthesis is not closed"),
        ("read-job and node:read or node:write", 'unexpected "or"'),
        ("read-job)", 'unexpected ")"'),
        ("read-job or ", '"" is not a right'),
        ("(" * 20 + "read-job" + ")" * 20, "nested at most 8 times"),
        ("read-job or " * 400 + "read-job", "at most 2000 characters"),
    ],
)
def test_what_is_no_need_is_said(text: str, told: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_need(text)
    assert told in str(caught.value)
