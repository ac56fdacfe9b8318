"""The contract of service providers: register the services of allocations for discovery.

A `service` block names its provider: `provider = "nomad"` is Yurt's own, which registers services in the servers'
state. A client passes services of any other provider to the package with a provider of that name. The client decides
when a service exists (while its task runs), fills in its variables and addresses, and runs its checks; the provider
only publishes it.

The client reconciles the provider with the desired services: it repeats a failed call, about once a second, until it
succeeds, and registers all desired services again after a restart of the agent. So `register` must replace an existing
service, and `deregister` must ignore an unknown one. Calls for one allocation come one after the other, calls for
several allocations at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol, runtime_checkable

from yurt.sdk.value import Value, no_entries

NOMAD: Final = "nomad"
"""Yurt's own provider, which no package replaces."""
DEFAULT_PROVIDER: Final = "consul"
"""The provider of services without one in the job."""

NODE_ATTRIBUTE: Final = "service.provider."
"""The attribute of a node with a provider: this prefix and its name, with the value "true"."""


class ServiceInstance(Value):
    """A service of one allocation with its address; `task_name` is empty for a group service.

    `id` stays the same while the allocation lives, and no other service of the cluster has it. `port` is 0 for none.
    """

    id: str
    name: str
    namespace: str
    node_id: str
    datacenter: str
    job_id: str
    alloc_id: str
    group_name: str
    task_name: str = ""
    tags: tuple[str, ...] = ()
    meta: Mapping[str, str] = no_entries()
    address: str = ""
    port: int = 0


@runtime_checkable
class ServiceProvider(Protocol):
    """Registers services; all calls run on the client's event loop and must not block."""

    name: str

    async def register(self, services: tuple[ServiceInstance, ...]) -> None:
        """Register or replace services; raises Unavailable when a retry may help."""
        ...

    async def deregister(self, ids: tuple[str, ...]) -> None:
        """Deregister services; tasks wait for it before they are killed, for 2 s at most."""
        ...

    async def close(self) -> None:
        """Free the provider's own resources: the agent stops, services stay registered."""
        ...
