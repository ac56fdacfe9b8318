"""What is remembered about nodes is what asking all of them anew would say, and a change of one node asks one node."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from yurt.fsm import apply
from yurt.scheduler.constraints.targets import resolve
from yurt.scheduler.feasibility import masks
from yurt.scheduler.feasibility.masks import check_mask, constraint_check, property_codes
from yurt.sdk.value import replace
from yurt.state import Snapshot
from yurt.state.row_history import STEPS_MAX, RowHistory
from yurt.structs import commands as c
from yurt.structs.constraint import Constraint
from yurt.structs.node import Node
from yurt.testing import factories
from yurt.testing.nightly import cases

CONSTRAINTS = (
    Constraint(l_target="${attr.size}", operand="=", r_target="2"),
    Constraint(l_target="${meta.rack}", operand="regexp", r_target="^r[12]$"),
    Constraint(l_target="${attr.unique.host}", operand="regexp", r_target="[02468]$"),
    Constraint(l_target="${node.unique.name}", operand="!=", r_target="n3"),
    Constraint(l_target="${node.datacenter}", operand="=", r_target="dc1"),
)
TARGETS = ("${attr.size}", "${meta.rack}", "${attr.unique.host}", "${node.unique.id}")


def some_node(number: int, random: Random) -> Node:
    made = factories.node(factories.number_id(number, kind=1))
    return replace(
        made,
        name=f"n{random.randrange(5)}",
        datacenter=f"dc{random.randrange(1, 3)}",
        attributes={**made.attributes, "size": str(random.randrange(4)), "unique.host": f"h{random.randrange(9)}"},
        meta={"rack": f"r{random.randrange(4)}"} if random.random() < 0.8 else {},
    )


def changed(state: Snapshot, random: Random) -> Snapshot:
    """One node comes, goes, is another one now, or changes its status."""
    number = random.randrange(12)
    id = factories.number_id(number, kind=1)
    command: Any = c.RegisterNode(node=some_node(number, random))
    if id in state.nodes and random.random() < 0.6:
        command = c.DeleteNodes(node_ids=(id,)) if random.random() < 0.4 else c.SetNodeStatus(
            node_id=id, status=random.choice(("ready", "down")), updated_at=1
        )  # fmt: skip
    return apply(state, command, index=state.index + 1).state


def check(state: Snapshot) -> None:
    """All answers are those of the nodes themselves."""
    rows = state.columns.rows
    assert sorted(rows) == sorted(state.nodes.keys())
    for constraint in CONSTRAINTS:
        asked = constraint_check(constraint)
        mask = check_mask(state, asked)
        assert {id: bool(mask[row]) for id, row in rows.items()} == {id: asked.test(n) for id, n in state.nodes.items()}
        assert not any(mask[row] for row in range(len(mask)) if row not in set(rows.values()))
    for target in TARGETS:
        codes, values = property_codes(state, target)
        texts = {id: values[codes[row]] if codes[row] >= 0 else None for id, row in rows.items()}
        assert texts == {id: resolve(target, node) for id, node in state.nodes.items()}
        assert set(values) == {text for text in texts.values() if text is not None}


@given(st.integers(0, 2**32), st.integers(1, 40))
@settings(max_examples=cases(500), deadline=None)
def test_what_is_remembered_is_what_the_nodes_say(seed: int, length: int) -> None:
    random, state, others = Random(seed), Snapshot.empty(), []
    for _ in range(length):
        state = changed(state, random)
        if random.random() < 0.5:
            check(state)
        if random.random() < 0.2:
            others.append(state)
        if others and random.random() < 0.2:
            state = random.choice(others)
    for each in (state, *others):
        check(each)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many values were resolved, one entry for each time that nodes were asked."""
    counted: list[int] = []
    resolve_all = masks.resolve_all

    def counting(target: str, nodes: list[Node]) -> list[str | None]:
        counted.append(len(nodes))
        return resolve_all(target, nodes)

    monkeypatch.setattr(masks, "resolve_all", counting)
    return counted


def cluster(count: int) -> Snapshot:
    state, random = Snapshot.empty(), Random(1)
    for number in range(count):
        state = apply(state, c.RegisterNode(node=some_node(number, random)), index=state.index + 1).state
    return state


@pytest.mark.parametrize("target", ["${attr.size}", "${attr.unique.host}"])
def test_a_change_of_one_node_asks_no_other(asked: list[int], target: str) -> None:
    state = cluster(300)
    constraint = constraint_check(Constraint(l_target=target, operand="=", r_target="2"))
    check_mask(state, constraint)
    property_codes(state, target)
    asked.clear()
    node = state.nodes[factories.number_id(7, kind=1)]
    down = apply(state, c.SetNodeStatus(node_id=node.id, status="down", updated_at=1), index=state.index + 1).state
    check_mask(down, constraint)
    property_codes(down, target)
    assert max(asked, default=0) <= 1
    other = replace(node, attributes={**node.attributes, "size": "17", "unique.host": "new"})
    new = apply(down, c.RegisterNode(node=other), index=down.index + 1).state
    asked.clear()
    check_mask(new, constraint)
    _, values = property_codes(new, target)
    assert asked == [1, 1] and values[-1] in {"17", "new"}


def test_a_history_goes_on_with_one_of_those_that_branch_off() -> None:
    history = RowHistory()
    history.keep("key", 0, "answer")
    first, place = history.after(0, [3, 4])
    assert first is history and first.earlier("key", place) == ("answer", [3, 4])
    second, place = history.after(0, [5])
    assert second is not history and second.earlier("key", place) is None


def test_an_older_answer_does_not_take_the_place_of_a_newer_one() -> None:
    history = RowHistory()
    history.after(0, [1])
    history.keep("key", 1, "newer")
    history.keep("key", 0, "older")
    assert history.earlier("key", 1) == ("newer", [])
    assert history.earlier("key", 0) is None


def test_a_history_of_many_steps_is_followed_by_one_without_them() -> None:
    first, place = RowHistory(), 0
    history = first
    for _ in range(STEPS_MAX):
        history, place = history.after(place, (1,))
    assert (history, place) == (first, STEPS_MAX)

    history.keep("key", place, "an answer")
    following, place = history.after(place, (1,))

    assert following is not first and place == 0
    assert following.earlier("key", place) is None
