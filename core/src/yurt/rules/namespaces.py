"""Restrictions of a namespace on its jobs: task drivers, network modes, node pools.

The rules are checked when a job is admitted, so that all problems show at once, and again where a version of a job
is stored: scaling, reverts, dispatches and launches make versions too, and a rule may be newer than the job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from yurt.rules.workload_claims import extra_claim_problems
from yurt.structs.cluster import Namespace, NamespaceCapabilities, NamespaceNodePoolConfiguration
from yurt.structs.job import Job, TaskGroup

DEFAULT_POOL: Final = "default"
HOST: Final = "host"
_STAR: Final = "*"


def default_pool(namespace: Namespace | None) -> str:
    """The node pool of jobs without one."""
    pools = None if namespace is None else namespace.node_pool_configuration
    return DEFAULT_POOL if pools is None else pools.default or DEFAULT_POOL


def namespace_problems(namespace: Namespace, job: Job) -> Iterator[str]:
    """The features used by the job that its namespace forbids."""
    if namespace.capabilities is not None:
        yield from _capability_problems(namespace.name, namespace.capabilities, job)
    pools = namespace.node_pool_configuration
    if pools is not None and not _is_pool_allowed(pools, job.node_pool):
        yield f'job "{job.id}" is in node pool "{job.node_pool}", which is not allowed in namespace "{namespace.name}"'


def configuration_problems(namespace: Namespace) -> Iterator[str]:
    """Contradictions in the rules of a namespace, and extra claims that no token can carry."""
    yield from extra_claim_problems(namespace)
    pools = namespace.node_pool_configuration
    if pools is None:
        return
    if pools.allowed is not None and pools.denied is not None:
        yield "node pools: give either those that are allowed or those that are denied, not both"
    if pools.default and pools.denied is not None and _is_listed(pools.denied, pools.default):
        yield f'node pools: the default "{pools.default}" is denied'


def _capability_problems(name: str, capabilities: NamespaceCapabilities, job: Job) -> Iterator[str]:
    drivers = {task.driver for group in job.task_groups for task in group.tasks}
    refused = _refused(drivers, capabilities.enabled_task_drivers, capabilities.disabled_task_drivers)
    if refused:
        yield f'used task drivers {refused} are not allowed in namespace "{name}"'
    modes = {mode for group in job.task_groups for mode in _modes(group)}
    refused = _refused(modes, capabilities.enabled_network_modes, capabilities.disabled_network_modes)
    if refused:
        yield f'used group network modes {refused} are not allowed in namespace "{name}"'


def _modes(group: TaskGroup) -> tuple[str, ...]:
    """The network modes of a group. One without a network shares that of its node, as in the mode `host`."""
    return tuple(network.mode or HOST for network in group.networks) or (HOST,)


def _refused(used: set[str], enabled: tuple[str, ...], disabled: tuple[str, ...]) -> str:
    bad = sorted(word for word in used if word in disabled or (enabled and word not in enabled))
    return "[" + " ".join(f'"{word}"' for word in bad) + "]" if bad else ""


def _is_pool_allowed(pools: NamespaceNodePoolConfiguration, pool: str) -> bool:
    """Whether jobs may use a pool; the default one always, and only that if the list of allowed ones is empty."""
    if pool == (pools.default or DEFAULT_POOL):
        return True
    if pools.allowed is not None:
        return _is_listed(pools.allowed, pool)
    return pools.denied is None or not _is_listed(pools.denied, pool)


def _is_listed(names: Iterable[str], pool: str) -> bool:
    return any(_is_match(name, pool) for name in names)


def _is_match(name: str, pool: str) -> bool:
    if _STAR not in name:
        return name == pool
    from yurt.acl.globs import matcher  # late: few namespaces have globs, and every agent imports this module

    return matcher(name)(pool)
