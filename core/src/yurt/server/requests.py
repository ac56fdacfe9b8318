"""Larger parameters of the server's operations."""

from __future__ import annotations

from collections.abc import Mapping

from yurt.sdk.value import Value, no_entries


class RetainedFields(Value):
    """Fields that a registration keeps from the running job."""

    counts: bool = False
    resources: bool = False


NO_RETAINED_FIELDS = RetainedFields()


class SubmitterRights(Value):
    """Further rights of the caller of an operation on jobs; none without a caller."""

    is_management: bool = False
    """Whether the caller has a management token, which may register jobs while registrations are disabled."""
    reads_nodes: bool = False
    """Whether the caller may read nodes, so that warnings may name their attributes, metadata and datacenters."""


NO_RIGHTS = SubmitterRights()


class DispatchRequest(Value):
    """The parameters of a dispatch; priority 0 means the parent's."""

    payload: bytes = b""
    meta: Mapping[str, str] = no_entries()
    id_prefix: str = ""
    idempotency_token: str = ""
    priority: int = 0


PLAIN_DISPATCH = DispatchRequest()
