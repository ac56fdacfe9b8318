"""The type of a planted bug, and the plans in which most of them are searched."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple


class Patch(NamedTuple):
    """A text replacement in one module."""

    module: str
    old: str
    new: str


class Bug(NamedTuple):
    """A planted bug, and the fixed fields of the plans in which it is searched."""

    patches: tuple[Patch, ...]
    finds: tuple[str, ...]
    """The beginnings of the problems by which it counts as found; empty for any."""
    plan: Mapping[str, Any] = MappingProxyType({})


SMALL: Final = {"clients": 2, "users": 3, "active_s": 40.0, "user_pause_s": 0.6, "fault_pause_s": 4.0, "calm_s": 200.0}
"""A small cluster under faults."""
CALM_USERS: Final = SMALL | {"faults": (), "active_s": 25.0}
"""The same without faults."""
CONCURRENT_PLANS: Final = SMALL | {
    "schedulers": 4, "servers": 5, "features": ("service", "batch", "update"), "users": 6, "user_pause_s": 0.1,
    "faults": ("etcd-slow",), "fault_pause_s": 1.0,
}  # fmt: skip
"""Several workers that plan at one time, while etcd is slow to store the plans."""
LATE_CLIENTS: Final = SMALL | {
    "clients": 3, "features": ("service", "disconnect", *("evaluate",) * 12), "active_s": 90.0,
    "faults": ("late-client", "etcd-slow"),
    "users": 5, "user_pause_s": 0.3, "fault_pause_s": 1.0, "failover_ttl_s": 15.0,
}  # fmt: skip
"""Clients that are back just when the servers have given them up, while the plans about them are under way.

Users have jobs evaluated, which keeps the workers busy, and seldom change them: what runs outlives the disconnect."""
RESTING: Final = CALM_USERS | {"active_s": 5.0, "rest_actions": 12}
"""Requests to a cluster at rest, where only the request itself leads to what must follow."""
SLOWLY_RESTING: Final = RESTING | {
    "features": ("service", "batch", "stop", "update", "scale"), "clients": 1, "rest_actions": 30, "rest_together": 3,
    "rest_slow_s": 0.5,
}  # fmt: skip
"""The same with a slow etcd and three requests at one time: what follows from one comes while another is stored."""
REQUESTS: Final = CALM_USERS | {"features": ("service", "histories"), "users": 1, "history_pause_s": 1.0}
"""Concurrent requests on objects of their own, whose answers some order must explain."""
