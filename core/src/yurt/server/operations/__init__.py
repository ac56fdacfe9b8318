"""What a caller may change: the operations of each resource, bound to what the request may do."""

from yurt.server.operations.operations import Operations, Targets

__all__ = ["Operations", "Targets"]
