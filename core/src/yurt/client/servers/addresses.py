"""The addresses of the servers, as an operator or the last server that answered named them."""

from __future__ import annotations

from collections.abc import Callable

Addresses = tuple[str, ...]


class ServerAddresses:
    """Remembers the addresses; `learn` is called with each new list."""

    def __init__(self, learn: Callable[[Addresses], None]) -> None:
        self.addresses: Addresses = ()
        self._learn = learn

    def replace(self, addresses: Addresses) -> None:
        """Replace the addresses, until an answering server names others."""
        self.addresses = addresses
        self._learn(addresses)
