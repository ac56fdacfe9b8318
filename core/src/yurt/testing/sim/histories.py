"""Histories of concurrent requests to simulated servers, checked as those of real ones (`yurt.testing.histories`).

Lanes drive objects of their own with bursts of requests to random servers while faults happen. When the faults have
stopped the lanes finish their objects, and some order of the requests must explain every answer.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Sequence

from yurt.sdk.errors import ERROR_HEADER, reason_of, reason_of_status
from yurt.testing.histories.acl.tokens import TokenKind
from yurt.testing.histories.clients import (
    MAYBE,
    NO_EFFECT,
    REQUEST_LIMIT_S,
    UNREAD,
    Clients,
    LoadShape,
    ObjectLoad,
    Recorded,
    Senders,
)
from yurt.testing.histories.dispatches import DispatchKind
from yurt.testing.histories.documents import NamespaceKind, NodePoolKind
from yurt.testing.histories.history import Operation
from yurt.testing.histories.job_requests import JobKind
from yurt.testing.histories.kinds import Kind, answered
from yurt.testing.histories.report import report_on
from yurt.testing.histories.variables import VariableKind
from yurt.testing.sim.agents import MANAGEMENT, ServerAgent
from yurt.testing.sim.plan import Plan

SHAPE = LoadShape(lanes=2, width=4, bursts=5)


class SimClients(Clients):
    """Clients of simulated servers; `finish` lets each lane finish the object it has begun."""

    def __init__(self, servers: Sequence[ServerAgent], plan: Plan) -> None:
        # The garbage collector takes jobs away, of which the models know nothing.
        kinds: list[Kind] = [VariableKind(), NamespaceKind(), NodePoolKind()]
        kinds += [] if "gc" in plan.features else [JobKind(), DispatchKind()]
        kinds += [TokenKind()] if plan.has_acl else []
        kinds = [kind for kind in kinds if not plan.histories or kind.name in plan.histories]
        names = [server.name for server in servers]
        super().__init__(names, kinds, seed=plan.seed, shape=SHAPE, token=MANAGEMENT if plan.has_acl else "")
        self._pause_s = plan.history_pause_s
        self.is_over = False
        self._servers = servers
        self._next = itertools.count()

    async def drive(self) -> None:
        """Send requests until `finish`."""
        async with asyncio.TaskGroup() as group:
            for _ in range(SHAPE.lanes):
                group.create_task(self._drive_lane(Senders(None, group)))  # type: ignore[arg-type]

    async def _drive_lane(self, senders: Senders) -> None:
        while not self.is_over:
            number = next(self._next)
            await asyncio.sleep(random.Random(f"{self._seed} pause {number}").expovariate(1 / self._pause_s))
            kind = self._kinds[number % len(self._kinds)]
            drive = ObjectLoad(self, senders, kind, kind.key(number), random.Random(f"{self._seed}/{number}"))
            self.recorded.append(Recorded(kind, drive.key, await drive.run(SHAPE)))

    def finish(self) -> None:
        """Let lanes begin no more objects."""
        self.is_over = True

    async def send(self, session: object, kind: Kind, plan: Operation, *, is_stale: bool = False) -> Operation | None:
        """Send one request to a simulated server; None when the answer promises that it had no effect."""
        prepared = kind.prepare(plan.key, plan.request)
        agent, loop = self._servers[plan.client % len(self._servers)], asyncio.get_running_loop()
        path = prepared.path + ("&" if "?" in prepared.path else "?") + "stale" if is_stale else prepared.path
        plan = plan._replace(invoked=round(loop.time() * 1e9))
        try:
            async with asyncio.timeout(REQUEST_LIMIT_S):
                answer = await agent.call(prepared.method, path, prepared.body, token=prepared.token or self._token)
        except ConnectionRefusedError:
            await self._not_carried_out(plan, kind)
            return None
        except (ConnectionResetError, TimeoutError):
            return self._counted(plan, kind, "unknown")
        reason = reason_of(answer.headers.get(ERROR_HEADER, "")) or reason_of_status(answer.status)
        if answer.status == UNREAD or (answer.status >= 429 and reason in NO_EFFECT):
            await self._not_carried_out(plan, kind)
            return None
        if answer.status >= 500 and reason in MAYBE:
            return self._counted(plan, kind, "unknown")
        text = answer.body.decode(errors="replace")
        reply = answered(answer.status, answer.headers.get("X-Nomad-Index", ""), text, kind, plan.request)
        return self._counted(plan._replace(returned=round(loop.time() * 1e9), answer=reply), kind, str(answer.status))

    def problem(self) -> str:
        """The first history that no order of its requests explains; "" when there is none."""
        found = report_on(self.recorded).violations
        return found[0] if found else ""
