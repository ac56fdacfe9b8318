"""Variables in the clear, and changes to them. Each names the namespace and path that the caller's need is about."""

from __future__ import annotations

from collections.abc import Mapping

from yurt.access import Access, Scope
from yurt.server.resources.variables import Variables
from yurt.structs.variable import EncryptedVariable, Variable, VariableLock, VariableMetadata


class VariableOperations:
    """Operations on variables for one caller."""

    __slots__ = ("_access", "_variables")

    def __init__(self, variables: Variables, access: Access) -> None:
        self._variables = variables
        self._access = access

    def open(self, row: EncryptedVariable) -> Variable:
        """A variable in the clear; raises Unavailable when its root key is not here."""
        self._require(row.namespace, row.path)
        return self._variables.open(row)

    async def put(
        self, namespace: str, path: str, items: Mapping[str, str], *, check_index: int | None, lock_id: str
    ) -> Variable:
        """Store items; raises Invalid, NotFound (namespace) or VariableConflict."""
        self._require(namespace, path)
        return await self._variables.put(namespace, path, items, check_index=check_index, lock_id=lock_id)

    async def delete(self, namespace: str, path: str, *, check_index: int | None) -> int:
        """Forget a variable; the index at which it is gone. Raises Invalid or VariableConflict."""
        self._require(namespace, path)
        return await self._variables.delete(namespace, path, check_index=check_index)

    async def acquire(self, namespace: str, path: str, lock: VariableLock, items: Mapping[str, str]) -> Variable:
        """Lock a variable, which is made when it is not there; the answer bears the lock's id."""
        self._require(namespace, path)
        return await self._variables.acquire(namespace, path, lock, items)

    async def renew(self, namespace: str, path: str, lock_id: str) -> VariableMetadata:
        """Give a lock its whole time again; raises NotFound or VariableConflict."""
        self._require(namespace, path)
        return await self._variables.renew(namespace, path, lock_id)

    async def release(self, namespace: str, path: str, lock_id: str) -> Variable:
        """End a lock; raises NotFound or VariableConflict."""
        self._require(namespace, path)
        return await self._variables.release(namespace, path, lock_id)

    def _require(self, namespace: str, path: str) -> None:
        self._access.require(Scope(namespace=namespace, variable=path))
