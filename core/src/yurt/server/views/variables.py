"""Variables in encrypted form."""

from __future__ import annotations

from yurt.access import Scope
from yurt.server.views.rows import InNamespace
from yurt.structs.variable import EncryptedVariable


class VariableRows(InNamespace[tuple[str, str], EncryptedVariable]):
    """Variables by namespace and path; a policy may grant single paths."""

    __slots__ = ()
    name = "variables"

    @staticmethod
    def scope_of(row: EncryptedVariable) -> Scope:
        """The path in its namespace."""
        return Scope(namespace=row.namespace, variable=row.path)

    def _sees(self, row: EncryptedVariable) -> bool:
        return self._access.sees_all or self._access.allows(self.scope_of(row))
