"""What a job may say and this version does nothing with: told when the job is registered, one line a field.

A field leaves this module when the code that honours it arrives. What a task cannot safely run without (vault, secrets,
tokens of an identity or of Consul) is not here: the client refuses to start such a task.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from yurt.structs.constraint import Constraint
from yurt.structs.job import TaskGroup
from yurt.structs.network import NetworkResource
from yurt.structs.task import Task


def group_no_effects(group: TaskGroup) -> Iterator[str]:
    """A line for each field of the group and its networks."""
    named = [("ephemeral_disk.migrate", group.ephemeral_disk.migrate), ("consul", group.consul is not None)]
    yield from lines(named)
    for network in group.networks:
        yield from lines(network_fields(network))


def task_no_effects(group: TaskGroup, task: Task) -> Iterator[str]:
    """A line for each field of the task."""
    resources = task.resources
    identities = (*task.identities, *((task.identity,) if task.identity is not None else ()))
    named = [
        ("resources.numa", resources.numa is not None and resources.numa.affinity not in ("", "none")),
        ("resources.secrets", resources.secrets_mb > 0),
        ("resources.iops", resources.iops > 0),
        ("kind", bool(task.kind)),
    ]
    named += [(f'scaling "{policy.type.removeprefix("vertical_")}"', True) for policy in task.scaling_policies]
    named += [(f'action "{action.name}"', True) for action in task.actions]
    named += [
        (f'identity "{identity.name}"', True)
        for identity in identities
        if identity.name not in ("", "default") and not (identity.env or identity.file)
    ]
    yield from lines(named)
    for network in resources.networks:
        yield from lines(network_fields(network))


def network_fields(network: NetworkResource) -> list[tuple[str, bool]]:
    """Fields of a network with whether they are set."""
    dns = network.dns is not None and any((network.dns.servers, network.dns.searches, network.dns.options))
    return [
        ("network.dns", dns),
        ("network.cni", network.cni is not None and bool(network.cni.args)),
        ("network.cidr", bool(network.cidr)),
        ("network.ip", bool(network.ip)),
        ("network.device", bool(network.device)),
        ("network.mbits", network.mbits > 0),
    ]


def lines(named: Iterable[tuple[str, bool]]) -> Iterator[str]:
    """The sentence about each field that is set."""
    return (f"{name} has no effect in this version" for name, is_set in named if is_set)


def constraint_doubts(constraints: Iterable[Constraint]) -> Iterator[str]:
    """Constraints that compare with nothing: mostly a short form of `is_set` that the file format does not have."""
    for constraint in constraints:
        if constraint.operand in ("=", "==", "is") and constraint.l_target and not constraint.r_target:
            yield (
                f'constraint {constraint.l_target} {constraint.operand} "" is met only where it is set and empty; '
                'to ask whether it is set at all, write operator = "is_set" or "is_not_set"'
            )
