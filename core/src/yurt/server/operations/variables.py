"""Decrypted variables, and changes to them. Each names the namespace and path of the caller's need."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from yurt.access import Access, Scope, needs
from yurt.access.needs import VariableCapability
from yurt.server.resources.variables import VariableConflict, Variables
from yurt.structs.variable import EncryptedVariable, Variable, VariableLock, VariableMetadata, without_items

READ: Final = needs.variable(VariableCapability.READ)


class VariableOperations:
    """Operations on variables for one caller."""

    __slots__ = ("_access", "_variables")

    def __init__(self, variables: Variables, access: Access) -> None:
        self._variables = variables
        self._access = access

    def open(self, row: EncryptedVariable) -> Variable:
        """A decrypted variable; raises Unavailable when its root key is missing here."""
        self._require(row.namespace, row.path)
        return self._variables.open(row)

    async def put(
        self, namespace: str, path: str, items: Mapping[str, str], *, check_index: int | None, lock_id: str
    ) -> Variable | VariableMetadata:
        """Store items; raises Invalid, NotFound (namespace) or VariableConflict."""
        put = partial(self._variables.put, namespace, path, items, check_index=check_index, lock_id=lock_id)
        return await self._write(namespace, path, put)

    async def delete(self, namespace: str, path: str, *, check_index: int | None) -> int:
        """Delete a variable; returns the index. Raises Invalid or VariableConflict."""
        self._require(namespace, path)
        try:
            return await self._variables.delete(namespace, path, check_index=check_index)
        except VariableConflict as error:
            raise self._conflict(error) from None

    async def acquire(
        self, namespace: str, path: str, lock: VariableLock, items: Mapping[str, str]
    ) -> Variable | VariableMetadata:
        """Lock a variable, created if missing; the answer has the lock's id."""
        return await self._write(namespace, path, partial(self._variables.acquire, namespace, path, lock, items))

    async def renew(self, namespace: str, path: str, lock_id: str) -> Variable | VariableMetadata:
        """Renew a lock for its full duration; raises NotFound or VariableConflict."""
        return await self._write(namespace, path, partial(self._variables.renew, namespace, path, lock_id))

    async def release(self, namespace: str, path: str, lock_id: str) -> Variable | VariableMetadata:
        """Release a lock; raises NotFound or VariableConflict."""
        return await self._write(namespace, path, partial(self._variables.release, namespace, path, lock_id))

    async def _write(
        self, namespace: str, path: str, work: Callable[[], Awaitable[Variable | VariableMetadata]]
    ) -> Variable | VariableMetadata:
        """Write a variable; answer and refusal omit items for a caller with write permission only."""
        self._require(namespace, path)
        try:
            return self._shown(await work())
        except VariableConflict as error:
            raise self._conflict(error) from None

    def _conflict(self, error: VariableConflict) -> VariableConflict:
        """The same conflict, restricted to what the caller may see of the variable."""
        current = None if error.current is None else self._shown(error.current)
        return VariableConflict(str(error), current, index=error.index)

    def _shown(self, variable: Variable | VariableMetadata) -> Variable | VariableMetadata:
        scope = Scope(namespace=variable.namespace, variable=variable.path)
        if isinstance(variable, VariableMetadata) or self._access.narrowed(READ).allows(scope):
            return variable
        return without_items(variable)

    def _require(self, namespace: str, path: str) -> None:
        self._access.require(Scope(namespace=namespace, variable=path))
