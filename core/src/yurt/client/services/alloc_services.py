"""The services of one allocation: registered with their providers while their tasks run, and checked.

`follow` says what runs now; a worker for each provider brings it to that and tries again until it answers. `withdraw`
is called before tasks are killed: it waits until the services are gone, but not for long, because a provider that
cannot be reached must not keep a task alive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from yurt.client.context import ClientContext
from yurt.client.services.check_runs import CheckRuns
from yurt.client.services.registrations import Registrations
from yurt.client.task_env import EnvInputs, build_env, lookup_in, replace_references
from yurt.lifecycle import services
from yurt.lifecycle.services import ServiceAddress, ServicePlan
from yurt.sdk.services import ServiceProvider
from yurt.structs.alloc import Allocation
from yurt.structs.node import Node

WITHDRAW_LIMIT_S = 2.0


class AllocServices:
    """The registrations and checks of one allocation."""

    def __init__(
        self,
        context: ClientContext,
        providers: Mapping[str, ServiceProvider],
        *,
        checks: CheckRuns,
        group: asyncio.TaskGroup,
    ) -> None:
        self.checks = checks
        self._plan = ServicePlan()
        self._context = context
        self._registrations = {
            name: Registrations(provider, context.env, group) for name, provider in providers.items()
        }
        self._of: Allocation | None = None
        self._running: Mapping[str, str] = {}
        self._is_closed = False

    def follow(self, alloc: Allocation, starts: Mapping[str, int], running: Mapping[str, str]) -> tuple[str, ...]:
        """Set the running tasks with their start times and driver addresses; returns new problems."""
        if self._is_closed:
            return ()
        problems: tuple[str, ...] = ()
        if alloc is not self._of or running != self._running:
            before, self._of, self._running = self._plan, alloc, dict(running)
            place, fill = _place(self._context.node()), self._fill(alloc)
            self._plan = services.plan(alloc, place, fill, running=self._running, providers=self._registrations.keys())
            problems = tuple(text for text in self._plan.problems if text not in before.problems)
        self._want(starts)
        return problems

    def doubt(self, alloc: Allocation) -> None:
        """Deregister services that an earlier agent may have registered and whose tasks do not run now."""
        place, fill = _place(self._context.node()), self._fill(alloc)
        ids = services.ids(alloc, place, fill, providers=self._registrations.keys())
        for name, registrations in self._registrations.items():
            registrations.doubt(ids.get(name, ()))

    def _want(self, starts: Mapping[str, int]) -> None:
        due = services.due(self._plan, starts)
        for name, registrations in self._registrations.items():
            registrations.want({each.registration.id: each.registration for each in due if each.provider == name})
        self.checks.follow(self._plan, starts)

    def resend(self) -> None:
        """Register again, because the providers may have lost their registrations."""
        for registrations in self._registrations.values():
            registrations.resend()

    async def withdraw(self) -> None:
        """Deregister all services; returns when the providers have answered, or at a time limit."""
        self.close()
        await asyncio.gather(*(each.wait_settled(WITHDRAW_LIMIT_S) for each in self._registrations.values()))

    def close(self) -> None:
        """Deregister in the background: no task of the allocation runs."""
        self._is_closed = True
        self._want({})

    def _fill(self, alloc: Allocation) -> services.Fill:
        """Interpolate with the variables of the task; the group's services use those of its first task."""
        job = alloc.job
        group = job.group(alloc.task_group) if job is not None else None
        assert job is not None and group is not None, alloc.id

        def fill(task_name: str, text: str) -> str:
            task = group.task(task_name) or group.tasks[0]
            node, region = self._context.node(), self._context.config.region
            inputs = EnvInputs(
                node=node, region=region, alloc=alloc, job=job, group=group, task=task,
                alloc_dir="", task_dir="", secrets_dir="",
            )  # fmt: skip
            return replace_references(text, lookup_in(node, region, build_env(inputs)))

        return fill


def _place(node: Node) -> ServiceAddress:
    """The address of the node's host, or else of its agent."""
    agent = node.http_addr.rpartition(":")[0].strip("[]")
    address = node.attributes.get("unique.network.ip-address") or agent or "127.0.0.1"
    return ServiceAddress(node_id=node.id, datacenter=node.datacenter, address=address)
