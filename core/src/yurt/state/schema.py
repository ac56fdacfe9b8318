"""The declaration of a table, from which all code that handles tables derives.

A `TableSchema` is declared once, as an attribute of `yurt.state.tables.Tables`. Read from a snapshot, the attribute is
the table with its rows (`snapshot.jobs`); read from the class, it is the declaration (`Tables.jobs`), which names the
table in a transaction. Snapshots, restores, digests, watches, the event stream, the search and the tests iterate over
the declarations and name no table themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, overload

from yurt.access import ANYWHERE, Need, Scope
from yurt.state.persistent_table import Indexes, Table
from yurt.state.row_codecs import RowCodec

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class TableSet:
    """Gives access to tables by name; the declarations are attributes of its subclass."""

    __slots__ = ("__dict__", "_tables")
    _tables: dict[str, Table[Any, Any]]
    """The `__dict__` of the instance as well: the tables are its attributes."""


class OnRestore(Enum):
    """The effect on a table's rows of restoring a snapshot into a running cluster."""

    REPLACE = "replace"
    """The rows of the snapshot replace them."""
    CLEAR = "clear"
    """The rows are deleted, and those of the snapshot are not restored: they describe work in progress."""
    KEEP = "keep"
    """The rows stay, and those of the snapshot are not restored: they belong to the log that contains the restore."""
    MERGE = "merge"
    """The rows stay, and those of the snapshot are added: their content must never be undone."""


class Topic(NamedTuple, Generic[V]):
    """The events of a table's rows in the event stream."""

    name: str
    """The topic to which readers subscribe."""
    key: Callable[[V], str]
    """The event's key."""
    needs: Need
    """The capability that a reader needs for the row's location."""
    place: Callable[[V], Scope] = lambda _: ANYWHERE
    """The location of the row apart from its namespace: its node pool, or the path of a variable."""
    filter_keys: Callable[[V], Iterable[str]] = lambda _: ()
    """Further names by which a reader may select events; empty ones are omitted."""
    payload: str = ""
    """The row's key in the payload, if it differs from the topic."""
    shown: Callable[[V], object] = lambda row: row
    """The row as any reader may see it, without secrets and without large fields."""
    has_deletion_flag: bool = False
    """Whether the payload says that the row was deleted."""


class SearchContext(NamedTuple, Generic[V]):
    """The search for rows of a table."""

    name: str
    """The name of the context in requests and answers."""
    entry: Callable[[V], tuple[str, str, str]]
    """(namespace, id, name) of a row; namespace and id are empty if it has none."""
    has_uuids: bool = False
    """Whether ids are UUIDs, so that prefixes are compared in lower case."""
    is_shown_by_name: bool = False
    """Whether a fuzzy search answers with the name, and gives the id as its scope."""


@dataclass(eq=False)
class TableSchema(Generic[K, V]):
    """The declaration of a table: its keys and rows, its indexes, and its handling elsewhere."""

    codec: RowCodec[K, V]
    """The encoding of the rows in a snapshot; defines the types of keys and rows."""
    _: KW_ONLY
    key_of: Callable[[V], K] | None
    """The key of a row; None if it cannot be derived from the row."""
    namespace_of: Callable[[K, V], str] | None
    """The namespace of a row, which decides who may see it; None if the rows belong to the cluster."""
    indexes: Indexes[V] = field(default_factory=dict)
    """For each index, the function that gives a row's index key; "" or None means that the row is not in it."""
    topic: Topic[V] | None = None
    """The events of rows in the event stream; None: no events."""
    search: SearchContext[V] | None = None
    """The search for rows; None: not searchable."""
    built_in: tuple[tuple[K, V], ...] = ()
    """The rows that exist before the first command."""
    on_restore: OnRestore = OnRestore.REPLACE
    columns_work: int = 0
    """The cost of counting a change of a row in the columns; 0 if they do not depend on the table."""
    name: str = field(init=False)
    """The name of the attribute, which is also the name in log and snapshots, so it never changes."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    if TYPE_CHECKING:
        # When it runs, neither way costs a call: the tables are attributes of the instance (`TableSet`), which Python
        # finds before the declarations of its class.
        @overload
        def __get__(self, tables: None, owner: type[TableSet]) -> TableSchema[K, V]: ...

        @overload
        def __get__(self, tables: TableSet, owner: type[TableSet]) -> Table[K, V]: ...

        def __get__(self, tables: TableSet | None, owner: type[TableSet]) -> TableSchema[K, V] | Table[K, V]: ...

    def empty(self) -> Table[K, V]:
        """The empty table, at index 0."""
        return Table(self.name, self.indexes)

    def with_rows(self, rows: Iterable[tuple[K, V]], *, index: int) -> Table[K, V]:
        """The table with these rows, last written at `index`."""
        return Table.restored(self.name, self.indexes, index=index, rows=rows)


@dataclass(eq=False)
class RenamedTable(TableSchema[K, V]):
    """A table whose name in log and snapshots differs from its attribute."""

    stored_as: str

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = self.stored_as

    if not TYPE_CHECKING:

        def __get__(self, tables, owner):
            return self if tables is None else tables._tables[self.name]
