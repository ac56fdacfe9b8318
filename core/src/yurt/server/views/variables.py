"""Variables in encrypted form."""

from __future__ import annotations

from yurt.access import Scope
from yurt.server.views.rows import Listing, NamespacedRow
from yurt.structs.variable import EncryptedVariable


class VariableRows(NamespacedRow[tuple[str, str], EncryptedVariable]):
    """Variables by namespace and path; a policy may grant single paths."""

    __slots__ = ()
    name = "variables"

    @staticmethod
    def scope_of(row: EncryptedVariable) -> Scope:
        """The path in its namespace."""
        return Scope(namespace=row.namespace, variable=row.path)

    def all(self) -> Listing[EncryptedVariable]:
        """All visible rows. Every caller may ask and each path is decided; not for callers who see none."""
        return super().all() if self._access.sees_some else Listing(())

    def _sees(self, row: EncryptedVariable) -> bool:
        return self._access.sees_all or self._access.allows(self.scope_of(row))
