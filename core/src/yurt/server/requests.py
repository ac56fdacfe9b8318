"""What callers ask of the server's operations, where that is more than a few words."""

from __future__ import annotations

from collections.abc import Mapping

from yurt.sdk.value import Value, no_entries


class Kept(Value):
    """What a registration takes from the job as it runs instead of from the new one."""

    counts: bool = False
    resources: bool = False


NOTHING_KEPT = Kept()


class DispatchRequest(Value):
    """How a parameterized job is dispatched; priority 0 means the parent's."""

    payload: bytes = b""
    meta: Mapping[str, str] = no_entries()
    id_prefix: str = ""
    idempotency_token: str = ""
    priority: int = 0


PLAIN_DISPATCH = DispatchRequest()
