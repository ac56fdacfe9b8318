"""Looks up the users of the host as which tasks run. Blocking."""

from __future__ import annotations

import contextlib
import os
import pwd

from yurt.sdk.dynamic_users import dynamic_uid
from yurt.sdk.errors import Invalid
from yurt.sdk.value import Value


class UserRange(Value):
    """The first and the last id of the pool of dynamic users."""

    first: int = 80_000
    last: int = 89_999


def ids_of(user: str) -> tuple[int, int] | None:
    """The ids of the task's user; None without a user, or when the agent is not root."""
    if not user or os.geteuid() != 0:
        return None
    dynamic = dynamic_uid(user)
    if dynamic is not None:
        return dynamic, dynamic
    with contextlib.suppress(KeyError):
        entry = pwd.getpwuid(int(user)) if user.isdigit() else pwd.getpwnam(user)
        return entry.pw_uid, entry.pw_gid
    raise Invalid(f"the task's user {user!r} does not exist on this node; create it or leave `chown` out")
