"""The names of dynamic users: users that a client makes for tasks without a `user` of their own.

A driver with the capability `dynamic_users` is asked to start such a task as `nomad-80000`: the uid and the gid are the
number, and the host's table of users does not have it.
"""

from __future__ import annotations

import re
from typing import Final

ID_MAX: Final = 2**31 - 1
_NAME: Final = re.compile(r"nomad-([1-9][0-9]{0,9})")


def dynamic_user_name(uid: int) -> str:
    """The name of the dynamic user with this uid and gid."""
    return f"nomad-{uid}"


def dynamic_uid(user: str) -> int | None:
    """The uid and gid of a dynamic user; None for any other user."""
    found = _NAME.fullmatch(user)
    return int(found[1]) if found is not None and int(found[1]) <= ID_MAX else None
