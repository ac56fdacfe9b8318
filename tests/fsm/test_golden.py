"""The bytes of snapshots and what digests are made of do not change: what an earlier version wrote is compared.

Tables that came later are at the end and are left out of the comparison.
"""

from __future__ import annotations

import gzip
import hashlib
from operator import itemgetter
from pathlib import Path

import msgspec
from yurt.fsm import snapshot
from yurt.fsm.restore import unframed
from yurt.sdk.value import replace
from yurt.state import Snapshot
from yurt.testing.rows.every_table import every_table

FILE = Path(__file__).parent / "golden" / "snapshot-2.bin.gz"
ORDER = (
    "jobs", "job_versions", "job_summaries", "job_submissions", "scaling_events", "nodes", "evals", "allocs",
    "deployments", "services", "variables", "root_keys", "namespaces", "node_pools", "scheduler_config",
    "autopilot_config", "periodic_launches", "schemas", "restore_chunks", "staged_plans", "csi_volumes",
    "host_volumes", "host_volume_claims",
)  # fmt: skip
"""The tables in the order of snapshots and digests; new ones come at the end."""


def test_a_state_is_written_as_it_always_was() -> None:
    header, *chunks, end = snapshot.encode(every_table().commit())
    old_header, *old_chunks, old_end = _written_earlier()
    assert chunks == old_chunks
    assert end == old_end
    found, old = (msgspec.msgpack.decode(each, type=snapshot.Header) for each in (header, old_header))
    assert (found.format, found.index) == (old.format, old.index) == (2, 7)
    assert list(found.tables.items())[: len(ORDER)] == list(old.tables.items())
    assert not any(list(found.tables.values())[len(ORDER) :])


def test_a_snapshot_of_an_earlier_version_is_read_whole() -> None:
    restored, expected = snapshot.decode(_written_earlier()), every_table().commit()
    assert {name: _content(restored, name) for name in ORDER} == {name: _content(expected, name) for name in ORDER}
    assert all(len(restored.table(name)) for name in ORDER)


def test_digests_are_made_of_the_tables_in_one_order() -> None:
    state = every_table().commit()
    assert tuple(table.name for table in state.tables())[: len(ORDER)] == ORDER
    hasher = hashlib.blake2b(b"7", digest_size=16)
    for table in state.tables():
        hasher.update(repr((table.name, table.index, len(table))).encode())
        for key, row in sorted(table.items(), key=itemgetter(0)):
            job = getattr(row, "job", None)
            whose = "" if job is None else hashlib.blake2b(repr(job).encode(), digest_size=16).hexdigest()
            hasher.update(repr((key, whose, row if job is None else replace(row, job=None))).encode())
    assert snapshot.digest(state) == hasher.hexdigest()


def _written_earlier() -> list[bytes]:
    return list(unframed(gzip.decompress(FILE.read_bytes())))


def _content(state: Snapshot, name: str) -> tuple[int, dict[object, object]]:
    return state.table(name).index, dict(state.table(name).items())
