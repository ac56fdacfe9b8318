"""When a silent server is probed and left: its process may hang although the kernel of its machine still answers.

A probe is an empty message, which the server's event loop answers at once; any other message is as good an answer.

While a call of this end waits for its answer, a probe follows `WAITING_S` of silence. A heartbeat is such a call: a
server that hangs is left at most `WAITING_S` + `ANSWER_S` after the next heartbeat was due, and that heartbeat reaches
another server within the node's grace of 10 s. A long poll says nothing about its server until its time is over, and
counts as idle.

An idle connection of a client is probed after `IDLE_S`. That bounds how late a client gets a new allocation when its
server hangs; no node is lost by it. In a small cluster heartbeats come each 10 to 20 s, and most probes are left out.
In a large one heartbeats are minutes apart, and probes are most of what idle clients say: 10,000 clients send 670 a
second, where `WAITING_S` would make it 3,300. The few connections from server to server carry forwarded requests of
users at any time, and are probed after `WAITING_S`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from yurt.rpc.wire import SocketWire
from yurt.runtime.env import Env, Timer

WAITING_S: Final = 3.0
"""Silence before a probe while a call waits."""
IDLE_S: Final = 15.0
"""Silence before a probe of an idle client."""
ANSWER_S, LONE_ANSWER_S = 4.0, 12.0
"""How long a server may take to answer a probe; the longer time without another server, where leaving it helps only
when its process hangs for good."""


class SilenceWatch:
    """The silence of one server. It has a timer instead of a task, because there are as many as clients."""

    def __init__(
        self,
        wire: SocketWire,
        env: Env,
        *,
        idle_s: float,
        is_lone: Callable[[], bool],
        on_silence: Callable[[float], None],
    ) -> None:
        """`is_lone` says whether this is the only server. `on_silence` is called with the seconds of silence when the
        server is to be left."""
        self._wire = wire
        self._env = env
        self._idle_s = idle_s
        self._is_lone = is_lone
        self._on_silence = on_silence
        self._clock = asyncio.get_running_loop().time
        self._calls = 0
        self._calls_since_s = 0.0
        self._probed_s = 0.0
        self._timer: Timer | None = None
        self._due_s = 0.0

    def start(self) -> None:
        """Begin to watch."""
        self._look()

    def stop(self) -> None:
        """The connection has ended."""
        if self._timer is not None:
            self._timer.cancel()

    def call_begins(self) -> None:
        """A call waits for its answer from now on."""
        self._calls += 1
        if self._calls == 1:
            self._calls_since_s = now_s = self._clock()
            if self._timer is not None and self._due_s > now_s + WAITING_S:
                self._timer.cancel()
                self._look_in(WAITING_S, now_s)

    def call_ends(self) -> None:
        """A call has its answer, or nobody waits for it any longer."""
        self._calls -= 1

    def _look(self) -> None:
        now_s, arrived_s = self._clock(), self._wire.arrived_s
        is_probed = self._probed_s > arrived_s
        if is_probed:
            due_s = self._probed_s + (LONE_ANSWER_S if self._is_lone() else ANSWER_S)
        else:
            due_s = arrived_s + self._idle_s
            if self._calls:
                due_s = min(due_s, max(arrived_s, self._calls_since_s) + WAITING_S)
        if due_s > now_s:
            # Another server may become known while a lone one has not answered yet.
            self._look_in(min(due_s - now_s, ANSWER_S) if is_probed else due_s - now_s, now_s)
        elif is_probed:
            self._on_silence(now_s - arrived_s)
        else:
            # The limit counts from here, not from what came last: this process itself may have been stopped.
            self._probed_s = now_s
            self._wire.write(b"")
            self._look_in(ANSWER_S, now_s)

    def _look_in(self, seconds: float, now_s: float) -> None:
        self._due_s = now_s + seconds
        self._timer = self._env.call_later(seconds, self._look)
