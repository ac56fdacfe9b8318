"""The rules of a quota's guarantee, weight, protection and place among others."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.rules.validation import quota_tree
from yurt.rules.validation.quota import quota_problems
from yurt.rules.validation.quota_tree import forest_problems, tree_problems
from yurt.sdk.value import Duration, replace, seconds
from yurt.state.quota_totals import DEPTH_MAX
from yurt.structs.quota import QuotaSpec
from yurt.structs.resources import RequestedDevice
from yurt.testing.quotas import guaranteed, quota


def gpus(count: int, name: str = "nvidia/gpu") -> tuple[RequestedDevice, ...]:
    return (RequestedDevice(name=name, count=count),)


def among(spec: QuotaSpec, *others: QuotaSpec) -> list[str]:
    return list(tree_problems(spec, {each.name: each for each in (*others, spec)}))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"weight": 0.0}, "weight: 0 is not between 0.001 and 1000; leave it out for 1"),
        ({"weight": -1.0}, "weight: -1 is not between"),
        ({"weight": 1e300}, "weight: 1e+300 is not between"),
        ({"weight": float("inf")}, "weight: inf is not between"),
        ({"weight": float("nan")}, "weight: nan is not between"),
        ({"protection": Duration(-1)}, 'protection: it must be between "0s" and "24h"'),
        ({"protection": seconds(25 * 3600)}, 'protection: it must be between "0s" and "24h"'),
        ({"parent": "team"}, "parent: a quota cannot be its own parent"),
        ({"parent": "a b"}, 'parent: "a b" is not a name of a quota'),
    ],
)
def test_what_cannot_be_is_refused_with_its_field(changes: dict[str, Any], text: str) -> None:
    (problem,) = quota_problems(replace(quota("team"), **changes))
    assert problem.startswith(text)


@pytest.mark.parametrize("weight", [None, 0.001, 1, 1000])
def test_weights_in_bounds_are_accepted(weight: float | None) -> None:
    assert not list(quota_problems(replace(quota("team", parent="all"), weight=weight, protection=Duration(0))))


def test_a_guarantee_above_its_limit_is_refused_in_every_dimension_at_once() -> None:
    spec = guaranteed(quota("team", cpu=100, devices=gpus(4), memory_mb=-1), cpu=200, devices=gpus(5), memory_mb=1)
    assert [problem.partition("guaranteed: ")[2] for problem in quota_problems(spec)] == [
        "cpu = 200 is above its limit of 100; raise the limit",
        "memory = 1 is above its limit of 0; raise the limit",
        'device "nvidia/gpu" = 5 is above its limit of 4; raise the limit',
    ]


def test_a_guarantee_without_a_limit_or_below_it_is_accepted_and_a_negative_one_is_not() -> None:
    assert not list(quota_problems(guaranteed(quota("team", cpu=100), cpu=100, devices=gpus(5))))
    (problem,) = quota_problems(guaranteed(quota("team", cpu=100), cpu=-1))
    assert "cpu = -1 is negative" in problem


def test_a_cycle_is_refused_and_named() -> None:
    one, two, three = quota("a", parent="b"), quota("b", parent="c"), quota("c", parent="a")
    assert among(one, two, three) == ["parent: a -> b -> c -> a is a cycle; a quota cannot be above itself"]


def test_a_parent_exists() -> None:
    assert among(quota("a", parent="b")) == ['parent: quota "b" does not exist; apply it first']
    assert among(quota("a", parent="b"), quota("b", parent="c")) == [
        'parent: quota "c", the parent of "b", does not exist; apply it first'
    ]


def test_a_tree_has_a_depth_that_counts_what_is_below_too() -> None:
    chain = [quota(f"q{number}", parent=f"q{number - 1}" if number else "") for number in range(8)]
    assert among(chain[7], *chain) == []
    deep = [*chain, quota("top")]
    assert among(replace(chain[0], parent="top"), *deep) == [
        "parent: 9 quotas from the top to the lowest below this one, at most 8 are possible"
    ]


def test_guarantees_of_children_add_up_to_no_more_than_their_parents() -> None:
    top = guaranteed(quota("top", devices=gpus(16)), devices=gpus(8))
    one = guaranteed(quota("one", parent="top"), devices=gpus(5))
    two = guaranteed(quota("two", parent="top"), devices=gpus(4))
    assert among(one, top) == []
    assert among(two, top, one) == [
        'guaranteed: in region "global" device "nvidia/gpu" of the quotas below "top" add up to 9 (one 5, two 4), '
        "above its own guarantee of 8; lower them, or raise it"
    ]
    assert among(top, one, two), "nor is the parent lowered below them"
    without = quota("top", devices=gpus(8))
    assert "above its limit of 8" in among(two, without, one)[0]


def test_guarantees_count_through_quotas_without_any_and_by_model_and_pool() -> None:
    top = guaranteed(quota("top", devices=gpus(9)), devices=gpus(8))
    middle = quota("middle", parent="top")
    low = guaranteed(quota("low", parent="middle"), devices=gpus(9, "nvidia/gpu/h100"))
    assert "add up to 9 (middle 9)" in among(low, top, middle)[0]
    in_pool = guaranteed(quota("low", parent="middle"), pool="gpu", devices=gpus(9))
    assert "add up to 9 (middle 9)" in among(in_pool, top, middle)[0]
    other = guaranteed(quota("low", parent="middle"), devices=gpus(9, "amd/gpu"))
    assert among(other, top, middle) == []


def test_the_amounts_of_each_quota_are_read_once_however_many_dimensions_its_parent_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads: list[object] = []
    by_pool = quota_tree._by_pool
    monkeypatch.setattr(quota_tree, "_by_pool", lambda amounts: reads.append(amounts) or by_pool(amounts))
    models = tuple(RequestedDevice(name=f"nvidia/gpu/m{number}", count=9) for number in range(20))
    top = guaranteed(quota("top", devices=models), devices=models)
    below = [guaranteed(quota(f"q{number}", parent="top"), devices=gpus(1, "nvidia/gpu/m1")) for number in range(9)]
    assert among(below[0], top, *below[1:]) == []
    assert len(reads) <= len(below) + 3, "each once, and the bounds of the parent"


def test_a_tree_of_copies_may_be_of_any_depth_beside_a_quota() -> None:
    names = [f"q{number}" for number in range(3000)]
    chain = [quota(name, parent=parent) for name, parent in zip(names, ("top", *names), strict=False)]
    assert among(quota("new", parent="top"), quota("top"), *chain) == []


def test_all_quotas_are_checked_at_once_as_each_is() -> None:
    chain = [quota(f"level-{at}", parent=f"level-{at - 1}" if at else "") for at in range(DEPTH_MAX + 2)]
    top = guaranteed(quota("top", cpu=10), cpu=10)
    below = [guaranteed(quota(f"team-{at}", parent="top"), cpu=6) for at in range(2)]
    odd = [quota("orphan", parent="gone"), quota("a", parent="b"), quota("b", parent="a"), quota("below-b", parent="b")]
    specs = {each.name: each for each in (*chain, top, *below, *odd)}
    found = forest_problems(specs)
    assert set(found.detached) == {f"level-{DEPTH_MAX}", f"level-{DEPTH_MAX + 1}", "orphan", "a", "b", "below-b"}
    assert found.sums == tuple(tree_problems(top, specs))


def test_a_check_of_all_quotas_looks_at_each_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[QuotaSpec] = []
    amounts = quota_tree._own_amounts
    monkeypatch.setattr(quota_tree, "_own_amounts", lambda *each: asked.append(quota("x")) or amounts(*each))
    below = [guaranteed(quota(f"team-{at}", parent="top"), cpu=1) for at in range(500)]
    specs = {each.name: each for each in (guaranteed(quota("top", cpu=1000), cpu=1000), *below)}
    assert forest_problems(specs) == ({}, ())
    assert len(asked) < 2 * len(specs)
