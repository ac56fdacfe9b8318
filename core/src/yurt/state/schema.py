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
    """Also the `__dict__` of the instance: the tables are its attributes."""


class OnRestore(Enum):
    """What happens to a table's rows when a snapshot is restored into a running cluster."""

    REPLACE = "replace"
    """They become those of the snapshot."""
    CLEAR = "clear"
    """The rows are dropped, and those of the snapshot are not restored: they describe work in progress."""
    KEEP = "keep"
    """They are the restore itself."""
    MERGE = "merge"
    """The rows stay, and those of the snapshot are added: their content must never be undone."""


class Topic(NamedTuple, Generic[V]):
    """How rows appear in the event stream."""

    name: str
    """The topic, one of those that readers subscribe to."""
    key: Callable[[V], str]
    """The event's key."""
    needs: Need
    """What a reader needs for the row's location."""
    place: Callable[[V], Scope] = lambda _: ANYWHERE
    """Where the row belongs beside its namespace: its node pool, or the path of a variable."""
    filter_keys: Callable[[V], Iterable[str]] = lambda _: ()
    """Further names by which a reader may select events; empty ones are omitted."""
    payload: str = ""
    """The row's key in the payload where that is not the topic."""
    shown: Callable[[V], object] = lambda row: row
    """The row as everybody may see it, without secrets and without what would make the event large."""
    has_deletion_flag: bool = False
    """Whether the payload tells if the row was deleted."""


class SearchContext(NamedTuple, Generic[V]):
    """How rows are found by a search."""

    name: str
    """The context, as requests and answers name it."""
    entry: Callable[[V], tuple[str, str, str]]
    """(namespace, id, name) of a row; namespace and id are empty where it has none."""
    has_uuids: bool = False
    """Ids are UUIDs: prefixes are compared in lower case."""
    is_shown_by_name: bool = False
    """A fuzzy search answers with the name, and gives the id as its scope."""


@dataclass(eq=False)
class TableSchema(Generic[K, V]):
    """A table: its keys and rows, its indexes, and how others handle it."""

    codec: RowCodec[K, V]
    """How the rows stand in a snapshot; gives the types of keys and rows."""
    _: KW_ONLY
    key_of: Callable[[V], K] | None
    """The key of a row; None where it cannot be derived from the row."""
    namespace_of: Callable[[K, V], str] | None
    """The namespace that a row belongs to; None where the rows belong to the cluster. Who may see a row follows from
    it."""
    indexes: Indexes[V] = field(default_factory=dict)
    """The index key of a row by the name of the index; an empty text or None means that the row is not in it."""
    topic: Topic[V] | None = None
    """How rows appear in the event stream; None: not at all."""
    search: SearchContext[V] | None = None
    """How rows are found by a search; None: not searchable."""
    built_in: tuple[tuple[K, V], ...] = ()
    """The rows that exist before any command."""
    on_restore: OnRestore = OnRestore.REPLACE
    columns_work: int = 0
    """The cost of counting a change of a row in the columns; 0 where they do not depend on the table."""
    name: str = field(init=False)
    """The name of the attribute: log and snapshots have it, so it never changes."""

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
