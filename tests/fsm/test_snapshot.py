"""Snapshots that are cut, broken or of another format, and what a restore shares."""

from __future__ import annotations

import msgspec
import pytest
from yurt import scheduler
from yurt.fsm import apply, snapshot
from yurt.sdk.errors import Invalid
from yurt.sdk.value import replace
from yurt.state import Snapshot
from yurt.structs.commands import ApplyPlan, KeepAlive, RegisterJob, RegisterNode
from yurt.structs.plan import Plan
from yurt.structs.rules import DEVICE_PART_RULES, RULES_VERSION, UNPUBLISHED_RULES
from yurt.testing import factories
from yurt.testing.replica import Replica


@pytest.fixture
def state(replica: Replica) -> Snapshot:
    """A job with 1,500 allocations of shared resources on one node."""
    node = factories.node()
    replica.apply(RegisterNode(node=node), RegisterJob(job=factories.job()))
    job = replica.state.jobs[("default", "web")]
    placements = tuple(factories.placement(job, on=node, index=index) for index in range(1_500))
    plan = Plan(eval_id="e", namespace="default", job_id="web", now=factories.NOW, placements=placements)
    return replica.apply(ApplyPlan(plan=plan))


def test_the_empty_state_survives() -> None:
    restored = snapshot.decode(snapshot.encode(Snapshot.empty()))
    assert snapshot.digest(restored) == snapshot.digest(Snapshot.empty())


def test_chunks_hold_at_most_a_thousand_rows(state: Snapshot) -> None:
    kinds = [msgspec.msgpack.decode(chunk)[0] for chunk in list(snapshot.encode(state))[1:]]
    assert kinds.count("allocs") == 2
    assert kinds[-1] == "*end"


def test_a_restore_shares_what_was_shared(state: Snapshot) -> None:
    restored = snapshot.decode(snapshot.encode(state))
    allocs = list(restored.allocs.values())
    assert len({id(alloc.job) for alloc in allocs}) == 1
    assert len({id(alloc.allocated_resources) for alloc in allocs}) == 1
    assert len({id(alloc.node_id) for alloc in allocs}) <= 2
    job = restored.jobs[("default", "web")]
    assert allocs[0].job is not None
    assert allocs[0].job.task_groups is job.task_groups
    assert restored.version("default", "web", 0) is job


@pytest.mark.parametrize("dropped", [0, 1, 2, -1])
def test_a_stream_with_a_chunk_missing_is_refused(state: Snapshot, dropped: int) -> None:
    chunks = list(snapshot.encode(state))
    del chunks[dropped]
    with pytest.raises(Invalid, match="snapshot is"):
        snapshot.decode(chunks)


def test_a_cut_stream_says_that_it_is_incomplete(state: Snapshot) -> None:
    with pytest.raises(Invalid, match="incomplete"):
        snapshot.decode(list(snapshot.encode(state))[:-1])


@pytest.mark.parametrize("chunks", [[], [b""], [b"nonsense"], [b"\xc1"]])
def test_garbage_is_refused(chunks: list[bytes]) -> None:
    with pytest.raises(Invalid, match="broken"):
        snapshot.decode(chunks)


def test_another_format_is_refused_by_its_number() -> None:
    header = msgspec.msgpack.encode(snapshot.Header(4, 0, {}))
    with pytest.raises(Invalid, match="format 4, this version reads 1 to 3"):
        snapshot.decode([header])


def test_a_snapshot_of_newer_rules_is_refused(state: Snapshot) -> None:
    assert state.rules == RULES_VERSION, "the newest rules that a command followed"
    header, *chunks = snapshot.encode(state)
    read = msgspec.msgpack.decode(header, type=snapshot.Header)
    assert read.rules == RULES_VERSION and read.format == snapshot.FORMAT, "which versions without rules cannot read"
    newer = msgspec.msgpack.encode(snapshot.Header(read.format, read.index, read.tables, RULES_VERSION + 1))
    with pytest.raises(Invalid, match=f"follows rules {RULES_VERSION + 1}, this version applies {RULES_VERSION}"):
        snapshot.decode([newer, *chunks])


def test_a_state_keeps_the_newest_rules_that_a_command_followed() -> None:
    replica = Replica(rules_version=UNPUBLISHED_RULES)
    replica.apply(RegisterJob(job=factories.job()))
    (header, *_) = snapshot.encode(replica.state)
    assert msgspec.msgpack.decode(header, type=snapshot.Header).format == 2, "versions that publish no rules read it"
    newer = apply(replica.state, replace(KeepAlive(), rules_version=RULES_VERSION), index=2).state
    older = apply(newer, replace(KeepAlive(), rules_version=UNPUBLISHED_RULES), index=3).state
    assert newer.rules == older.rules == RULES_VERSION, "it holds rows of the newer rules still"
    assert snapshot.decode(snapshot.encode(older)).rules == RULES_VERSION


def test_a_state_tells_the_rules_of_its_last_command_which_snapshots_keep() -> None:
    newer = apply(Snapshot.empty(), replace(KeepAlive(), rules_version=RULES_VERSION), index=1).state
    older = apply(newer, replace(KeepAlive(), rules_version=DEVICE_PART_RULES - 1), index=2).state
    again = apply(older, replace(KeepAlive(), rules_version=RULES_VERSION), index=3).state
    for state, stores_parts in ((newer, True), (older, False), (again, True)):
        read = snapshot.decode(snapshot.encode(state))
        assert state.stores_device_parts == read.stores_device_parts == stores_parts
        assert (read.rules, read.last_rules) == (RULES_VERSION, state.last_rules)
        assert state.edit(9).commit().stores_device_parts == stores_parts, "a dry run has no command"


def test_a_snapshot_that_does_not_tell_the_rules_of_its_last_command_is_read(state: Snapshot) -> None:
    header, *chunks = snapshot.encode(state)
    fields = msgspec.msgpack.decode(header)
    assert fields.pop("last_rules") == RULES_VERSION
    read = snapshot.decode([msgspec.msgpack.encode(fields), *chunks])
    assert read.last_rules == read.rules == RULES_VERSION
    assert snapshot.digest(read) == snapshot.digest(state)


def test_a_snapshot_of_the_first_format_is_still_read(state: Snapshot) -> None:
    header, *chunks = snapshot.encode(state)
    told = msgspec.msgpack.decode(header, type=snapshot.Header)
    old = [msgspec.msgpack.encode(snapshot.Header(1, told.index, told.tables))]
    for kind, body in map(msgspec.msgpack.decode, chunks):
        rows = [(job, resources, alloc) for job, resources, _, _, alloc in body] if kind == "allocs" else body
        old.append(msgspec.msgpack.encode((kind, rows)))
    assert snapshot.digest(snapshot.decode(old)) == snapshot.digest(state)


def test_score_tables_are_shared_in_the_stream_and_after_it() -> None:
    state = Snapshot.empty()
    job = factories.job(task_groups=(factories.group(count=8),))
    for number in range(9):
        node = factories.node(factories.number_id(number, kind=1))
        state = apply(state, RegisterNode(node=node), index=state.index + 1).state
    evaluation = factories.evaluation(job)
    state = apply(state, RegisterJob(job=job, evaluation=evaluation), index=state.index + 1).state
    plan = scheduler.attempt(state, evaluation, now=factories.NOW, seed=1).plan
    state = apply(state, ApplyPlan(plan=plan), index=state.index + 1).state
    restored = snapshot.decode(snapshot.encode(state))
    assert snapshot.digest(restored) == snapshot.digest(state)
    shown = [score for alloc in restored.allocs.values() if alloc.metrics for score in alloc.metrics.score_meta_data]
    assert len(shown) == 40
    assert len({id(score) for score in shown}) < 20


def test_an_allocation_that_is_there_twice_is_told(state: Snapshot) -> None:
    chunks = list(snapshot.encode(state))
    allocs = next(chunk for chunk in chunks[1:] if msgspec.msgpack.decode(chunk)[0] == "allocs")
    with pytest.raises(Invalid, match="an allocation twice"):
        snapshot.decode([*chunks[:-1], allocs, chunks[-1]])


def test_digests_tell_states_apart(state: Snapshot) -> None:
    changed = state.edit(state.index + 1).commit()
    assert snapshot.digest(changed) != snapshot.digest(state)
