"""The basis of a command: rows that must be unchanged since its proposer read them.

A decision that is too large for `apply` (the admission of a job, garbage collection, a drain) is made on a snapshot
before the command is proposed. Commands of others may reach the log in between. The command therefore names the rows
that it depends on, and `apply` rejects it when one of them has changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from yurt.fsm.reject import invalid, stale
from yurt.state import TABLES, Snapshot
from yurt.structs.commands import Expectation, Rejected
from yurt.structs.job import Job

Key = str | tuple[str | int, ...]


def expectation(state: Snapshot, table: str, key: Key) -> Expectation:
    """The expectation for a row as its proposer read it."""
    return Expectation(table=table, key=key, index=_index_of(state.table(table).get(key)))


def changed_basis(state: Snapshot, expected: Iterable[Expectation]) -> Rejected | None:
    """The rejection of a command if one of the rows it is based on has changed, else None."""
    for each in expected:
        if each.table not in TABLES:
            return invalid(f'the command is based on the unknown table "{each.table}"')
        index = _index_of(state.table(each.table).get(each.key))
        if index != each.index:
            key = each.key if isinstance(each.key, str) else "/".join(map(str, each.key))
            return stale(f"{each.table} {key} changed at index {index}; the decision was based on index {each.index}")
    return None


def _index_of(row: Any) -> int:
    """The index at which a row was written; for a job, its specification, since the status changes separately."""
    if row is None:
        return 0
    index: int = row.job_modify_index if isinstance(row, Job) else row.modify_index
    return index
