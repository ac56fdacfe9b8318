"""The services hook: registers an allocation's services with their providers while its tasks run."""

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
    """Registers and checks the services of each allocation that has some."""

    name = "services"

    def __init__(self, context: ClientContext, providers: Mapping[str, ServiceProvider]) -> None:
        self._context = context
        self.providers = providers
        self._allocs: dict[str, AllocServices] = {}

    async def recover(self, alloc: ClientAlloc) -> None:
        """Deregister services of an earlier agent whose tasks no longer run, as after a restart of the host."""
        if alloc.id not in self._allocs and has_services(alloc.group, self.providers):
            services = self._allocs[alloc.id] = self._new(alloc)
            services.doubt(alloc.alloc)

    def update(self, alloc: ClientAlloc) -> None:
        """Register and check the services of the running tasks."""
        services = self._allocs.get(alloc.id)
        if services is None:
            if alloc.stopping.is_set() or not has_services(alloc.group, self.providers):
                return
            services = self._allocs[alloc.id] = self._new(alloc)
        starts = alloc.running
        handles = {name: alloc.tasks[name].handle for name in starts}
        addresses = {name: handle.address if handle is not None else "" for name, handle in handles.items()}
        for problem in services.follow(alloc.alloc, starts, addresses):
            alloc.note(events.task_setup(problem))

    def _new(self, alloc: ClientAlloc) -> AllocServices:
        def restart(spec: CheckSpec) -> None:
            for name in [spec.task] if spec.task in alloc.tasks else list(alloc.tasks):
                alloc.restart(name, f'healthcheck: check "{spec.name}" unhealthy')

        runs = CheckRuns(self._context.env, alloc.work, on_change=alloc.changed, restart=restart)
        return AllocServices(self._context, self.providers, checks=runs, group=alloc.work)

    def stopping(self, alloc: ClientAlloc) -> Awaitable[None] | None:
        """Deregister services before their tasks end, so that no caller is directed to a task that ends."""
        services = self._allocs.get(alloc.id)
        return services.withdraw() if services is not None else None

    def finish(self, alloc: ClientAlloc) -> None:
        """Close the registrations of an allocation that is over."""
        services = self._allocs.pop(alloc.id, None)
        if services is not None:
            services.close()

    def resend(self, alloc_id: str) -> None:
        """Register the services again, because their providers may have lost them."""
        services = self._allocs.get(alloc_id)
        if services is not None:
            services.resend()

    def checks_pass(self, alloc: ClientAlloc) -> bool:
        """Whether every check that a deployment waits for has succeeded."""
        services = self._allocs.get(alloc.id)
        return services is None or services.checks.all_pass

    def statuses(self, alloc_id: str) -> tuple[AllocCheckStatus, ...]:
        """The last results of the checks."""
        services = self._allocs.get(alloc_id)
        return services.checks.statuses() if services is not None else ()
