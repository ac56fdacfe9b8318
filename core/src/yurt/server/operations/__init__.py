"""Changes on behalf of a caller: the operations of each resource, bound to the request's rights."""

from yurt.server.operations.operations import OperationDependencies, Operations

__all__ = ["OperationDependencies", "Operations"]
