"""The columnar view: read-only, true for ever, and free of what a node or an allocation no longer says."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import numpy as np
import pytest
from yurt.fsm import apply
from yurt.state import Snapshot, Tables
from yurt.state.columns import CPU, MEMORY, Columns
from yurt.structs import commands as c
from yurt.testing import factories
from yurt.testing.rows.random_commands import random_history


def test_columns_of_a_kept_snapshot_never_change() -> None:
    kept = []
    for step in random_history(Random(5), 200):
        kept.append((step.state.columns, step.state.columns.content()))
    assert all(columns.content() == content for columns, content in kept)


def test_the_arrays_cannot_be_written() -> None:
    state = Snapshot.empty()
    state = apply(state, c.RegisterNode(node=factories.node()), index=1).state
    with pytest.raises(ValueError, match="read-only"):
        state.columns.used[0, CPU] = 1
    with pytest.raises(ValueError, match="read-only"):
        state.columns.nodes.offered[0, MEMORY] = 1


def test_a_node_that_is_gone_gives_its_row_to_the_next() -> None:
    state = Snapshot.empty()
    for index in range(600):
        node = factories.node(factories.number_id(index, kind=1))
        state = apply(state, c.RegisterNode(node=node), index=2 * index + 1).state
        state = apply(state, c.DeleteNodes(node_ids=(node.id,)), index=2 * index + 2).state
    assert state.columns.content() == {}
    assert len(state.columns.used) <= 256


def test_node_derived_columns_are_shared_while_no_node_changes() -> None:
    node, job = factories.node(), factories.job()
    state = Snapshot.empty()
    state = apply(state, c.RegisterNode(node=node), index=1).state
    before = state.columns.nodes
    edit = state.edit(2)
    alloc = factories.alloc(job, on=node)
    edit.put(Tables.allocs, alloc.id, alloc)
    after = edit.commit()
    assert after.columns.nodes is before
    assert np.count_nonzero(after.columns.used) and not np.count_nonzero(state.columns.used)


def test_an_empty_state_has_empty_columns() -> None:
    assert Columns.empty().content() == {} and len(Columns.empty().used) == 0


def test_columns_made_in_a_thread_are_brought_forward_to_what_came_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    first = apply(Snapshot.empty(), c.RegisterNode(node=factories.node(factories.number_id(1, kind=1))), index=1).state
    make = first.columns_maker()
    state = apply(first, c.RegisterNode(node=factories.node(factories.number_id(2, kind=1))), index=2).state
    make()
    rebuilt = Columns.rebuild(state.nodes.values(), state.allocs.values())
    monkeypatch.setattr(Columns, "rebuild", None)
    assert state.columns.content() == rebuilt.content()


def test_many_nodes_that_come_do_not_wait_until_somebody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    apply_changes = Columns.apply

    def counting(columns: Columns, changes: Iterable[Any]) -> Columns:
        found = tuple(changes)
        counted.append(len(found))
        return apply_changes(columns, found)

    monkeypatch.setattr(Columns, "apply", counting)
    state = Snapshot.empty()
    assert state.columns.content() == {}
    for index in range(1, 601):
        node = factories.node(factories.number_id(index, kind=1))
        state = apply(state, c.RegisterNode(node=node), index=index).state
    waiting = 600 - sum(counted)
    assert len(counted) >= 2 and waiting <= 251 and max(counted) <= 251
    assert len(state.columns.content()) == 600
