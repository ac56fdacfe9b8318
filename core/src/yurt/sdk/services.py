"""The contract of service providers: register the services of allocations for discovery.

A `service` block names its provider: `provider = "nomad"` is Yurt's own, which keeps services in the state of the
servers. A client gives the services of any other provider to the package that registers one of that name. The client
decides when a service is there (its task runs), fills in its variables and addresses, and runs its checks; the provider
only makes known what it is told.

The client brings the provider to what is wanted: it calls again what failed, second by second, until it succeeds, and
after a restart of the agent it registers all that is wanted once more. So `register` replaces a service that is known,
and `deregister` does nothing for one that is not. The services of one allocation are told one call after the other,
those of several side by side.
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
