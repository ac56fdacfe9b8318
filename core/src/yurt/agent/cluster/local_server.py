"""The server of this agent, as its cluster sees it.

A server is made with the connections to the other servers, and those need the cluster's directory. So the cluster comes
first and finds its server with each question: nothing is set on either of them afterwards.
"""

from __future__ import annotations

from collections.abc import Callable

from yurt.server.backends import HttpBackend
from yurt.structs.cluster import AutopilotConfiguration


class LocalServer:
    """Answers for the server that `find` returns."""

    __slots__ = ("_find",)

    def __init__(self, find: Callable[[], HttpBackend]) -> None:
        self._find = find

    @property
    def index(self) -> int:
        """The index of its newest state."""
        return self._find().replica.state.index

    @property
    def rules(self) -> int:
        """The newest rules that its state follows."""
        return self._find().replica.state.rules

    @property
    def leader_name(self) -> str:
        """The name of the leader that this server follows; "" for none."""
        return self._find().leader.name

    @property
    def autopilot(self) -> AutopilotConfiguration:
        """The autopilot settings."""
        return self._find().replica.state.autopilot_config

    async def resign(self, to: str) -> None:
        """Transfer its leadership to another server; raises Unavailable."""
        await self._find().leader.resign(to)

    def count(self, name: str) -> None:
        """Count an event among its metrics."""
        self._find().metrics.count(name)
