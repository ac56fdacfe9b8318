"""How much of etcd's quota counts as taken: by which file, by what was appended since, by the next compaction."""

from __future__ import annotations

from yurt.storage.etcd.membership import EtcdStatus
from yurt.storage.etcd.quota_usage import (
    ASK_MAX_S,
    ASK_S,
    COMPACT_FULL_S,
    FORGOTTEN_S,
    GROWTH,
    MARKS_MAX,
    SETTLE_S,
    SILENT_S,
    Appended,
    EtcdQuotaUsage,
)
from yurt.storage.log import DatabaseSize

QUOTA = 1_000


def seen(size: int, revision: int, *, in_use: int = 0) -> EtcdStatus:
    return EtcdStatus(
        member_id=1,
        leader_id=1,
        version="3.4.23",
        raft_term=1,
        raft_index=1,
        applied_index=1,
        size=size,
        size_in_use=in_use,
        revision=revision,
    )


def quota_usage(size: int = 0) -> EtcdQuotaUsage:
    """Those of a server whose member's file was looked at twice, at revision 10."""
    made = EtcdQuotaUsage(QUOTA, name="srv1")
    made.look(seen(size, 10))
    made.look(seen(size, 10))
    return made


def test_the_largest_file_counts_whoevers_it_is() -> None:
    known = quota_usage(300)
    known.record("srv2", DatabaseSize(size=500, revision=10))
    known.record("srv3", DatabaseSize(size=400, revision=10))
    assert known.largest(0.0) == (500, "srv2")


def test_what_was_appended_counts_on_top_of_a_file_until_it_is_seen_there() -> None:
    known = quota_usage(300)
    known.record("srv2", DatabaseSize(size=310, revision=12))
    known.appended.add(11, 50)
    known.appended.add(13, 20)
    assert known.largest(0.0) == (300 + GROWTH * 70, "srv1")
    known.look(seen(350, 13))  # what it stored just now may show only the next time
    assert known.largest(0.0) == (350 + GROWTH * 70, "srv1")
    known.look(seen(370, 13))
    assert known.largest(0.0) == (370, "srv1")


def test_a_server_that_does_not_answer_counts_as_it_was_and_then_no_more() -> None:
    known = quota_usage(100)
    known.record("srv2", DatabaseSize(size=800, revision=10))
    known.record_query(1.0)
    known.record_query(2.0)
    known.appended.add(11, 40)
    assert known.largest(1.0 + SILENT_S / 2)[0] == 800 + GROWTH * 40
    assert known.largest(1.0 + SILENT_S) == (800, "srv2")
    assert known.largest(1.0 + FORGOTTEN_S) == (100 + GROWTH * 40, "srv1")
    known.record("srv2", DatabaseSize(size=700, revision=11))
    assert known.largest(1.0 + FORGOTTEN_S) == (700, "srv2")


def test_no_entry_is_appended_that_the_next_compaction_leaves_no_room_for() -> None:
    known = quota_usage(600)
    known.appended.add(11, 90)
    known.look(seen(600, 12))
    known.look(seen(600, 12))
    assert not known.is_full(150, 0.0)
    assert known.is_full(155, 0.0)
    assert known.next_compaction(0.0) == 0
    assert known.next_compaction(0.0) == 11
    known.compacted(11, now=0.0)
    assert known.next_compaction(0.0) == 0
    assert known.is_full(155, SETTLE_S / 2)
    assert not known.is_full(155, SETTLE_S)


def test_while_an_entry_has_no_room_etcd_forgets_what_was_deleted_and_the_others_are_asked() -> None:
    """Who deleted entries may have lost its term before it had them forgotten; nothing is appended that would."""
    known = quota_usage(400)
    known.record_query(0.0)
    assert known.next_compaction(0.0) == 0
    assert not known.is_asking_due(ASK_MAX_S)
    assert known.is_full(300, 0.0)
    known.refused(300)
    assert known.is_asking_due(ASK_S)
    assert known.next_compaction(0.0) == 10
    known.compacted(10, now=0.0)
    known.look(seen(400, 12))
    assert known.next_compaction(COMPACT_FULL_S / 2) == 0
    assert known.next_compaction(COMPACT_FULL_S) == 12


def test_a_tenth_of_the_quota_stays_free() -> None:
    assert not quota_usage(899).is_full(1, 0.0)
    assert quota_usage(900).is_full(1, 0.0)


def test_the_others_are_asked_as_the_log_grows_and_while_a_file_is_large() -> None:
    known = quota_usage(100)
    assert not known.is_asking_due(0.0)
    known.appended.add(11, 10)
    assert known.is_asking_due(0.0)
    known.record_query(0.0)
    assert not known.is_asking_due(100.0)
    known.look(seen(600, 11))
    assert not known.is_asking_due(ASK_S)
    assert known.is_asking_due(ASK_MAX_S)
    known.appended.add(12, 1)
    assert known.is_asking_due(ASK_S)


def test_a_file_that_is_being_rewritten_grows_from_what_is_in_use() -> None:
    known = quota_usage()
    known.look(seen(800, 10, in_use=200))
    assert known.is_loose
    known.rewrite()
    assert known.largest(0.0) == (200, "srv1")
    assert not known.is_loose


def test_appended_bytes_are_counted_once_and_never_too_low_where_marks_are_left_out() -> None:
    appended = Appended()
    for revision in range(1, 2 * MARKS_MAX):
        appended.add(revision, 3)
        appended.add(revision, 3)
    newest = 2 * MARKS_MAX - 1
    assert appended.newest == newest
    for revision in range(newest + 1):
        exact = 3 * (newest - revision)
        assert exact <= appended.since(revision) <= exact + 3 * 4
    assert appended.since(newest) == 0
