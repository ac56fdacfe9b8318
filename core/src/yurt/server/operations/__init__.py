"""Changes on behalf of a caller: the operations of each resource, bound to the request's rights."""

from yurt.server.operations.operations import Operations, Targets

__all__ = ["Operations", "Targets"]
