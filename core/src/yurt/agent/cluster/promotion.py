"""Has the other servers promote this server's etcd member, which was admitted as a learner, to a voter.

The server asks, since it alone knows that its member runs and what it holds: etcd promotes a learner that has died as
well, and a cluster of one is without a majority then. It asks any server, because etcd passes the request on to its
leader; so it goes on when the one that admitted it has gone. A request whose answer was lost is made again, and has no
effect on a voter.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from yurt.agent.cluster.exchange import Exchange
from yurt.agent.cluster.membership import Membership
from yurt.runtime.env import Env
from yurt.sdk.errors import Unavailable, YurtError
from yurt.structs.member import ALIVE, Member

log = logging.getLogger(__name__)

PROMOTION_LIMIT_S: Final = 30.0
"""How long a learner may wait; then its server restarts it, and after as long again asks to be admitted again. It holds
nearly all of the log by then."""
ASK_LIMIT_S: Final = 6.0
"""How long one server may take, which gives its etcd 5 s."""
PAUSE_FIRST_S, PAUSE_MAX_S = 0.05, 1.0
REPORT_AFTER_S: Final = 1.0


class Promotion:
    """The promotion of one server's etcd member."""

    def __init__(self, exchange: Exchange, membership: Membership, env: Env) -> None:
        self._exchange = exchange
        self._membership = membership
        self._env = env

    async def wait(self, learner_id: str, is_running: Callable[[], bool]) -> None:
        """Return once the member is a voter; raises Unavailable when it does not run any more, or at the limit.

        The member itself may apply its promotion some milliseconds later.
        """
        began_at, pause_s, reported = self._env.monotonic(), PAUSE_FIRST_S, ""
        while problem := await self._ask(learner_id):
            if not is_running():
                raise Unavailable("etcd ended before it was promoted to a voter")
            waited_s = self._env.monotonic() - began_at
            if waited_s > PROMOTION_LIMIT_S:
                raise Unavailable(f"the etcd member was not promoted to a voter in {PROMOTION_LIMIT_S:g} s: {problem}")
            if waited_s > REPORT_AFTER_S and problem != reported:
                log.info("etcd member waits for its promotion to a voter: reason=%s", problem)
                reported = problem
            await self._env.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    async def _ask(self, learner_id: str) -> str:
        """Ask each server in turn; why none has promoted the member, "" when one has."""
        problems = []
        for server in promoters(self._membership.own, self._membership.members()):
            try:
                await self._exchange.ask_once(
                    server.address, server.region, lambda port: port.promote(learner_id), limit_s=ASK_LIMIT_S
                )
            except YurtError as error:
                problems.append(f"{server.name}: {error}")
            else:
                return ""
        return "; ".join(problems) or "no server that has the cluster's data can be reached"


def promoters(own: Member, members: Iterable[Member]) -> tuple[Member, ...]:
    """The servers that can promote the member of the server `own`."""
    return tuple(
        each
        for each in members
        if each.region == own.region
        and each.name != own.name
        and each.status == ALIVE
        and each.has_data
        and each.etcd_addr
    )
