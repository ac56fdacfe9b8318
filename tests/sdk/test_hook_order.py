"""Where an added hook stands among Yurt's own and others."""

from __future__ import annotations

import pytest
from yurt.sdk.errors import Invalid
from yurt.sdk.hooks import ALLOC_HOOKS, CONFIGURATION, TASK_HOOKS, TaskHook, order


def hook(name: str, *, after: tuple[str, ...] = (), before: tuple[str, ...] = ()) -> TaskHook:
    made = TaskHook()
    made.name, made.after, made.before = name, after, before
    return made


def neighbours(name: str, *hooks: TaskHook, of: tuple[str, ...] = TASK_HOOKS) -> tuple[str, str]:
    found = ("", *order(of, hooks), "")
    return found[found.index(name) - 1], found[found.index(name) + 1]


def test_an_added_hook_stands_right_before_the_configuration() -> None:
    assert neighbours("x", hook("x")) == ("logs", CONFIGURATION)


def test_an_added_hook_of_allocations_stands_last() -> None:
    assert neighbours("x", hook("x"), of=ALLOC_HOOKS) == ("health", "")


def test_a_hook_stands_behind_those_that_it_names() -> None:
    assert neighbours("x", hook("x", after=("devices", "artifacts"))) == ("artifacts", "templates")


def test_a_hook_stands_before_those_that_it_names() -> None:
    assert neighbours("x", hook("x", before=("templates", "network"))) == ("task_api", "network")


def test_hooks_at_one_place_stand_in_the_order_of_their_names() -> None:
    found = order(TASK_HOOKS, [hook("b", after=("network",)), hook("a", after=("network",)), hook("c"), hook("d")])
    assert found[found.index("network") :][:3] == ("network", "a", "b")
    assert found[found.index(CONFIGURATION) - 2 :][:3] == ("c", "d", CONFIGURATION)


def test_a_hook_may_name_another_added_one_and_one_that_is_not_there() -> None:
    found = order(TASK_HOOKS, [hook("a", after=("b", "absent")), hook("b", after=("templates",))])
    assert found[found.index("templates") :][:3] == ("templates", "b", "a")


def test_a_place_that_does_not_exist_is_refused() -> None:
    with pytest.raises(Invalid, match='"x" cannot come after templates and before devices'):
        order(TASK_HOOKS, [hook("x", after=("templates",), before=("devices",))])


def test_hooks_that_wait_for_each_other_are_refused() -> None:
    with pytest.raises(Invalid, match="the hooks a and b cannot be ordered"):
        order(TASK_HOOKS, [hook("a", after=("b",)), hook("b", after=("a",))])
