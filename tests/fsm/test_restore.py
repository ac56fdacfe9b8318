"""A snapshot restored through commands of the log."""

from __future__ import annotations

from hashlib import sha256
from random import Random
from typing import Any

import pytest
from yurt.fsm import snapshot
from yurt.fsm.restore import framed, unframed
from yurt.sdk.errors import Invalid
from yurt.state import Snapshot, Tables
from yurt.structs.commands import (
    Applied,
    FinishRestore,
    KeepAlive,
    RegisterJob,
    RegisterNode,
    Rejected,
    SetClusterID,
    SetNodeStatus,
    StageRestore,
)
from yurt.structs.rules import RESTORED_LOSS_RULES
from yurt.testing import factories
from yurt.testing.replica import Replica
from yurt.testing.rows.every_table import every_table
from yurt.testing.rows.random_commands import random_history


def archive(state: Snapshot) -> bytes:
    return b"".join(framed(snapshot.encode(state)))


def last_state(seed: int, length: int) -> Snapshot:
    *_, last = random_history(Random(seed), length)
    return last.state


def restored(replica: Replica, data: bytes, *, pieces: int = 3, **changes: Any) -> Any:
    size = -(-len(data) // pieces)
    for number in range(pieces):
        replica.apply(StageRestore(restore_id="r", number=number, data=data[number * size : (number + 1) * size]))
    finish = FinishRestore(restore_id="r", count=pieces, digest=sha256(data).hexdigest())
    return replica.step(factories.replace(finish, **changes)).result


BY_REVOCATIONS = ("acl_tokens", "acl_revocations", "acl_bootstrap")
"""What a restore leaves of tokens depends on what the cluster revoked and changed (tests/fsm/test_acl_tokens.py)."""


def tables(state: Snapshot, *others: str) -> dict[str, dict[Any, Any]]:
    """All rows but those of nodes, which begin anew, of plans that wait for their rest and of one-time tokens, which
    are dropped, and of other tables.
    """
    dropped = ("restore_chunks", "staged_plans", "nodes", "one_time_tokens", "cluster_metadata", *others)
    return {table.name: dict(table.items()) for table in state.tables() if table.name not in dropped}


def test_every_table_is_as_it_was_and_the_log_goes_on() -> None:
    expected = last_state(3, 60)
    replica = Replica(last_state(4, 200))
    index = replica.state.index
    assert isinstance(restored(replica, archive(expected)), Applied)
    assert replica.state.index == index + 4
    assert tables(replica.state, *BY_REVOCATIONS) == tables(expected, *BY_REVOCATIONS)


def test_no_index_of_a_restored_row_is_above_the_log() -> None:
    expected = last_state(3, 300)
    replica = Replica()
    restored(replica, archive(expected))
    for name, rows in tables(replica.state).items():
        assert len(rows) == len(tables(expected)[name])
        for row in rows.values():
            told = [getattr(row, field) for field in row.__struct_fields__ if field.endswith("_index")]
            assert all(index is None or index <= replica.state.index for index in told)
    for alloc in replica.state.allocs.values():
        assert alloc.job is None or alloc.job.create_index <= replica.state.index


@pytest.mark.parametrize("own", ["", "cluster-b"])
def test_the_id_of_a_cluster_is_that_of_its_log_and_not_of_the_snapshot(replica: Replica, own: str) -> None:
    earlier = Replica()
    earlier.apply(SetClusterID(cluster_id="cluster-a"))
    if own:
        replica.apply(SetClusterID(cluster_id=own))
    assert isinstance(restored(replica, archive(earlier.state)), Applied)
    assert [row.cluster_id for row in replica.state.cluster_metadata.values()] == ([own] if own else [])


def test_indexes_of_tables_follow(replica: Replica) -> None:
    replica.apply(RegisterJob(job=factories.job("old")))
    data = archive(replica.state)
    replica.apply(RegisterJob(job=factories.job("new")))
    restored(replica, data)
    assert [job.id for job in replica.state.jobs.values()] == ["old"]
    assert replica.state.jobs.index == replica.state.index
    assert not len(replica.state.restore_chunks)


def test_parts_of_plans_in_a_snapshot_are_not_restored_and_those_of_the_cluster_go(replica: Replica) -> None:
    expected = every_table().commit()
    assert len(expected.staged_plans) == len(expected.restore_chunks) == 1
    edit = Snapshot.empty().edit(1)
    edit.put(Tables.staged_plans, ("own", 0), expected.staged_plans[("p", 1)])
    replica.state = edit.commit()
    restored(replica, archive(expected))
    assert not len(replica.state.staged_plans) and not len(replica.state.restore_chunks)
    assert len(replica.state.evals) == 1


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"digest": "odd"}, "invalid"),
        ({"count": 4}, "not_found"),
        ({"restore_id": "x"}, "not_found"),
        ({"count": 0}, "invalid"),
    ],
)
def test_what_does_not_fit_changes_nothing(replica: Replica, changes: dict[str, Any], kind: str) -> None:
    replica.apply(RegisterJob(job=factories.job("old")))
    before = dict(replica.state.jobs.items())
    result = restored(replica, archive(last_state(3, 60)), **changes)
    assert isinstance(result, Rejected)
    assert result.kind == kind
    assert dict(replica.state.jobs.items()) == before


@pytest.mark.parametrize("data", [b"", b"\x00" * 7, b"\x00" * 40, b"nonsense that is long enough to be cut"])
def test_nonsense_is_rejected(replica: Replica, data: bytes) -> None:
    result = restored(replica, data, pieces=1)
    assert isinstance(result, Rejected)


def test_a_damaged_state_is_rejected(replica: Replica) -> None:
    whole = archive(last_state(3, 60))
    for cut in range(0, len(whole), max(1, len(whole) // 25)):
        assert isinstance(restored(replica, whole[:cut] + b"\xff" + whole[cut + 1 :][:-1]), Rejected)


def test_a_new_restore_drops_what_another_left(replica: Replica) -> None:
    replica.apply(StageRestore(restore_id="a", number=0, data=b"x"), StageRestore(restore_id="a", number=1, data=b"y"))
    replica.apply(StageRestore(restore_id="b", number=0, data=b"z"), KeepAlive())
    assert list(replica.state.restore_chunks.keys()) == [("b", 0)]


def test_frames_can_be_cut_anywhere() -> None:
    data = b"".join(framed([b"a", b"", b"long" * 100]))
    assert list(unframed(data)) == [b"a", b"", b"long" * 100]
    with pytest.raises(Invalid):
        list(unframed(data[:-1]))


def test_nodes_that_live_report_before_they_are_ready(replica: Replica) -> None:
    live, down = factories.number_id(1, kind=1), factories.number_id(2, kind=1)
    for node_id, node_status in ((live, "ready"), (down, "down")):
        replica.apply(RegisterNode(node=factories.node(node_id)))
        replica.apply(SetNodeStatus(node_id=node_id, status=node_status, updated_at=1))
    restored(replica, archive(replica.state))
    assert replica.state.nodes[live].status == "initializing"
    assert replica.state.nodes[live].last_missed_heartbeat_index == replica.state.index
    assert replica.state.nodes[down].status == "down"


@pytest.mark.parametrize("rules", [RESTORED_LOSS_RULES - 1, RESTORED_LOSS_RULES])
def test_a_node_that_was_down_in_the_snapshot_has_not_heard_of_the_restore(rules: int) -> None:
    """Its agent may have heard of the loss that the snapshot names, and have been ready since."""
    replica, node = Replica(rules_version=rules), factories.node()
    replica.apply(RegisterNode(node=node), SetNodeStatus(node_id=node.id, status="down", updated_at=1))
    heard = replica.state.nodes[node.id].last_missed_heartbeat_index
    data = archive(replica.state)
    replica.apply(SetNodeStatus(node_id=node.id, status="ready", updated_at=2))
    restored(replica, data)
    found = replica.state.nodes[node.id]
    assert found.status == "down"
    assert found.last_missed_heartbeat_index == (replica.state.index if rules >= RESTORED_LOSS_RULES else heard)
