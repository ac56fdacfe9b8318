"""Detects, from the results of a client's calls, a connected server that does not serve it.

Two things make a server useless although its connection stands: it does not answer what only the leader can answer
within the time for it, or it knows no leader for long, while another server may. What asks for patience only, such as
a connection that has just ended, says nothing about the server.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from yurt.rpc.contract import Contract
from yurt.rpc.link import Link
from yurt.rpc.peer import ConnectionLost
from yurt.rpc.proxy import NoAnswer, Terms, far_port
from yurt.runtime.env import Env
from yurt.sdk.errors import Unavailable, YurtError

LEADER_CALL_S = 8.0
"""How long a heartbeat may take, the way to the leader included."""
NO_LEADER_S = 8.0
"""How long a server may be without a leader before its clients try another one."""


class FailoverDetector:
    """The state for the connected server."""

    def __init__(self, leader_calls: Collection[str]) -> None:
        self._leader_calls = leader_calls
        self._server = ""
        self._failing_since: float | None = None

    @property
    def limits_s(self) -> Mapping[str, float]:
        """Time limits of the calls that only the leader answers."""
        return dict.fromkeys(self._leader_calls, LEADER_CALL_S)

    def judge(self, server: str, call: str, error: YurtError | None, *, now_s: float) -> str:
        """The reason to leave the connected server after a call with this result; "" to stay."""
        if server != self._server:
            self._server, self._failing_since = server, None
        if call not in self._leader_calls or isinstance(error, ConnectionLost):
            return ""
        if isinstance(error, NoAnswer):
            return str(error)
        if not isinstance(error, Unavailable):
            self._failing_since = None
            return ""
        if self._failing_since is None:
            self._failing_since = now_s
        if now_s - self._failing_since < NO_LEADER_S:
            return ""
        return f"for {now_s - self._failing_since:.0f} s: {error}"


def watched_port(contract: Contract, name: str, link: Link, *, leader_calls: Collection[str], env: Env) -> Any:
    """A remote port over a link that switches servers when the present one does not serve.

    Its calls are made again when a connection ends; `leader_calls` are those that only the leader answers.
    """
    usefulness = FailoverDetector(leader_calls)

    def judge(call: str, error: YurtError | None) -> None:
        reason = usefulness.judge(link.server, call, error, now_s=env.monotonic())
        if reason:
            link.doubt(reason)

    terms = Terms(repeats=True, on_outcome=judge, limits_s=usefulness.limits_s)
    return far_port(contract, name, link.peer, terms=terms)
