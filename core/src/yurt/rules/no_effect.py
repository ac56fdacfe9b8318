"""Job settings that this version ignores; registration reports one line per field.

A field leaves this module when the code that honours it arrives. What a task cannot safely run without (vault, secrets,
tokens of an identity or of Consul) is `not_available`: the client refuses to start such a task.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from yurt.lifecycle.services import provider_of
from yurt.sdk.services import NOMAD
from yurt.structs.constraint import Constraint
from yurt.structs.job import TaskGroup
from yurt.structs.network import NetworkResource
from yurt.structs.resources import Resources
from yurt.structs.service import Service
from yurt.structs.task import Task

TOKEN_IDENTITIES = ("consul_", "vault_")
"""Names of identities that request a token of another product."""


def group_no_effects(group: TaskGroup) -> Iterator[str]:
    """One line for each ignored field of the group and its networks."""
    yield from lines([("consul", group.consul is not None)])
    for network in group.networks:
        yield from lines(network_fields(network))


def task_no_effects(group: TaskGroup, task: Task) -> Iterator[str]:
    """One line for each ignored field of the task."""
    resources = task.resources
    identities = (*task.identities, *((task.identity,) if task.identity is not None else ()))
    named = [
        ("resources.numa", resources.numa is not None and not _is_numa_heeded(resources)),
        ("resources.iops", resources.iops > 0),
        ("kind", bool(task.kind)),
    ]
    named += [(f'scaling "{policy.type.removeprefix("vertical_")}"', True) for policy in task.scaling_policies]
    named += [
        (f'identity "{identity.name}"', True)
        for identity in identities
        if identity.name not in ("", "default")
        and not identity.name.startswith(TOKEN_IDENTITIES)
        and not (identity.env or identity.file)
    ]
    yield from lines(named)
    for network in resources.networks:
        yield from lines(network_fields(network))


def _is_numa_heeded(resources: Resources) -> bool:
    """Whether the task's NUMA block has its effect: memory follows its devices; the choice of cores ignores it."""
    affinity = resources.numa.affinity if resources.numa is not None else ""
    return affinity in ("", "none") or (affinity == "require" and bool(resources.devices))


def unregistered(services: Iterable[Service], providers: Collection[str] = (NOMAD,)) -> Iterator[str]:
    """One sentence per service without an available provider; `providers` are the available ones."""
    for service in services:
        if provider_of(service) not in providers:
            yield (
                f'service "{service.name}" is not registered: its provider is {provider_of(service)}, '
                f'and this version registers those with provider = "{NOMAD}"'
            )


def not_available(group: TaskGroup, task: Task) -> Iterator[str]:
    """Unavailable features that the task or its group's services request and that prevent a start."""
    blocks = (
        ("vault", task.vault),
        ("consul", task.consul),
        ("secret", task.secrets),
    )
    yield from (name for name, value in blocks if value)
    identities = (*task.identities, *((task.identity,) if task.identity else ()))
    yield from (f"identity {each.name!r}" for each in identities if each.name.startswith(TOKEN_IDENTITIES))
    services = [service for service in (*group.services, *task.services) if service.connect]
    if any(is_gateway(service) for service in services):
        yield "connect gateway"
    elif services:
        yield "connect"


def is_gateway(service: Service) -> bool:
    """Whether the service asks for a Connect gateway."""
    return any(key.lower() == "gateway" and value for key, value in (service.connect or {}).items())


def network_fields(network: NetworkResource) -> list[tuple[str, bool]]:
    """Fields of a network, each with whether it is set."""
    has_plugins = network.mode == "bridge" or network.mode.startswith("cni/")
    return [
        ("network.cni", network.cni is not None and bool(network.cni.args) and not has_plugins),
        ("network.cidr", bool(network.cidr)),
        ("network.ip", bool(network.ip)),
        ("network.device", bool(network.device)),
        ("network.mbits", network.mbits > 0),
    ]


def lines(named: Iterable[tuple[str, bool]]) -> Iterator[str]:
    """One warning sentence per set field."""
    return (f"{name} has no effect in this version" for name, is_set in named if is_set)


def constraint_doubts(constraints: Iterable[Constraint]) -> Iterator[str]:
    """Constraints without a comparison value: usually a short form of `is_set`, which job files do not have."""
    for constraint in constraints:
        if constraint.operand in ("=", "==", "is") and constraint.l_target and not constraint.r_target:
            yield (
                f'constraint {constraint.l_target} {constraint.operand} "" is met only where it is set and empty; '
                'to ask whether it is set at all, write operator = "is_set" or "is_not_set"'
            )
