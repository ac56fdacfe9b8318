"""Transactions, their changes, and the watches that hear of them."""

from __future__ import annotations

import pytest
from yurt.sdk.value import replace
from yurt.state import Change, Snapshot, Tables
from yurt.state.store import CHECKED_EACH
from yurt.state.watch import Watches
from yurt.testing import factories


def test_a_transaction_tells_each_row_once_with_its_first_and_last_content() -> None:
    node, job = factories.node(), factories.job()
    edit = Snapshot.empty().edit(1)
    edit.put(Tables.nodes, node.id, node)
    edit.put(Tables.jobs, job.key, job)
    changed = factories.replace(node, name="other")
    edit.put(Tables.nodes, node.id, changed)
    assert edit.changes == (Change("nodes", node.id, None, changed), Change("jobs", job.key, None, job))
    assert edit.get(Tables.nodes, node.id) is changed


def test_a_commit_leaves_the_base_as_it_was() -> None:
    base = Snapshot.empty()
    edit = base.edit(3)
    edit.put(Tables.jobs, ("default", "web"), factories.job())
    after = edit.commit()
    assert (len(base.jobs), len(after.jobs)) == (0, 1)
    assert (base.index, after.index, after.jobs.index, after.nodes.index) == (0, 3, 3, 0)
    assert after.nodes is base.nodes


def test_live_indexes_drop_what_has_ended() -> None:
    alloc = factories.alloc()
    edit = Snapshot.empty().edit(1)
    edit.put(Tables.allocs, alloc.id, alloc)
    assert edit.keys_where(Tables.allocs, "live", ("default", "web")) == (alloc.id,)
    edit.put(Tables.allocs, alloc.id, factories.replace(alloc, client_status="complete"))
    assert edit.count_where(Tables.allocs, "live", ("default", "web")) == 0
    assert edit.count_where(Tables.allocs, "job", ("default", "web")) == 1


def test_watches_wake_once_for_row_table_and_index_key() -> None:
    watches, woken = Watches(), []
    alloc = factories.alloc()
    keys = [("allocs",), ("allocs", alloc.id), ("allocs", "job", ("default", "web"))]
    watches.add(keys, lambda: woken.append("alloc"))
    watches.add([("nodes",)], lambda: woken.append("nodes"))
    watches.wake([Change("allocs", alloc.id, None, alloc)])
    assert woken == ["alloc"]


def test_a_row_that_leaves_an_index_key_wakes_its_watchers() -> None:
    watches, woken = Watches(), []
    alloc = factories.alloc()
    watches.add([("allocs", "live", ("default", "web"))], lambda: woken.append(1))
    watches.wake([Change("allocs", alloc.id, alloc, factories.replace(alloc, desired_status="stop"))])
    assert woken == [1]


def test_a_cancelled_watch_hears_nothing_and_leaves_nothing() -> None:
    watches, woken = Watches(), []
    cancel = watches.add([("nodes",), ("nodes", "n")], lambda: woken.append(1))
    cancel()
    cancel()
    watches.wake([Change("nodes", "n", None, factories.node("n"))])
    watches.wake_all()
    assert (woken, len(watches)) == ([], 0)


def test_an_edit_that_no_change_tells_of_stops_the_state_machine() -> None:
    snapshot = Snapshot.empty()
    edit = snapshot.edit(CHECKED_EACH)
    edit.put(Tables.nodes, "n", factories.node())
    edit._changes.clear()
    with pytest.raises(AssertionError, match="nodes has rows without a recorded change"):
        edit.commit()


def test_a_row_replaced_by_one_with_the_same_index_keys_is_told_as_any_other() -> None:
    evaluation = factories.evaluation()
    edit = Snapshot.empty().edit(2)
    edit.put(Tables.evals, evaluation.id, evaluation)
    before = edit.commit()
    later = replace(evaluation, status_description="later")
    edit = before.edit(CHECKED_EACH)
    edit.put_alike(Tables.evals, evaluation.id, later)
    after = edit.commit()
    assert edit.changes == (Change("evals", evaluation.id, evaluation, later),)
    assert before.evals.get(evaluation.id) is evaluation and after.evals.get(evaluation.id) is later
    assert after.evals.where("status", evaluation.status) == (later,)


def test_a_row_replaced_as_alike_with_another_index_key_stops_the_state_machine() -> None:
    evaluation = factories.evaluation(status="pending")
    edit = Snapshot.empty().edit(2)
    edit.put(Tables.evals, evaluation.id, evaluation)
    for status in ("blocked", "complete"):
        later = edit.commit().edit(CHECKED_EACH)
        later.put_alike(Tables.evals, evaluation.id, replace(evaluation, status=status))
        with pytest.raises(AssertionError, match=r"the index (status|live)"):
            later.commit()
