"""When a silent server is left: on virtual time, with a server that answers probes as late as a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

import pytest
from yurt.access.calls import CallerKind, allowed
from yurt.client.ports import ServerPort
from yurt.rpc.contract import contract_of
from yurt.rpc.dialling import Dialler
from yurt.rpc.link import LOOK_S, Link
from yurt.rpc.peer import Peer
from yurt.rpc.proxy import far_port
from yurt.rpc.silence import ANSWER_S, IDLE_S, LONE_ANSWER_S, WAITING_S, SilenceWatch
from yurt.rpc.wire import SocketWire
from yurt.testing.cluster_models.wires import wire_pair
from yurt.testing.sim.env import SimEnv
from yurt.testing.sim.loop import Process, SimLoop, run_on

HOUR_S = 3600.0
PROMPT_S = 0.01
NEVER_S = HOUR_S * 2
ONE, TWO = ("10.0.0.1:4647",), ("10.0.0.1:4647", "10.0.0.2:4647")


class Connection:
    """The wire of a connection that is idle but for probes, and what watches it."""

    def __init__(self, answer_s: Callable[[float], float], *, is_lone: bool, idle_s: float) -> None:
        """`answer_s` gives, for the time of a probe, how long its answer takes."""
        self._loop = asyncio.get_running_loop()
        self._answer_s = answer_s
        self.is_lone = is_lone
        self.arrived_s = self._loop.time()
        self.probed_s: list[float] = []
        self.left_s = 0.0
        """When the link left it; 0 before."""
        env = SimEnv(cast(SimLoop, self._loop), Process("client"), 1)
        self.silence = SilenceWatch(
            cast(SocketWire, self), env, idle_s=idle_s, is_lone=lambda: self.is_lone, on_silence=self.leave
        )

    def write(self, message: bytes) -> None:
        assert message == b"", "only probes are sent"
        now_s = self._loop.time()
        self.probed_s.append(now_s)
        self._loop.call_later(self._answer_s(now_s), self.arrive)

    def arrive(self) -> None:
        self.arrived_s = self._loop.time()

    def leave(self, _: float) -> None:
        self.left_s = self._loop.time()


def watched(
    answer_s: Callable[[float], float],
    *,
    is_lone: bool = False,
    idle_s: float = IDLE_S,
    event: Callable[[Connection], None] = lambda _: None,
    event_s: float = 0.0,
) -> Connection:
    """A connection after an hour, and after something that happened meanwhile."""
    loop = SimLoop(1)

    async def main() -> Connection:
        connection = Connection(answer_s, is_lone=is_lone, idle_s=idle_s)
        connection.silence.start()
        loop.call_later(event_s, event, connection)
        await asyncio.sleep(HOUR_S)
        connection.silence.stop()
        return connection

    connection: Connection = run_on(loop, main())
    return connection


@pytest.mark.parametrize("is_lone", [False, True])
@pytest.mark.parametrize("idle_s", [WAITING_S, IDLE_S])
def test_a_server_that_answers_is_kept_and_seldom_probed(is_lone: bool, idle_s: float) -> None:
    connection = watched(lambda _: PROMPT_S, is_lone=is_lone, idle_s=idle_s)
    assert not connection.left_s
    assert HOUR_S / (idle_s + ANSWER_S) <= len(connection.probed_s) <= HOUR_S / idle_s


@pytest.mark.parametrize(("is_lone", "limit_s"), [(True, LONE_ANSWER_S), (False, ANSWER_S)])
def test_an_answer_may_take_its_limit_from_the_probe_on(is_lone: bool, limit_s: float) -> None:
    late = watched(lambda now_s: PROMPT_S if now_s < IDLE_S * 2 else limit_s - 0.5, is_lone=is_lone)
    assert not late.left_s

    silent = watched(lambda _: NEVER_S, is_lone=is_lone)
    assert silent.left_s == pytest.approx(IDLE_S + limit_s, abs=0.1)


def test_a_server_that_hangs_with_a_call_is_left_sooner_than_with_none() -> None:
    silent = watched(lambda _: NEVER_S, event=lambda connection: connection.silence.call_begins(), event_s=5.0)
    assert silent.left_s == pytest.approx(5.0 + WAITING_S + ANSWER_S, abs=0.1)


def test_a_call_that_is_answered_makes_no_probe_more_frequent() -> None:
    def call(connection: Connection) -> None:
        connection.silence.call_begins()
        connection.arrive()
        connection.silence.call_ends()

    connection = watched(lambda _: PROMPT_S, event=call, event_s=5.0)
    assert connection.probed_s[0] == pytest.approx(5.0 + IDLE_S, abs=0.1)
    assert len(connection.probed_s) == pytest.approx(HOUR_S / IDLE_S, rel=0.01)


def test_a_second_server_makes_no_silence_too_long_that_was_allowed_before() -> None:
    def learn(connection: Connection) -> None:
        connection.is_lone = False
        connection.arrive()

    assert not watched(lambda _: PROMPT_S, is_lone=True, event=learn, event_s=4.0).left_s


def test_a_second_server_is_taken_although_the_first_was_alone_when_it_was_probed() -> None:
    def learn(connection: Connection) -> None:
        connection.is_lone = False

    silent = watched(lambda _: NEVER_S, is_lone=True, event=learn, event_s=IDLE_S + 1.0)
    assert silent.left_s == pytest.approx(IDLE_S + ANSWER_S, abs=0.1)


def test_a_process_that_was_stopped_asks_before_it_leaves_a_server() -> None:
    def stop(_: Connection) -> None:
        asyncio.get_running_loop()._now_s += 30.0  # type: ignore[attr-defined]

    connection = watched(lambda _: PROMPT_S, event=stop, event_s=1.0)
    assert not connection.left_s
    assert connection.probed_s[0] > 30.0


class Calls(Protocol):
    @allowed(CallerKind.SERVER)
    async def ask(self) -> str: ...

    @allowed(CallerKind.SERVER)
    async def poll(self, *, timeout_s: float) -> str: ...


@pytest.mark.parametrize(("name", "waiting"), [("ask", 1), ("poll", 0)])
async def test_a_call_waits_until_it_ends_unless_it_is_a_long_poll(name: str, waiting: int) -> None:
    near, _ = wire_pair()
    silence = SilenceWatch(
        cast(SocketWire, near), cast(SimEnv, None), idle_s=IDLE_S, is_lone=bool, on_silence=lambda _: None
    )
    peer = Peer(near, serves={}, is_dialler=True, silence=silence)

    async def get() -> Peer:
        return peer

    port = far_port(contract_of(Calls), "calls", get)
    call = asyncio.ensure_future(port.ask() if name == "ask" else port.poll(timeout_s=60.0))
    await asyncio.sleep(0)
    assert silence._calls == waiting

    call.cancel()
    await asyncio.wait({call})
    assert silence._calls == 0


def test_long_polls_are_known_by_the_time_that_they_may_take() -> None:
    polls = {each.name for each in contract_of(ServerPort).values() if each.is_long_poll}
    assert polls == {"pull_allocs", "ask_for_template", "follow_gang"}


def test_a_move_to_a_new_server_waits_only_for_calls_of_the_present_one() -> None:
    loop = SimLoop(1)

    class Idle:
        is_open, is_idle, left_s = True, False, 0.0

        def close(self) -> None:
            self.left_s = loop.time()

    async def main() -> Idle:
        link = Link(ONE, dialler=cast(Dialler, None), serves={}, env=SimEnv(loop, Process("client"), 1))
        peer = Idle()
        link._peer, link._known_as = cast(Peer, peer), ONE[0]
        link.learn(ONE)
        while not link._moves:
            link.learn(ONE)
            link.learn(TWO)
        loop.call_later(10.5, setattr, peer, "is_idle", True)
        await asyncio.sleep(60.0)
        return peer

    peer = run_on(loop, main())
    assert 10.5 <= peer.left_s <= 10.5 + LOOK_S
