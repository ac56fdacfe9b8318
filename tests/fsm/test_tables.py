"""What holds of every table, from its declaration alone: a new table is tested here without a line."""

from __future__ import annotations

from collections.abc import Hashable
from hashlib import sha256
from typing import Any

import pytest
from yurt.fsm import snapshot
from yurt.fsm.restore import framed
from yurt.state import TABLES, Snapshot, Tables
from yurt.state.schema import OnRestore
from yurt.structs.commands import FinishRestore, StageRestore
from yurt.testing.replica import Replica
from yurt.testing.rows.filled import filled

ALL = pytest.mark.parametrize("name", TABLES)


def row_of(name: str, number: int) -> tuple[Hashable, Any]:
    """A row with something in every field, and its key."""
    table = TABLES[name]
    row = filled(table.codec.row_type, number)
    return filled(table.codec.key_type, number) if table.key_of is None else table.key_of(row), row


def state_of(name: str, *numbers: int) -> Snapshot:
    """The state at index 9 with these rows in a table."""
    edit = Snapshot.empty().edit(9)
    for number in numbers:
        edit.put(TABLES[name], *row_of(name, number))
    return edit.commit()


def rows(state: Snapshot, name: str) -> dict[Hashable, Any]:
    """The rows of a table that commands made."""
    return {key: row for key, row in state.table(name).items() if (key, row) not in TABLES[name].built_in}


@ALL
def test_a_row_survives_a_snapshot_with_all_its_fields(name: str) -> None:
    state = state_of(name, 1, 2)
    restored = snapshot.decode(snapshot.encode(state))
    assert rows(restored, name) == rows(state, name)
    assert snapshot.digest(restored) == snapshot.digest(state)


@ALL
def test_a_digest_tells_rows_apart(name: str) -> None:
    found = [snapshot.digest(state_of(name, *numbers)) for numbers in ((), (1,), (2,))]
    assert len(set(found)) == 3


@ALL
def test_a_restore_replaces_merges_or_clears_the_rows_of_the_cluster(name: str) -> None:
    replica = Replica(state_of(name, 1))
    data = b"".join(framed(snapshot.encode(state_of(name, 2))))
    replica.apply(
        StageRestore(restore_id="r", number=0, data=data),
        FinishRestore(restore_id="r", count=1, digest=sha256(data).hexdigest()),
    )
    kept = {OnRestore.REPLACE: (2,), OnRestore.MERGE: (1, 2), OnRestore.KEEP: (1,)}.get(TABLES[name].on_restore, ())
    if name == Tables.restore_chunks.name:
        kept = ()  # the restore ends with them
    assert set(rows(replica.state, name)) == {row_of(name, number)[0] for number in kept}


@ALL
def test_a_row_is_found_by_its_indexes_until_it_is_deleted(name: str) -> None:
    table, (key, row), state = TABLES[name], row_of(name, 1), state_of(name, 1)
    found = list(state.table(name).index_keys(row))
    assert {column for column, _ in found} <= set(table.indexes)
    assert all(state.table(name).keys_where(column, value) == (key,) for column, value in found)
    edit = state.edit(10)
    edit.delete(table, key)
    assert not any(edit.commit().table(name).count_where(column, value) for column, value in found)


@ALL
def test_a_row_that_names_a_namespace_belongs_to_it(name: str) -> None:
    table, (key, row) = TABLES[name], row_of(name, 1)
    if hasattr(row, "namespace"):
        assert table.namespace_of is not None and table.namespace_of(key, row) == row.namespace
    elif table.namespace_of is not None:
        assert isinstance(table.namespace_of(key, row), str)
