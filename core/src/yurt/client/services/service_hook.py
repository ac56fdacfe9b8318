"""Registers the services of one allocation while their tasks run, and runs their checks.

`follow` says what runs now; a worker of the allocation brings the servers' view to that and tries again until they
answer. `withdraw` is called before tasks are killed: it waits until the services are gone, but not for long, because
servers that cannot be reached must not keep a task alive.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from yurt.client.context import ClientContext
from yurt.client.services.probe import probe
from yurt.client.task_env import EnvInputs, build_env, lookup_in, replace_references
from yurt.client.waiting import wait_or_sleep
from yurt.lifecycle import checks, services
from yurt.lifecycle.checks import CheckRun, CheckSpec
from yurt.lifecycle.services import Place, ServicePlan
from yurt.runtime.supervise import supervised
from yurt.sdk.errors import YurtError
from yurt.sdk.value import NANOSECONDS
from yurt.structs.alloc import Allocation
from yurt.structs.job import TaskGroup
from yurt.structs.node import Node
from yurt.structs.rpc import AllocCheckStatus
from yurt.structs.service import ServiceRegistration

RETRY_S = 1.0
WITHDRAW_LIMIT_S = 2.0

log = logging.getLogger(__name__)

Restart = Callable[[CheckSpec], None]


class ServiceHook:
    """The services of one allocation. `restart` is told which check wants its task restarted."""

    def __init__(
        self, context: ClientContext, *, group: asyncio.TaskGroup, on_change: Callable[[], None], restart: Restart
    ) -> None:
        self.plan = ServicePlan()
        self._context = context
        self._group = group
        self._on_change = on_change
        self._restart = restart
        self._of: Allocation | None = None
        self._running: Mapping[str, str] = {}
        self._wanted: dict[str, ServiceRegistration] = {}
        self._known: dict[str, ServiceRegistration] = {}
        self._changed = asyncio.Event()
        self._settled = asyncio.Event()
        self._settled.set()
        self._worker: asyncio.Task[None] | None = None
        self._is_closed = False
        self._starts: Mapping[str, int] = {}
        self._runs: dict[str, CheckRun] = {}
        self._probes: dict[str, asyncio.Task[None]] = {}
        self._wakes: dict[str, asyncio.Event] = {}

    def follow(
        self, alloc: Allocation, group: TaskGroup, starts: Mapping[str, int], running: Mapping[str, str]
    ) -> tuple[str, ...]:
        """These tasks run, since when and at which address of their drivers; what is new of what is wrong with them."""
        if self._is_closed:
            return ()
        problems: tuple[str, ...] = ()
        if alloc is not self._of or running != self._running:
            before, self._of, self._running = self.plan, alloc, dict(running)
            place, fill = _place(self._context.node()), self._fill(alloc, group)
            self.plan = services.plan(alloc, group, place, fill, running=self._running)
            problems = tuple(text for text in self.plan.problems if text not in before.problems)
        self._set_wanted({each.registration.id: each.registration for each in services.due(self.plan, starts)})
        self._follow_checks(starts)
        return problems

    def resend(self) -> None:
        """The servers may have forgotten what they were told."""
        self._known.clear()
        self._wake_worker()

    async def withdraw(self) -> None:
        """Take all services back; returns when the servers know, or after a moment."""
        self._is_closed = True
        self._follow_checks({})
        self._set_wanted({})
        await wait_or_sleep(self._context.env, self._settled, WITHDRAW_LIMIT_S)

    def close(self) -> None:
        """Nothing runs any more; what the servers still know is taken back by and by."""
        self._is_closed = True
        self._follow_checks({})
        self._set_wanted({})

    @property
    def checks_pass(self) -> bool:
        """Every check that a deployment waits for has succeeded; services that could not be registered do not."""
        specs = [spec for each in self.plan.planned for spec in each.checks]
        pending = CheckRun(next_at=self._context.env.now(), counts_from=self._context.env.now())
        return checks.all_pass((spec, self._runs.get(spec.id, pending)) for spec in specs)

    def statuses(self) -> tuple[AllocCheckStatus, ...]:
        """All checks that run, or ran last."""
        specs = {spec.id: spec for each in self.plan.planned for spec in each.checks}
        return tuple(checks.status_of(specs[each], run) for each, run in sorted(self._runs.items()) if each in specs)

    def _fill(self, alloc: Allocation, group: TaskGroup) -> services.Fill:
        """Variables as the task sees them; the group sees those of its first task."""

        def fill(task_name: str, text: str) -> str:
            task = group.task(task_name) or group.tasks[0]
            assert alloc.job is not None, alloc.id
            node, region = self._context.node(), self._context.config.region
            inputs = EnvInputs(
                node=node, region=region, alloc=alloc, job=alloc.job, group=group, task=task,
                alloc_dir="", task_dir="", secrets_dir="",
            )  # fmt: skip
            return replace_references(text, lookup_in(node, region, build_env(inputs)))

        return fill

    # What the servers know.

    def _set_wanted(self, wanted: dict[str, ServiceRegistration]) -> None:
        if wanted != self._wanted:
            self._wanted = wanted
            self._wake_worker()

    def _wake_worker(self) -> None:
        self._settled.clear()
        self._changed.set()
        if self._worker is None or self._worker.done():
            self._worker = supervised(self._group, "registration of services", self._keep_registered())

    async def _keep_registered(self) -> None:
        """Until the servers know exactly what is wanted."""
        while True:
            self._changed.clear()
            try:
                await self._bring_up_to_date()
            except YurtError as error:
                log.warning("services are not up to date with the servers, trying again: %s", error)
                await wait_or_sleep(self._context.env, self._changed, RETRY_S)
                continue
            if not self._changed.is_set():
                self._settled.set()
                return

    async def _bring_up_to_date(self) -> None:
        wanted, server, node_id = self._wanted, self._context.server, self._context.node().id
        gone = tuple(service_id for service_id in self._known if service_id not in wanted)
        if gone:
            await server.deregister_services(node_id, gone)
            for service_id in gone:
                self._known.pop(service_id, None)
        new = tuple(service for service in wanted.values() if self._known.get(service.id) != service)
        if new:
            self._known |= {service.id: service for service in new}
            try:
                await server.register_services(node_id, new)
            except YurtError:
                self._known |= {service.id: ServiceRegistration(id=service.id) for service in new}
                raise

    # Checks.

    def _follow_checks(self, starts: Mapping[str, int]) -> None:
        now = self._context.env.now()
        due = {spec.id: spec for spec in services.checked(self.plan, starts)}
        for check_id in [each for each in self._probes if each not in due]:
            self._probes.pop(check_id).cancel()
        for check_id, spec in due.items():
            if check_id not in self._probes:
                self._runs[check_id] = checks.begin(spec, now=now)
                self._wakes[check_id] = asyncio.Event()
                self._probes[check_id] = supervised(self._group, f"check {spec.name}", self._run_check(check_id))
            elif self._start_of(spec, starts) != self._start_of(spec, self._starts):
                self._runs[check_id] = checks.restarted(spec, self._runs[check_id], now=now)
                self._wakes[check_id].set()
        self._starts = dict(starts)

    @staticmethod
    def _start_of(spec: CheckSpec, starts: Mapping[str, int]) -> int:
        return starts.get(spec.task, 0) if spec.task else max(starts.values(), default=0)

    def _spec(self, check_id: str) -> CheckSpec | None:
        return next((spec for each in self.plan.planned for spec in each.checks if spec.id == check_id), None)

    async def _run_check(self, check_id: str) -> None:
        env, wake = self._context.env, self._wakes[check_id]
        while (spec := self._spec(check_id)) is not None:
            left_s = (self._runs[check_id].next_at - env.now()) / NANOSECONDS
            if left_s > 0 and await wait_or_sleep(env, wake, left_s):
                wake.clear()
                continue
            asked = self._runs[check_id]
            outcome = await probe(spec)
            if self._runs[check_id] is not asked:
                continue
            step = checks.observed(spec, asked, outcome, now=env.now())
            self._runs[check_id] = step.run
            if step.run.status != asked.status:
                self._on_change()
            if step.is_restart:
                self._restart(spec)


def _place(node: Node) -> Place:
    """Where the node's host is reached: its own address, else the one of its agent."""
    agent = node.http_addr.rpartition(":")[0].strip("[]")
    address = node.attributes.get("unique.network.ip-address") or agent or "127.0.0.1"
    return Place(node_id=node.id, datacenter=node.datacenter, address=address)
