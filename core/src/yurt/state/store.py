"""The complete state at one log index, and transactions that lead to the next.

A snapshot holds the roots of the tables: taking one costs nothing, and what it shows never changes. `Transaction`
gathers the edits of one command; `commit` gives the next snapshot, and `changes` says what changed for watches, the
event stream and the columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import partial
from itertools import compress, islice, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec

from yurt.state.persistent_table import Table, TableEditor
from yurt.state.schema import TableSchema
from yurt.state.tables import FIRST_INDEX, TABLES, Tables
from yurt.structs.alloc import Allocation
from yurt.structs.cluster import AutopilotConfiguration, SchedulerConfiguration
from yurt.structs.deployment import Deployment
from yurt.structs.job import Job
from yurt.structs.rules import DEVICE_PART_RULES

if TYPE_CHECKING:
    from yurt.state.columns import Columns
    from yurt.structs.plan import Plan

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Change(NamedTuple):
    """A written row: `before` is None for an insert, `after` for a deletion."""

    table: str
    key: Hashable
    before: Any
    after: Any


_change: Callable[[tuple[str, Hashable, Any, Any]], Change] = partial(tuple.__new__, Change)
"""A `Change` of four parts, made in a third of the time of the constructor."""

Changes = tuple[Change, ...]
_table_of: Callable[[Change], str] = itemgetter(0)


def has_change_of(changes: Changes, table: str) -> bool:
    """Whether a row of the table changed: for duties that follow few tables, as a plan writes thousands of rows."""
    return table in map(_table_of, changes)


def has_change_among(changes: Changes, tables: frozenset[str]) -> bool:
    """Whether a row of one of the tables changed."""
    return not tables.isdisjoint(map(_table_of, changes))


def without_plain_placements(changes: Changes) -> Changes:
    """The changes without new allocations that replace none and have no health and no idle state.

    Most duties of a leader ignore those, and a plan places thousands: they are left out once for all duties.
    """
    return tuple(
        [
            change
            for change in changes
            if change[0] != "allocs"
            or change[2] is not None
            or change[3].reschedule_tracker is not None
            or change[3].deployment_status is not None
            or change[3].idle is not None
        ]
    )


COLUMNS_WORK: Final = {name: schema.columns_work for name, schema in TABLES.items() if schema.columns_work}
"""The cost of counting a row change in the columns, by table."""
CHECKED_EACH = 64
"""One command in this number has its edits checked; chosen by index, so that every replica checks the same ones."""
CHECKED_NODES = 2
"""The number of nodes whose columns are then compared with their allocations."""
CHECKED_CHANGES = 32
"""The number of changes of such a command whose rows, index entries and columns are checked."""
LATER_MAX = 2_000
"""The maximum cost of pending changes; a commit beyond it counts them in the columns at once."""


class _Origin:
    """The columns of a snapshot, or None while they are being built."""

    __slots__ = ("columns",)

    def __init__(self, columns: Columns | None = None) -> None:
        self.columns = columns


class _Later(msgspec.Struct, frozen=True):
    """The columns of an earlier snapshot, and the changes since then."""

    origin: _Origin
    changes: tuple[Changes, ...]
    work: int


class Followed(msgspec.Struct, frozen=True):
    """The versions of the rules that the commands up to an index followed."""

    newest: int = 0
    last: int = 0


NO_RULES: Final = Followed()


class Snapshot(Tables):
    """The state at `index`; immutable."""

    __slots__ = ("_columns", "_later", "ahead", "index", "last_rules", "rules")

    def __init__(
        self,
        index: int,
        tables: dict[str, Table[Any, Any]],
        columns: Columns | None = None,
        later: _Later | None = None,
        *,
        ahead: tuple[Plan, ...] = (),
        followed: Followed = NO_RULES,
    ) -> None:
        self._tables = self.__dict__ = tables
        self.index = index
        self.rules = followed.newest
        """The newest rules that a command up to `index` followed: older versions do not know all that the rows hold."""
        self.last_rules = followed.last
        """The rules that the command at `index` followed: lower than `rules` once a server of the region went back to
        an older version."""
        self.ahead = ahead
        """Plans in flight: the columns count their usage, the tables do not show them."""
        self._columns = columns
        self._later = later

    @property
    def stores_device_parts(self) -> bool:
        """Whether the region's log has the part of a device that a share counts as.

        Until all servers of a region know the parts, its leader leaves them out of each plan. Plans must count as the
        log will: a share without its part may count as a whole device. The last command tells, as an evaluation
        follows one, and all servers and replays see the same.
        """
        return self.last_rules >= DEVICE_PART_RULES

    @property
    def columns(self) -> Columns:
        """The columnar view: built on first use, then maintained incrementally by later snapshots.

        What some commands changed is counted together, when somebody asks again. The module is imported only then:
        numpy would be a fifth of the start-up of an agent.
        """
        later = self._later
        if self._columns is None and later is not None and later.origin.columns is not None:
            changed = (change for changes in later.changes for change in changes)
            self._columns = later.origin.columns.apply(changed)
            self._later = None
            if self.index % CHECKED_EACH == 0 and not self.ahead:
                self._check_columns(self._columns, later.changes[-1])
        if self._columns is None:
            from yurt.state.columns import Columns

            self._columns = Columns.rebuild(self.nodes.values(), self.allocs.values())
            if later is not None and not later.changes:
                later.origin.columns = self._columns
        return self._columns

    def _check_columns(self, columns: Columns, changes: Changes) -> None:
        """Assert that the columns of a sample of nodes equal the tables; a rebuild of all would block the loop."""
        from yurt.state.columns import amounts_used

        rows = [row for change in islice(changes, CHECKED_CHANGES) if change.table == "allocs" for row in change[2:]]
        for node_id in sorted({row.node_id for row in rows if row is not None})[:CHECKED_NODES]:
            row = columns.rows.get(node_id)
            counted = [0] * len(amounts_used(())) if row is None else columns.used_on(row)
            assert counted == amounts_used(self.allocs.each_where("node", node_id)), (node_id, self.index, counted)

    def release_changes(self) -> None:
        """Apply pending changes to the columns, which frees deleted rows."""
        if self._later is not None and self._later.changes and self._later.origin.columns is not None:
            assert self.columns is not None

    def columns_maker(self) -> Callable[[], Columns]:
        """Builds the columns in a thread; later snapshots apply their changes once they are available."""
        if self._columns is None and self._later is None:
            self._later = _Later(_Origin(), (), 0)
        return lambda: self.columns

    @classmethod
    def empty(cls) -> Snapshot:
        """The state before the first command, at index 0, with the default namespace and the built-in node pools."""
        return cls(
            0,
            {
                name: schema.with_rows(schema.built_in, index=FIRST_INDEX) if schema.built_in else schema.empty()
                for name, schema in TABLES.items()
            },
        )

    def table(self, name: str) -> Table[Any, Any]:
        """A table by name."""
        return self._tables[name]

    def tables(self) -> Iterator[Table[Any, Any]]:
        """All tables, in a fixed order."""
        return iter(self._tables.values())

    @property
    def scheduler_config(self) -> SchedulerConfiguration:
        """The scheduler's configuration, or its defaults."""
        return self.scheduler_configurations.get("") or SchedulerConfiguration()

    @property
    def autopilot_config(self) -> AutopilotConfiguration:
        """The autopilot configuration, or its defaults."""
        return self.autopilot_configurations.get("") or AutopilotConfiguration()

    def version(self, namespace: str, job_id: str, version: int) -> Job | None:
        """A retained job version, possibly the current one."""
        return self.job_versions.get((namespace, job_id, version))

    def allocs_of_job(self, namespace: str, job_id: str) -> tuple[Allocation, ...]:
        """All allocations of a job, in id order."""
        return self.allocs.where("job", (namespace, job_id))

    def allocs_of_node(self, node_id: str) -> tuple[Allocation, ...]:
        """All allocations of a node, in id order."""
        return self.allocs.where("node", node_id)

    def latest_deployment(self, namespace: str, job_id: str) -> Deployment | None:
        """The job's newest deployment."""
        deployments = self.deployments.where("job", (namespace, job_id))
        return max(deployments, key=lambda deployment: deployment.create_index, default=None)

    def with_columns(self, columns: Columns, ahead: tuple[Plan, ...]) -> Snapshot:
        """The same rows with other columns, which include plans in flight."""
        return Snapshot(self.index, self._tables, columns, ahead=ahead, followed=Followed(self.rules, self.last_rules))

    def edit(self, index: int) -> Transaction:
        """Start the changes of the command at `index`."""
        assert index > self.index, (index, self.index)
        return Transaction(self, index)


class Transaction:
    """The edits of one command. `get` sees earlier edits of the transaction.

    `get` and the counts of `apply` find the newest form of a table without a further call: they are the hottest reads.
    """

    def __init__(self, base: Snapshot, index: int) -> None:
        self.base = base
        self.index = index
        self._editors: dict[str, TableEditor[Any, Any]] = {}
        self._changes: dict[tuple[str, Hashable], Change] = {}

    def get(self, table: TableSchema[K, V], key: K) -> V | None:
        """A row including the edits so far, or None."""
        name = table.name
        return (self._editors.get(name) or self.base._tables[name]).get(key)

    def reader(self, table: TableSchema[K, V]) -> Callable[[K], V]:
        """A reader of existing rows, for many reads without an edit of the table between them."""
        return self._newest(table).__getitem__

    def rows(self, table: TableSchema[K, V], keys: Iterable[K]) -> list[V]:
        """The rows of existing keys, including the edits so far."""
        return self._newest(table).rows(keys)

    def present(self, table: TableSchema[K, V], keys: Iterable[K]) -> list[K]:
        """The keys that have a row, including the edits so far."""
        return self._newest(table).present(keys)

    def keys_where(self, table: TableSchema[K, V], column: str, value: Hashable) -> tuple[K, ...]:
        """The keys of the rows with this index key, including the edits so far, sorted."""
        name = table.name
        return (self._editors.get(name) or self.base._tables[name]).keys_where(column, value)

    def count_where(self, table: TableSchema[K, V], column: str, value: Hashable) -> int:
        """The number of rows with this index key, including the edits so far."""
        name = table.name
        return (self._editors.get(name) or self.base._tables[name]).count_where(column, value)

    def put(self, table: TableSchema[K, V], key: K, row: V) -> None:
        """Insert or replace a row."""
        self._record(table.name, key, self._editor(table).put(key, row), row)

    def put_alike(self, table: TableSchema[K, V], key: K, row: V) -> None:
        """Replace a row by one with the same index keys, which are not compared; insert it where it is missing."""
        self._record(table.name, key, self._editor(table).put_alike(key, row), row)

    def put_new(self, table: TableSchema[K, V], rows: Mapping[K, V]) -> None:
        """Insert new rows."""
        self._editor(table).put_new(rows)
        name = table.name
        changes = map(_change, zip(repeat(name), rows, repeat(None), rows.values(), strict=False))
        self._changes.update(zip(zip(repeat(name), rows), changes, strict=False))

    def delete(self, table: TableSchema[K, V], key: K) -> None:
        """Delete a row if it exists."""
        before = self._editor(table).delete(key)
        if before is not None:
            self._record(table.name, key, before, None)

    @property
    def changes(self) -> Changes:
        """The changes, one per row, in the order of the first edit."""
        return tuple(self._changes.values())

    def commit(self, rules: int | None = None) -> Snapshot:
        """The state after the edits, at the transaction's index.

        `rules` are those that its command follows; None for edits without a command, as of a dry run.
        """
        tables = dict(self.base._tables)
        for name, editor in self._editors.items():
            tables[name] = editor.finish(self.index)
        # On some commands only, and on a bounded number of rows, because this runs in `apply` on every server.
        if self.index % CHECKED_EACH == 0:
            self._check_sums(tables)
            self._check_rows(tables)
        return self._with_columns(
            Snapshot(
                self.index,
                tables,
                ahead=self.base.ahead,
                followed=Followed(max(self.base.rules, rules or 0), self.base.last_rules if rules is None else rules),
            )
        )

    def _check_sums(self, tables: Mapping[str, Table[Any, Any]]) -> None:
        """Assert that the edits equal `changes`, on which watchers and columns depend."""
        growth: Counter[str] = Counter()
        for change in self._changes.values():
            assert change.table in self._editors, f"a change of {change.table}, which was not edited"
            growth[change.table] += (change.after is not None) - (change.before is not None)
        for name in self._editors:  # `commit` takes the other tables from the base as they are
            assert len(tables[name]) == len(self.base._tables[name]) + growth[name], (
                f"{name} has rows without a recorded change"
            )

    def _check_rows(self, tables: Mapping[str, Table[Any, Any]]) -> None:
        """Assert for a sample of changes that their old and new rows match the tables and the indexes."""
        for name, editor in self._editors.items():
            editor.check(tables[name])
        for name, key, before, after in islice(self._changes.values(), CHECKED_CHANGES):
            was, now = self.base._tables[name], tables[name]
            assert was.get(key) is before, f"{name}: a change tells of a row that was not there"
            assert now.get(key) is after, f"{name}: a change tells of a row that is not there"
            for column, value in () if after is None else now.index_keys(after):
                assert now.has_key(column, value, key), f"{name}: the index {column} lacks a row"
            for column, value in () if before is None or after is None else was.index_keys(before):
                still = (column, value) in now.index_keys(after)
                assert still == now.has_key(column, value, key), f"{name}: the index {column} has an old entry"

    def _with_columns(self, after: Snapshot) -> Snapshot:
        """The resulting state, with the previous columns updated."""
        base = self.base
        later, columns = base._later, base._columns
        # In C: a plan writes thousands of rows.
        written = self._changes.values()
        changes = tuple(compress(written, map(COLUMNS_WORK.__contains__, map(_table_of, written))))
        if not changes or (columns is None and later is None):
            after._columns, after._later = columns, later
            return after
        work = sum(map(COLUMNS_WORK.__getitem__, map(_table_of, changes)))
        if columns is not None:
            after._later = _Later(_Origin(columns), (changes,), work)
        elif later is not None:
            after._later = _Later(later.origin, (*later.changes, changes), later.work + work)
        # Readers pay for columns, not writers; but without a bound one reader would pay for all pending changes.
        follows = after._later
        if follows is not None and follows.work > LATER_MAX and follows.origin.columns is not None:
            assert after.columns is not None
        return after

    def _newest(self, table: TableSchema[K, V]) -> Table[K, V] | TableEditor[K, V]:
        """The table including the edits so far."""
        name = table.name
        return self._editors.get(name) or self.base._tables[name]

    def _editor(self, table: TableSchema[K, V]) -> TableEditor[K, V]:
        name = table.name
        editor = self._editors.get(name)
        if editor is None:
            editor = self._editors[name] = TableEditor(self.base._tables[name])
        return editor

    def _record(self, table: str, key: Hashable, before: object, after: object) -> None:
        place = (table, key)
        first = self._changes.get(place)
        self._changes[place] = _change((table, key, first.before if first else before, after))
