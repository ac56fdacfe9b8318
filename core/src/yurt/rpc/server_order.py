"""The order in which an agent tries servers, such that the clients of a failed server spread over the others."""

from __future__ import annotations

from yurt.runtime.env import Env


class ServerOrder:
    """Server addresses in an order particular to this agent; `next` advances."""

    def __init__(self, addresses: tuple[str, ...], env: Env) -> None:
        self._configured = addresses
        self._env = env
        self._order = [address for _, address in sorted((env.random(), address) for address in addresses)]
        self._named: frozenset[str] = frozenset()

    @property
    def addresses(self) -> tuple[str, ...]:
        """The servers in the order of attempts."""
        return tuple(self._order)

    def next(self) -> str:
        """The server to try now; it moves to the end."""
        address = self._order[0]
        self._order = [*self._order[1:], address]
        return address

    def learn(self, addresses: tuple[str, ...]) -> tuple[frozenset[str], frozenset[str]]:
        """Adopt the servers' own list; addresses from earlier lists follow, configured ones come last.

        Both are empty when nothing is new.
        """
        named = frozenset(addresses)
        if not named or named == self._named:
            return frozenset(), frozenset()
        before, self._named = self._named, named
        added = [address for address in addresses if address not in self._order]
        order = [each for each in self._order if each in named]
        for address in added:
            order.insert(int(self._env.random() * (len(order) + 1)), address)
        self._order = [*order, *(each for each in self._configured if each not in named)]
        return named, before

    def prefer(self, addresses: frozenset[str]) -> None:
        """Move these to the front; the order is otherwise unchanged."""
        self._order.sort(key=lambda address: address not in addresses)
