"""The order in which one agent tries its servers, so that the clients of a server that ends spread over the others."""

from __future__ import annotations

from yurt.runtime.env import Env


class ServerOrder:
    """Addresses of servers in an order of this agent's own; `next` moves on."""

    def __init__(self, addresses: tuple[str, ...], env: Env) -> None:
        self._told = addresses
        self._env = env
        self._order = [address for _, address in sorted((env.random(), address) for address in addresses)]
        self._named: frozenset[str] = frozenset()

    @property
    def addresses(self) -> tuple[str, ...]:
        """The servers, the next one to try first."""
        return tuple(self._order)

    def next(self) -> str:
        """The server to try now; it comes last from then on."""
        address = self._order[0]
        self._order = [*self._order[1:], address]
        return address

    def learn(self, addresses: tuple[str, ...]) -> tuple[frozenset[str], frozenset[str]]:
        """The servers, as they say themselves, and those that they named before; what the agent was told comes last.

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
        self._order = [*order, *(each for each in self._told if each not in named)]
        return named, before

    def prefer(self, addresses: frozenset[str]) -> None:
        """Try these first, otherwise in the order as it is."""
        self._order.sort(key=lambda address: address not in addresses)
