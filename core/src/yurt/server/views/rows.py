"""The rows of one table that a caller may see.

A kind of row is a class: its table's name, and where one of its rows lies (`scope_of`). Rows that the caller may not
see are missing here, for a look-up as for a list, so that paging, counting and the next token never know of them. A
`Listing` carries its filter together with the rows instead of applying it, because a list is filtered in slices: one
row that is found among a million must not hold the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import ClassVar, Generic, Protocol, TypeVar

from yurt.access import Access, Scope
from yurt.state.persistent_table import Table
from yurt.state.store import Snapshot
from yurt.state.watch import WatchKey


class Stored(Protocol):
    """A row with a modify index."""

    @property
    def modify_index(self) -> int: ...


class StoredInNamespace(Stored, Protocol):
    """A row of a namespace."""

    @property
    def namespace(self) -> str: ...


K = TypeVar("K")
R = TypeVar("R", bound=Stored)
N = TypeVar("N", bound=StoredInNamespace)
L = TypeVar("L")


class Listing(Generic[L]):
    """Rows to iterate over, and a filter for the list."""

    __slots__ = ("is_selected", "rows")

    def __init__(self, rows: Iterable[L], is_selected: Callable[[L], bool] | None = None) -> None:
        self.rows = rows
        self.is_selected = is_selected
        """None: all of them."""

    def where(self, also: Callable[[L], bool] | None) -> Listing[L]:
        """The listing with another condition; None adds none."""
        first = self.is_selected
        if also is None:
            return self
        if first is None:
            return Listing(self.rows, also)
        return Listing(self.rows, lambda row: first(row) and also(row))

    def __iter__(self) -> Iterator[L]:
        """The listed rows at once, for small listings."""
        return iter(self.among(self.rows))

    def among(self, rows: Iterable[L]) -> Iterable[L]:
        """The listed rows among these, for a slice of `rows`."""
        return rows if self.is_selected is None else filter(self.is_selected, rows)


class Rows(Generic[K, R]):
    """Rows of one table that a caller may see."""

    __slots__ = ("_access", "_state", "_table")

    name: ClassVar[str]
    """The table's name."""
    index_min: ClassVar[int] = 0
    """The index of a list of them while the table never had a row."""

    def __init__(self, state: Snapshot, access: Access) -> None:
        self._state = state
        self._access = access
        self._table: Table[K, R] = state.table(self.name)

    @classmethod
    def watched(cls, key: K | None = None) -> WatchKey:
        """The watch keys of a blocking query: of the row, or of any row."""
        return (cls.name,) if key is None else (cls.name, key)

    @classmethod
    def watched_where(cls, column: str, value: object) -> WatchKey:
        """The watch keys for one index value, for example a job."""
        return (cls.name, column, value)

    def watched_of(self, key: K) -> WatchKey:
        """The watch key of a blocking query about one row, for this caller.

        For a caller who may not see every row, a row that is not visible is watched as the table: otherwise the end of
        the wait would tell a row that exists from one that does not.
        """
        return self.watched(key if self._access.sees_all or key in self else None)

    @staticmethod
    def scope_of(row: R) -> Scope:
        """The scope of a row; kinds without scopes are visible to every caller of the route."""
        return Scope()

    @classmethod
    def is_seen_by_namespace(cls) -> bool:
        """Whether the namespace of a row alone decides who sees it."""
        return False

    @property
    def index(self) -> int:
        """When a row of the table changed last."""
        return self._table.index

    @property
    def content(self) -> object:
        """An object that represents all rows of the table, invisible ones included: it is another object after any
        change."""
        return self._table

    def get(self, key: K) -> R | None:
        """The row; None when it does not exist or is not visible."""
        row = self._table.get(key)
        return row if row is None or self._sees(row) else None

    def __contains__(self, key: K) -> bool:
        """Whether `get` finds a row."""
        return self.get(key) is not None

    def index_of(self, key: K) -> int:
        """When the row changed last; when the table did, if the row does not exist."""
        row = self.get(key)
        return self._table.index if row is None else row.modify_index

    def all(self) -> Listing[R]:
        """All visible rows."""
        return Listing(self._table.values(), self._seen)

    def count(self) -> int:
        """The number of visible rows; checks each of them for a restricted caller."""
        return len(self._table) if self._access.sees_all else sum(1 for _ in self.all())

    def where(self, column: str, value: object) -> tuple[R, ...]:
        """The visible rows with an index value, in key order; for small sets."""
        rows = self._table.where(column, value)
        return rows if self._access.sees_all else tuple(filter(self._sees, rows))

    def each_where(self, column: str, value: object) -> Listing[R]:
        """The same, unordered and lazily read."""
        return Listing(self._table.each_where(column, value), self._seen)

    def count_where(self, column: str, value: object) -> int:
        """The number of visible rows with an index value; checks each of them for a restricted caller."""
        if self._access.sees_all:
            return self._table.count_where(column, value)
        return sum(1 for _ in self.each_where(column, value))

    @property
    def _seen(self) -> Callable[[R], bool] | None:
        return None if self._access.sees_all else self._sees

    def _sees(self, row: R) -> bool:
        return self._access.sees_all or self._access.allows(self.scope_of(row))


class NamespacedRow(Rows[K, N]):
    """Rows with a namespace."""

    __slots__ = ()

    @staticmethod
    def scope_of(row: N) -> Scope:
        """The namespace of the row."""
        return Scope(namespace=row.namespace)

    @classmethod
    def is_seen_by_namespace(cls) -> bool:
        """True, unless the kind decides about rows in another way."""
        return cls._sees is NamespacedRow._sees and cls.scope_of is NamespacedRow.scope_of

    def of_namespace(self, namespace: str) -> Listing[N]:
        """The rows of a namespace; `*`: of every visible namespace."""
        if namespace == "*":
            return self.all()
        seen = self._seen
        if seen is None:
            return Listing(self._table.values(), lambda row: row.namespace == namespace)
        # The namespace comes first, in the same function: most rows lie elsewhere, and a list asks about all of them.
        return Listing(self._table.values(), lambda row: row.namespace == namespace and seen(row))

    def _sees(self, row: N) -> bool:
        return self._access.allows_namespace(row.namespace)
