"""The bytes of snapshots and what digests are made of do not change: what an earlier version wrote is compared.

`python tests/fsm/test_golden.py` writes them anew: only where the format itself changes, with a new `FORMAT`.
"""

from __future__ import annotations

import gzip
import hashlib
from operator import itemgetter
from pathlib import Path

from yurt.fsm import snapshot
from yurt.fsm.restore import framed, unframed
from yurt.sdk.value import replace
from yurt.state import Snapshot
from yurt.testing.every_table import every_table

FILE = Path(__file__).parent / "golden" / "snapshot-2.bin.gz"
ORDER = (
    "jobs", "job_versions", "job_summaries", "job_submissions", "scaling_events", "nodes", "evals", "allocs",
    "deployments", "services", "variables", "root_keys", "namespaces", "node_pools", "scheduler_config",
    "autopilot_config", "periodic_launches", "schemas", "restore_chunks", "staged_plans", "csi_volumes",
    "host_volumes", "host_volume_claims",
)  # fmt: skip
"""The tables in the order of snapshots and digests; new ones come at the end."""


def test_a_state_with_rows_in_every_table_is_written_as_it_always_was() -> None:
    state = every_table().commit()
    assert all(len(table) for table in state.tables())
    assert b"".join(framed(snapshot.encode(state))) == gzip.decompress(FILE.read_bytes())


def test_a_snapshot_of_an_earlier_version_is_read_whole() -> None:
    restored = snapshot.decode(unframed(gzip.decompress(FILE.read_bytes())))
    assert _rows(restored) == _rows(every_table().commit())


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


def _rows(state: Snapshot) -> dict[str, object]:
    return {table.name: (table.index, dict(table.items())) for table in state.tables()}


if __name__ == "__main__":
    FILE.write_bytes(gzip.compress(b"".join(framed(snapshot.encode(every_table().commit()))), mtime=0))
