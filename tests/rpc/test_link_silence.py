"""When a link leaves a silent server: on virtual time, with a server that answers probes as late as a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest
from yurt.rpc.dialling import Dialler
from yurt.rpc.link import ANSWER_S, IDLE_S, LONE_ANSWER_S, Link
from yurt.rpc.peer import Peer
from yurt.rpc.wire import SocketWire
from yurt.testing.sim.env import SimEnv
from yurt.testing.sim.loop import Process, SimLoop, run_on

HOUR_S = 3600.0
PROMPT_S = 0.01
ONE, TWO = ("10.0.0.1:4647",), ("10.0.0.1:4647", "10.0.0.2:4647")


class Connection:
    """The wire and the peer of a connection that is idle but for probes."""

    def __init__(self, answer_s: Callable[[float], float]) -> None:
        """`answer_s` gives, for the time of a probe, how long its answer takes."""
        self._loop = asyncio.get_running_loop()
        self._answer_s = answer_s
        self.arrived_s = self._loop.time()
        self.is_idle = True
        self.probed_s: list[float] = []
        self.left_s = 0.0
        """When the link left it; 0 before."""

    def write(self, message: bytes) -> None:
        assert message == b"", "only probes are sent"
        now_s = self._loop.time()
        self.probed_s.append(now_s)
        self._loop.call_later(self._answer_s(now_s), self.arrive)

    def arrive(self) -> None:
        self.arrived_s = self._loop.time()

    def abort(self) -> None:
        self.left_s = self._loop.time()

    def close(self) -> None:
        self.left_s = self.left_s or self._loop.time()


def watched(
    addresses: tuple[str, ...],
    answer_s: Callable[[float], float],
    *,
    seconds: float = HOUR_S,
    event: Callable[[Link, Connection], None] = lambda *_: None,
    event_s: float = 0.0,
) -> Connection:
    """A connection after some virtual time, and after something that happened meanwhile."""
    loop = SimLoop(1)

    async def main() -> Connection:
        env = SimEnv(loop, Process("client"), 1)
        link, connection = Link(addresses, dialler=cast(Dialler, None), serves={}, env=env), Connection(answer_s)
        loop.call_later(event_s, event, link, connection)
        watching = asyncio.create_task(link._watch(cast(SocketWire, connection), cast(Peer, connection)))
        await asyncio.wait([watching], timeout=seconds)
        watching.cancel()
        return connection

    connection: Connection = run_on(loop, main())
    return connection


@pytest.mark.parametrize("addresses", [ONE, TWO])
def test_a_server_that_answers_is_kept_and_seldom_asked(addresses: tuple[str, ...]) -> None:
    connection = watched(addresses, lambda _: PROMPT_S)
    assert not connection.left_s
    assert HOUR_S / (IDLE_S + ANSWER_S) <= len(connection.probed_s) <= HOUR_S / IDLE_S


@pytest.mark.parametrize(("addresses", "limit_s"), [(ONE, LONE_ANSWER_S), (TWO, ANSWER_S)])
def test_an_answer_may_take_its_limit_from_the_probe_on(addresses: tuple[str, ...], limit_s: float) -> None:
    assert not watched(addresses, lambda now_s: PROMPT_S if now_s < IDLE_S * 2 else limit_s - 0.5).left_s

    silent = watched(addresses, lambda _: HOUR_S * 2)
    assert silent.left_s == pytest.approx(IDLE_S + limit_s, abs=0.1)


def test_a_second_server_makes_no_silence_too_long_that_was_allowed_before() -> None:
    def learn(link: Link, connection: Connection) -> None:
        link._order.learn(TWO)
        connection.arrive()

    assert not watched(ONE, lambda _: PROMPT_S, event=learn, event_s=4.0).left_s


def test_a_process_that_was_stopped_asks_before_it_leaves_a_server() -> None:
    def stop(_: Link, connection: Connection) -> None:
        asyncio.get_running_loop()._now_s += 30.0  # type: ignore[attr-defined]

    connection = watched(TWO, lambda _: PROMPT_S, event=stop, event_s=1.0)
    assert not connection.left_s
    assert connection.probed_s[0] > 30.0


def test_a_move_to_a_new_server_is_not_put_off_by_a_sleep() -> None:
    def move(link: Link, connection: Connection) -> None:
        link._moves = True
        connection.arrive()

    connection = watched(ONE, lambda _: PROMPT_S, seconds=60.0, event=move, event_s=3.5)
    assert 3.5 < connection.left_s <= 3.5 + ANSWER_S
