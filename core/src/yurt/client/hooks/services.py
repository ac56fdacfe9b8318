"""The services of an allocation: the hook that follows its tasks, for the providers that the node has."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping

from yurt.client.allocations.client_alloc import ClientAlloc
from yurt.client.context import ClientContext
from yurt.client.services.alloc_services import AllocServices
from yurt.client.services.check_runs import CheckRuns
from yurt.lifecycle import events
from yurt.lifecycle.checks import CheckSpec
from yurt.lifecycle.services import has_services
from yurt.sdk.hooks import AllocHookOf
from yurt.sdk.services import ServiceProvider
from yurt.structs.rpc import AllocCheckStatus


class ServicesHook(AllocHookOf[ClientAlloc]):
    """Keeps the services of each allocation that has some."""

    name = "services"

    def __init__(self, context: ClientContext, providers: Mapping[str, ServiceProvider]) -> None:
        self._context = context
        self.providers = providers
        self._allocs: dict[str, AllocServices] = {}

    async def recover(self, alloc: ClientAlloc) -> None:
        """Deregister what an earlier agent registered and does not run any more, as after a restart of the host."""
        if alloc.id not in self._allocs and has_services(alloc.group, self.providers):
            known = self._allocs[alloc.id] = self._new(alloc)
            known.doubt(alloc.alloc)

    def update(self, alloc: ClientAlloc) -> None:
        """Register what runs now, and check it."""
        known = self._allocs.get(alloc.id)
        if known is None:
            if alloc.stopping.is_set() or not has_services(alloc.group, self.providers):
                return
            known = self._allocs[alloc.id] = self._new(alloc)
        starts = alloc.running
        handles = {name: alloc.tasks[name].handle for name in starts}
        addresses = {name: handle.address if handle is not None else "" for name, handle in handles.items()}
        for problem in known.follow(alloc.alloc, starts, addresses):
            alloc.note(events.task_setup(problem))

    def _new(self, alloc: ClientAlloc) -> AllocServices:
        def restart(spec: CheckSpec) -> None:
            for name in [spec.task] if spec.task in alloc.tasks else list(alloc.tasks):
                alloc.restart(name, f'healthcheck: check "{spec.name}" unhealthy')

        runs = CheckRuns(self._context.env, alloc.work, on_change=alloc.changed, restart=restart)
        return AllocServices(self._context, self.providers, checks=runs, group=alloc.work)

    def stopping(self, alloc: ClientAlloc) -> Awaitable[None] | None:
        """Deregister services first, so that no client is directed to tasks that end."""
        known = self._allocs.get(alloc.id)
        return known.withdraw() if known is not None else None

    def finish(self, alloc: ClientAlloc) -> None:
        """The allocation is over: close its registrations."""
        known = self._allocs.pop(alloc.id, None)
        if known is not None:
            known.close()

    def resend(self, alloc_id: str) -> None:
        """The providers may have forgotten the services."""
        known = self._allocs.get(alloc_id)
        if known is not None:
            known.resend()

    def checks_pass(self, alloc: ClientAlloc) -> bool:
        """Every check that a deployment waits for has succeeded."""
        known = self._allocs.get(alloc.id)
        return known is None or known.checks.all_pass

    def statuses(self, alloc_id: str) -> tuple[AllocCheckStatus, ...]:
        """The last results of the checks."""
        known = self._allocs.get(alloc_id)
        return known.checks.statuses() if known is not None else ()
