"""The whole state at one log index, and the transaction that leads to the next.

A snapshot is a tuple of table roots: taking one costs nothing, and what it shows never changes. `Transaction`
gathers the edits of one command; `commit` gives the next snapshot, and `changes` says what changed for watches, the
event stream and the columns.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import partial
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from yurt.state.table import Table, TableEditor
from yurt.structs.alloc import Allocation
from yurt.structs.cluster import AutopilotConfiguration, Namespace, NodePool, SchedulerConfiguration
from yurt.structs.deployment import Deployment
from yurt.structs.evaluation import Evaluation
from yurt.structs.host_volume import HostVolume, TaskGroupHostVolumeClaim
from yurt.structs.job import Job, JobScalingEvents, JobSubmission
from yurt.structs.node import Node
from yurt.structs.questions import asks_csi, is_eval_terminal, is_terminal, runs_csi_plugin
from yurt.structs.service import ServiceRegistration
from yurt.structs.summary import JobSummary
from yurt.structs.variable import EncryptedVariable, RootKeyMeta

if TYPE_CHECKING:
    from yurt.state.columns import Columns
    from yurt.structs.plan import Plan

JobKey = tuple[str, str]
VersionKey = tuple[str, str, int]

INDEXES: dict[str, dict[str, Any]] = {
    "jobs": {
        "parent": lambda job: (job.namespace, job.parent_id) if job.parent_id else None,
        "token": lambda job: (
            (job.namespace, job.parent_id, job.dispatch_idempotency_token) if job.dispatch_idempotency_token else None
        ),
        "system": lambda job: "system" if job.type in ("system", "sysbatch") else None,
        "csi": lambda job: job.namespace if asks_csi(job) else None,
        "csi_plugin": lambda job: "csi_plugin" if runs_csi_plugin(job) else None,
        "periodic": lambda job: "periodic" if job.periodic is not None else None,
    },
    "job_versions": {"job": lambda job: (job.namespace, job.id)},
    "job_summaries": {},
    "job_submissions": {},
    "scaling_events": {},
    "nodes": {},
    "evals": {
        "job": lambda evaluation: (evaluation.namespace, evaluation.job_id),
        "live": lambda evaluation: None if is_eval_terminal(evaluation) else (evaluation.namespace, evaluation.job_id),
        "status": lambda evaluation: None if is_eval_terminal(evaluation) else evaluation.status,
    },
    "allocs": {
        "node": attrgetter("node_id"),
        "job": attrgetter("namespace", "job_id"),
        "live": lambda alloc: None if is_terminal(alloc) else (alloc.namespace, alloc.job_id),
        "eval": attrgetter("eval_id"),
        "deployment": attrgetter("deployment_id"),
    },
    "deployments": {"job": lambda deployment: (deployment.namespace, deployment.job_id)},
    "services": {
        "name": lambda service: (service.namespace, service.service_name),
        "job": lambda service: (service.namespace, service.job_id),
        "alloc": lambda service: service.alloc_id,
        "node": lambda service: service.node_id,
    },
    "variables": {
        "root_key": lambda variable: variable.key_id,
        "locked": lambda variable: "locked" if variable.lock is not None else None,
    },
    "root_keys": {},
    "namespaces": {},
    "node_pools": {},
    "scheduler_config": {},
    "autopilot_config": {},
    "periodic_launches": {},
    "schemas": {},
    "restore_chunks": {},
    "staged_plans": {},
    "csi_volumes": {},
    "host_volumes": {"node": attrgetter("node_id"), "name": attrgetter("name")},
    "host_volume_claims": {
        "job": attrgetter("namespace", "job_id"),
        "group": attrgetter("namespace", "job_id", "task_group_name"),
        "volume": attrgetter("volume_id"),
    },
}
"""Tables and their secondary indexes; `live` holds what is not terminal, by job, and `status` by status."""

DEFAULT_NAMESPACE = "default"
BUILT_IN_POOLS = ("all", "default")
FIRST_INDEX = 1
"""The index of the rows that exist before any command."""


def built_in_rows() -> dict[str, list[tuple[str, Any]]]:
    """The rows that exist before any command, by table."""
    pools = {"all": "Node pool with all nodes in the cluster.", "default": "Default node pool."}
    namespace = Namespace(
        name=DEFAULT_NAMESPACE,
        description="Default shared namespace",
        create_index=FIRST_INDEX,
        modify_index=FIRST_INDEX,
    )
    return {
        "namespaces": [(DEFAULT_NAMESPACE, namespace)],
        "node_pools": [
            (name, NodePool(name=name, description=pools[name], create_index=FIRST_INDEX, modify_index=FIRST_INDEX))
            for name in BUILT_IN_POOLS
        ],
    }


class Change(NamedTuple):
    """One row written: `before` is None for an insert, `after` for a deletion."""

    table: str
    key: Hashable
    before: Any
    after: Any


_change: Callable[[tuple[str, Hashable, Any, Any]], Change] = partial(tuple.__new__, Change)
"""A change of its four parts, in a third of the time of the class itself."""

Changes = tuple[Change, ...]


COLUMNS_WORK = {"allocs": 1, "nodes": 8}
"""What it takes to count a change of a table that the columns show."""
LATER_MAX = 2_000
"""How much may wait to be counted in the columns until somebody asks."""


class _Origin:
    """The columns of some snapshot, or None while they are being made."""

    __slots__ = ("columns",)

    def __init__(self, columns: Columns | None = None) -> None:
        self.columns = columns


class _Later(NamedTuple):
    """The columns of an earlier snapshot, and what changed since."""

    origin: _Origin
    changes: tuple[Changes, ...]
    work: int


class Snapshot:
    """The state at `index`; immutable."""

    __slots__ = ("_columns", "_later", "_tables", "ahead", "index")

    def __init__(
        self,
        index: int,
        tables: dict[str, Table[Any, Any]],
        columns: Columns | None = None,
        later: _Later | None = None,
        *,
        ahead: tuple[Plan, ...] = (),
    ) -> None:
        self.index = index
        self.ahead = ahead
        """Plans that are on their way into the log: the columns count what they take, the tables do not show them."""
        self._tables = tables
        self._columns = columns
        self._later = later

    @property
    def columns(self) -> Columns:
        """The columnar view: built when first asked for, and kept incrementally by the snapshots that follow.

        What some commands changed is counted together, when somebody asks again. The module is imported only then:
        numpy would be a fifth of the start-up of an agent.
        """
        later = self._later
        if self._columns is None and later is not None and later.origin.columns is not None:
            changed = (change for changes in later.changes for change in changes)
            self._columns = later.origin.columns.apply(changed)
            self._later = None
        if self._columns is None:
            from yurt.state.columns import Columns

            self._columns = Columns.rebuild(self.nodes.values(), self.allocs.values())
            if later is not None and not later.changes:
                later.origin.columns = self._columns
        return self._columns

    def release_changes(self) -> None:
        """Count what waits to be counted in the columns, which holds rows that are deleted meanwhile."""
        if self._later is not None and self._later.changes and self._later.origin.columns is not None:
            assert self.columns is not None

    def columns_maker(self) -> Callable[[], Columns]:
        """Makes the columns in a thread; snapshots that follow meanwhile bring them forward when they are there."""
        if self._columns is None and self._later is None:
            self._later = _Later(_Origin(), (), 0)
        return lambda: self.columns

    @classmethod
    def empty(cls) -> Snapshot:
        """The state before the first command, at index 0: the default namespace and the built-in node pools."""
        tables: dict[str, Table[Any, Any]] = {name: Table(name, extract) for name, extract in INDEXES.items()}
        for name, rows in built_in_rows().items():
            tables[name] = Table.restored(name, INDEXES[name], index=FIRST_INDEX, rows=rows)
        return cls(0, tables)

    def table(self, name: str) -> Table[Any, Any]:
        """A table by name."""
        return self._tables[name]

    def tables(self) -> Iterator[Table[Any, Any]]:
        """All tables, in a fixed order."""
        return iter(self._tables.values())

    @property
    def jobs(self) -> Table[JobKey, Job]:
        """Current jobs by (namespace, id)."""
        return self._tables["jobs"]

    @property
    def job_versions(self) -> Table[VersionKey, Job]:
        """Kept versions by (namespace, id, version)."""
        return self._tables["job_versions"]

    @property
    def job_summaries(self) -> Table[JobKey, JobSummary]:
        """Summaries by (namespace, id)."""
        return self._tables["job_summaries"]

    @property
    def job_submissions(self) -> Table[VersionKey, JobSubmission]:
        """Submitted texts by (namespace, id, version)."""
        return self._tables["job_submissions"]

    @property
    def scaling_events(self) -> Table[JobKey, JobScalingEvents]:
        """Scaling events by (namespace, id)."""
        return self._tables["scaling_events"]

    @property
    def nodes(self) -> Table[str, Node]:
        """Nodes by id."""
        return self._tables["nodes"]

    @property
    def evals(self) -> Table[str, Evaluation]:
        """Evaluations by id."""
        return self._tables["evals"]

    @property
    def allocs(self) -> Table[str, Allocation]:
        """Allocations by id."""
        return self._tables["allocs"]

    @property
    def deployments(self) -> Table[str, Deployment]:
        """Deployments by id."""
        return self._tables["deployments"]

    @property
    def services(self) -> Table[str, ServiceRegistration]:
        """Registered service instances by id."""
        return self._tables["services"]

    @property
    def host_volumes(self) -> Table[str, HostVolume]:
        """Dynamic host volumes by id."""
        return self._tables["host_volumes"]

    @property
    def host_volume_claims(self) -> Table[str, TaskGroupHostVolumeClaim]:
        """Claims of sticky host volumes by id."""
        return self._tables["host_volume_claims"]

    @property
    def variables(self) -> Table[tuple[str, str], EncryptedVariable]:
        """Variables by (namespace, path)."""
        return self._tables["variables"]

    @property
    def root_keys(self) -> Table[str, RootKeyMeta]:
        """What is known of root keys, by id."""
        return self._tables["root_keys"]

    @property
    def namespaces(self) -> Table[str, Namespace]:
        """Namespaces by name."""
        return self._tables["namespaces"]

    @property
    def node_pools(self) -> Table[str, NodePool]:
        """Node pools by name; `default` and `all` always exist."""
        return self._tables["node_pools"]

    @property
    def scheduler_config(self) -> SchedulerConfiguration:
        """The scheduler's configuration, or its defaults."""
        return self._tables["scheduler_config"].get("") or SchedulerConfiguration()

    @property
    def autopilot_config(self) -> AutopilotConfiguration:
        """How servers mind themselves, or the defaults."""
        return self._tables["autopilot_config"].get("") or AutopilotConfiguration()

    def version(self, namespace: str, job_id: str, version: int) -> Job | None:
        """A job at a kept version, the current one included."""
        return self.job_versions.get((namespace, job_id, version))

    def allocs_of_job(self, namespace: str, job_id: str) -> tuple[Allocation, ...]:
        """All allocations of a job, in id order."""
        return self.allocs.where("job", (namespace, job_id))

    def allocs_of_node(self, node_id: str) -> tuple[Allocation, ...]:
        """All allocations of a node, in id order."""
        return self.allocs.where("node", node_id)

    def latest_deployment(self, namespace: str, job_id: str) -> Deployment | None:
        """The job's newest deployment."""
        found = self.deployments.where("job", (namespace, job_id))
        return max(found, key=lambda deployment: deployment.create_index, default=None)

    def with_columns(self, columns: Columns, ahead: tuple[Plan, ...]) -> Snapshot:
        """The same rows beside other columns, which count what plans take that are foreseen but not stored yet."""
        return Snapshot(self.index, self._tables, columns, ahead=ahead)

    def edit(self, index: int) -> Transaction:
        """Start the changes of the command at `index`."""
        assert index > self.index, (index, self.index)
        return Transaction(self, index)


class Transaction:
    """The edits of one command. Reads through `get` see the edits made so far."""

    def __init__(self, base: Snapshot, index: int) -> None:
        self.base = base
        self.index = index
        self._editors: dict[str, TableEditor[Any, Any]] = {}
        self._changes: dict[tuple[str, Hashable], Change] = {}

    def get(self, table: str, key: Hashable) -> Any:
        """A row as edited so far, or None."""
        editor = self._editors.get(table)
        return editor.get(key) if editor is not None else self.base.table(table).get(key)

    def reader(self, table: str) -> Callable[[Any], Any]:
        """`get` of one table, for many reads with no edit of the table between them."""
        return (self._editors.get(table) or self.base.table(table)).get

    def present(self, table: str, keys: Iterable[Any]) -> list[Any]:
        """Those of the keys that have a row as edited so far."""
        return (self._editors.get(table) or self.base.table(table)).present(keys)

    def keys_where(self, table: str, column: str, value: Hashable) -> tuple[Any, ...]:
        """Keys of the rows with that index key as edited so far, sorted."""
        return (self._editors.get(table) or self.base.table(table)).keys_where(column, value)

    def count_where(self, table: str, column: str, value: Hashable) -> int:
        """How many rows have that index key as edited so far."""
        return (self._editors.get(table) or self.base.table(table)).count_where(column, value)

    def put(self, table: str, key: Hashable, row: Any) -> None:
        """Insert or replace a row."""
        self._record(table, key, self._editor(table).put(key, row), row)

    def put_new(self, table: str, rows: Mapping[Any, Any]) -> None:
        """Insert rows of which none is there yet."""
        self._editor(table).put_new(rows)
        changes = map(_change, zip(repeat(table), rows, repeat(None), rows.values(), strict=False))
        self._changes.update(zip(zip(repeat(table), rows), changes, strict=False))

    def delete(self, table: str, key: Hashable) -> None:
        """Remove a row if it is there."""
        before = self._editor(table).delete(key)
        if before is not None:
            self._record(table, key, before, None)

    @property
    def changes(self) -> Changes:
        """What changed, one entry per row, in the order of first touch."""
        return tuple(self._changes.values())

    def commit(self) -> Snapshot:
        """The state after the edits, at the transaction's index."""
        tables = dict(self.base._tables)
        for name, editor in self._editors.items():
            tables[name] = editor.finish(self.index)
        return self._with_columns(Snapshot(self.index, tables))

    def _with_columns(self, after: Snapshot) -> Snapshot:
        """The state that this transaction leads to, with the columns of the one before brought forward."""
        base = self.base
        later, columns = base._later, base._columns
        changes = tuple(change for change in self._changes.values() if change.table in COLUMNS_WORK)
        if not changes or (columns is None and later is None):
            after._columns, after._later = columns, later
            return after
        work = sum(COLUMNS_WORK[change.table] for change in changes)
        if columns is not None:
            after._later = _Later(_Origin(columns), (changes,), work)
        elif later is not None:
            after._later = _Later(later.origin, (*later.changes, changes), later.work + work)
        follows = after._later
        if follows is not None and follows.work > LATER_MAX and follows.origin.columns is not None:
            assert after.columns is not None
        return after

    def _editor(self, table: str) -> TableEditor[Any, Any]:
        editor = self._editors.get(table)
        if editor is None:
            editor = self._editors[table] = self.base.table(table).edit()
        return editor

    def _record(self, table: str, key: Hashable, before: Any, after: Any) -> None:
        first = self._changes.get((table, key))
        self._changes[(table, key)] = Change(table, key, first.before if first else before, after)
