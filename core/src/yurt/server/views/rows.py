"""The rows of one table that a caller may see.

A kind of row is a class: its table's name, and where one of its rows lies (`scope_of`). Rows that the caller may not
see are missing here, for a look-up as for a list, so that paging, counting and the next token never know of them. A
`Listing` carries its filter beside the rows instead of applying it, because a list is filtered in slices: one row that
is found among a million must not hold the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import ClassVar, Generic, Protocol, TypeVar

from yurt.access import Access, Scope
from yurt.state.store import Snapshot
from yurt.state.table import Table
from yurt.state.watch import WatchKey


class Stored(Protocol):
    """A row that knows when it changed last."""

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
    """Rows to look through, and which of them are in the list."""

    __slots__ = ("is_wanted", "rows")

    def __init__(self, rows: Iterable[L], is_wanted: Callable[[L], bool] | None = None) -> None:
        self.rows = rows
        self.is_wanted = is_wanted
        """None: all of them."""

    def where(self, also: Callable[[L], bool] | None) -> Listing[L]:
        """Those for which another condition holds too; None is no condition."""
        first = self.is_wanted
        if also is None:
            return self
        if first is None:
            return Listing(self.rows, also)
        return Listing(self.rows, lambda row: first(row) and also(row))

    def __iter__(self) -> Iterator[L]:
        """The rows in the list, at once: for few."""
        return iter(self.among(self.rows))

    def among(self, rows: Iterable[L]) -> Iterable[L]:
        """Which of these are in the list: for a slice of `rows`."""
        return rows if self.is_wanted is None else filter(self.is_wanted, rows)


class Rows(Generic[K, R]):
    """Rows of one table, as one caller may see them."""

    __slots__ = ("_access", "_state", "_table")

    name: ClassVar[str]
    """The table's name."""

    def __init__(self, state: Snapshot, access: Access) -> None:
        self._state = state
        self._access = access
        self._table: Table[K, R] = state.table(self.name)

    @classmethod
    def watched(cls, key: K | None = None) -> WatchKey:
        """What wakes a blocking query: a change of the row, or of any row."""
        return (cls.name,) if key is None else (cls.name, key)

    @classmethod
    def watched_where(cls, column: str, value: object) -> WatchKey:
        """The same for the rows of one value of an index, for example of a job."""
        return (cls.name, column, value)

    @staticmethod
    def scope_of(row: R) -> Scope:
        """Where a row lies; kinds that lie nowhere are seen by whoever passed the dispatcher."""
        return Scope()

    @property
    def index(self) -> int:
        """When a row of the table changed last."""
        return self._table.index

    def get(self, key: K) -> R | None:
        """The row; None when it does not exist or is not for the caller."""
        row = self._table.get(key)
        return row if row is None or self._sees(row) else None

    def __contains__(self, key: K) -> bool:
        """Whether `get` finds it."""
        return self.get(key) is not None

    def index_of(self, key: K) -> int:
        """When the row changed last; without it, when the table did."""
        row = self.get(key)
        return self._table.index if row is None else row.modify_index

    def all(self) -> Listing[R]:
        """Every row that the caller may see."""
        return Listing(self._table.values(), self._seen)

    def count(self) -> int:
        """How many rows there are; looks at each of them for a caller who may not see all."""
        return len(self._table) if self._access.sees_all else sum(1 for _ in self.all())

    def where(self, column: str, value: object) -> tuple[R, ...]:
        """Those of one value of an index of the table, in the order of their keys: for few."""
        found = self._table.where(column, value)
        return found if self._access.sees_all else tuple(filter(self._sees, found))

    def each_where(self, column: str, value: object) -> Listing[R]:
        """The same in no particular order: nothing is done for those not asked for."""
        return Listing(self._table.each_where(column, value), self._seen)

    def count_where(self, column: str, value: object) -> int:
        """How many of them the caller may see; looks at each of them for a caller who may not see all."""
        if self._access.sees_all:
            return self._table.count_where(column, value)
        return sum(1 for _ in self.each_where(column, value))

    @property
    def _seen(self) -> Callable[[R], bool] | None:
        return None if self._access.sees_all else self._sees

    def _sees(self, row: R) -> bool:
        return self._access.sees_all or self._access.allows(self.scope_of(row))


class InNamespace(Rows[K, N]):
    """Rows that lie in a namespace."""

    __slots__ = ()

    @staticmethod
    def scope_of(row: N) -> Scope:
        """The namespace of the row."""
        return Scope(namespace=row.namespace)

    def of_namespace(self, namespace: str) -> Listing[N]:
        """The rows of a namespace; `*`: of every namespace that the caller may see."""
        if namespace == "*":
            return self.all()
        return self.all().where(lambda row: row.namespace == namespace)
