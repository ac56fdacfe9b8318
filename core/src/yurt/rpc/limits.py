"""Admits connections: how many agents may be connected, and how long without a greeting. Counts, without sockets."""

from __future__ import annotations

from collections import Counter

import msgspec

from yurt.rpc.rate import Rate
from yurt.sdk.value import Value


class RpcLimits(Value):
    """Limits of a listening end; 0 means no limit for configurable ones."""

    handshake_s: float = 5.0
    """`limits.rpc_handshake_timeout`: the time until an agent has identified itself, the TLS handshake included."""
    per_address_max: int = 100
    """`limits.rpc_max_conns_per_client`: connections of one address."""
    connections_max: int = 20_000
    strangers_max: int = 1_000
    """Connections without a greeting; a further one closes the oldest of them."""
    calls: Rate = Rate(per_s=500.0, burst=2_000.0)
    """Calls of one client; servers are not bounded."""


class ConnectionRefused(msgspec.Struct, frozen=True):
    """A refused connection and the reason, for the log."""

    reason: str


class ConnectionAdmission:
    """The connections by key. Those without a greeting are kept in the order of their arrival."""

    def __init__(self, limits: RpcLimits) -> None:
        self._limits = limits
        self._addresses: dict[int, str] = {}
        self._per_address: Counter[str] = Counter()
        self._strangers: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self._addresses)

    @property
    def strangers(self) -> int:
        """The connections without a greeting."""
        return len(self._strangers)

    def enter(self, key: int, address: str) -> ConnectionRefused | int | None:
        """Admit a connection: returns why it is refused, or which ungreeted one must be closed for it, or None.

        Unidentified peers hold no place that another one needs: not among all, and not behind one address.
        """
        limits = self._limits
        if len(self._addresses) >= limits.connections_max:
            return ConnectionRefused(f"{limits.connections_max} connections stand already")
        evicted = None
        if 0 < limits.per_address_max <= self._per_address[address]:
            evicted = next((each for each in self._strangers if self._addresses[each] == address), None)
            if evicted is None:
                return ConnectionRefused(
                    f"{limits.per_address_max} connections of {address} stand already (limits.rpc_max_conns_per_client)"
                )
        elif len(self._strangers) >= limits.strangers_max:
            evicted = next(iter(self._strangers))
        if evicted is not None:
            del self._strangers[evicted]
        self._addresses[key] = address
        self._per_address[address] += 1
        self._strangers[key] = None
        return evicted

    def greet(self, key: int) -> None:
        """Record that a connection has sent its greeting."""
        self._strangers.pop(key, None)

    def leave(self, key: int) -> None:
        """A connection has ended."""
        address = self._addresses.pop(key)
        self._strangers.pop(key, None)
        self._per_address[address] -= 1
        if not self._per_address[address]:
            del self._per_address[address]
