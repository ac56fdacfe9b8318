"""The addresses of the servers, from an operator or from the last server that answered."""

from __future__ import annotations

from collections.abc import Callable

Addresses = tuple[str, ...]


class ServerAddresses:
    """Holds the addresses; `learn` is called with each new list."""

    def __init__(self, learn: Callable[[Addresses], None]) -> None:
        self.addresses: Addresses = ()
        self._learn = learn

    def replace(self, addresses: Addresses) -> None:
        """Replace the addresses, until a server's answer names others."""
        self.addresses = addresses
        self._learn(addresses)
