"""Leases of variable locks, pure: renewal, expiry, and the delay before the next holder.

A lease begins when the leader learns of the lock and when it is renewed; a new leader gives every lock its whole time
again. A lock that ends because its time is over, not because its holder let go, keeps others out for its delay.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from yurt.sdk.value import replace
from yurt.structs.variable import EncryptedVariable

Key = tuple[str, str]


class LockLease(msgspec.Struct, frozen=True):
    """A lock and its expiry, unix ns."""

    lock_id: str
    ttl: int
    delay: int
    ends_at: int


class VariableLocks:
    """The leader's leases by namespace and path."""

    def __init__(self) -> None:
        self.leases: dict[Key, LockLease] = {}
        self.delays: dict[Key, int] = {}

    def restore(self, variables: Iterable[EncryptedVariable], now: int) -> None:
        """Replace all leases by new ones for these locked variables."""
        self.leases.clear()
        self.delays.clear()
        for variable in variables:
            self.follow(variable.key, variable, now)

    def follow(self, key: Key, variable: EncryptedVariable | None, now: int) -> None:
        """Update the leases after a variable was written or deleted."""
        lock = variable.lock if variable is not None else None
        lease = self.leases.get(key)
        if lock is None:
            self.leases.pop(key, None)
        elif lease is None or lease.lock_id != lock.id or lease.ttl != lock.ttl:
            self.leases[key] = LockLease(lock.id, lock.ttl, lock.lock_delay, now + lock.ttl)

    def renew(self, key: Key, lock_id: str, now: int) -> bool:
        """Renew a lock for its full duration; False when the variable has another lock."""
        lease = self.leases.get(key)
        if lease is None or lease.lock_id != lock_id:
            return False
        self.leases[key] = replace(lease, ends_at=now + lease.ttl)
        return True

    def is_delayed(self, key: Key, now: int) -> bool:
        """Whether an expired lock still excludes others."""
        until = self.delays.get(key, 0)
        if until and until <= now:
            del self.delays[key]
        return until > now

    def take_expired(self, now: int) -> list[tuple[Key, str]]:
        """Remove the expired locks and return their ids; their delays begin."""
        over = [(key, lease) for key, lease in self.leases.items() if lease.ends_at <= now]
        for key, lease in over:
            del self.leases[key]
            self.delays[key] = now + lease.delay
        self.delays = {key: until for key, until in self.delays.items() if until > now}
        assert all(lease.ends_at > now for lease in self.leases.values()), "a lease that is over is still here"
        return [(key, lease.lock_id) for key, lease in sorted(over)]

    def next_end(self) -> int | None:
        """The time at which the next lease expires, unix ns; None without leases."""
        return min((lease.ends_at for lease in self.leases.values()), default=None)
