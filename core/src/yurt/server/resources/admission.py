"""Admission of a job: its own rules, the cluster it targets, and its drivers' options."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from yurt.lifecycle.services import provider_of
from yurt.rules.bounds import bound_problems, is_costly
from yurt.rules.driver_schemas import read_schema
from yurt.rules.idle import with_idle_policy
from yurt.rules.namespaces import default_pool, namespace_problems
from yurt.rules.no_effect import unregistered
from yurt.rules.problems import nested
from yurt.sdk.errors import Invalid
from yurt.sdk.schema import check_config
from yurt.sdk.services import DEFAULT_PROVIDER, NOMAD
from yurt.sdk.value import replace
from yurt.server.config import ServerConfig
from yurt.server.requests import RetainedFields
from yurt.server.resources.node_names import NO_NODES, CommonNames, NodeNames, sample_of
from yurt.state import Snapshot
from yurt.structs.job import Job, TaskGroup
from yurt.structs.predicates import is_match, total_count_problem
from yurt.structs.service import Service
from yurt.structs.task import Task

PlacedServices = Sequence[tuple[str, Service]]
"""Services, each with its location as worded in a warning."""
NOBODYS: Final = Job()
ALIKE: Final = 0.75
"""From this likeness on a driver that no node has is a misspelt one. Others may be of a node that comes later, and a
name that only goes on behind a known one (`exec2`) is another driver."""


class Admission(msgspec.Struct, frozen=True):
    """Checks jobs: errors prevent a registration, warnings do not."""

    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def admit(state: Snapshot, job: Job, config: ServerConfig, *, reads_nodes: bool = False) -> Admission:
    """All problems of a job; for one that exceeds the limits, only that.

    `reads_nodes`: the caller may read nodes, so the warnings may name their attributes, metadata and datacenters.
    """
    too_large = bound_problems(job)
    if too_large:
        return Admission(too_large)
    return _of_bounded(state, job, config, _doubts(state, job, reads_nodes))


def _doubts(state: Snapshot, job: Job, reads_nodes: bool) -> Iterator[str]:
    """Warnings about names that no node has."""
    from yurt.rules.references import reference_doubts

    yield from _empty_datacenters(state, job, reads_nodes)
    yield from reference_doubts(job, NodeNames(state.nodes if reads_nodes else None))
    if _has_devices(job):
        from yurt.server.resources.device_names import device_doubts

        yield from device_doubts(state, job, reads_nodes=reads_nodes)


def _has_devices(job: Job) -> bool:
    return any(task.resources.devices for group in job.task_groups for task in group.tasks)


def _may_have_doubts(state: Snapshot, job: Job, reads_nodes: bool) -> bool:
    """Whether the names in the job have to be looked for on all nodes or compared with known ones."""
    from yurt.rules.references import may_have_doubts

    if _has_devices(job):
        return True
    sample = sample_of(state.nodes)
    if sample.datacenters and not _is_in_one(job, sample.datacenters):
        return True
    names = CommonNames(sample if reads_nodes else NO_NODES)
    return may_have_doubts(job, names) or names.has_open_names


def _of_bounded(state: Snapshot, job: Job, config: ServerConfig, doubts: Iterable[str] = ()) -> Admission:
    """All problems of a job within the limits; `doubts` are warnings about names that no node has."""
    from yurt.rules.validation.job import validate_job

    errors, warnings = validate_job(job)
    services = services_of(job)
    offered = offered_providers(state, services)
    problems = [*errors, *provider_problems_of(job, services, offered), *_cluster_problems(state, job, config)]
    namespace = state.namespaces.get(job.namespace)
    advice = [*warnings, *doubts, *unregistered_services(services, offered)]
    for place, group, task in _tasks(job):
        texts, unknown = driver_problems(state, task, group)
        problems.extend(f"{place} validation failed: {text}" for text in texts)
        advice.extend(f"{place}: {text}" for text in unknown)
        if namespace is not None and (task.identity or task.identities):
            from yurt.rules.validation.identity import unknown_claims

            advice.extend(f"{place}: {text}" for text in unknown_claims(task, namespace))
    return Admission(tuple(problems), tuple(advice))


async def admitted(state: Snapshot, job: Job, config: ServerConfig, *, reads_nodes: bool = False) -> Admission:
    """`admit`, with large jobs and unknown names checked in a thread so that the event loop stays responsive."""
    if is_costly(job) or _may_have_doubts(state, job, reads_nodes):
        return await asyncio.to_thread(admit, state, job, config, reads_nodes=reads_nodes)
    return _of_bounded(state, job, config)


def offered_providers(state: Snapshot, services: PlacedServices) -> frozenset[str]:
    """The service providers that services name and some node has; Yurt's own is on all, and not among them."""
    named = {provider_of(service) for _, service in services} - {NOMAD}
    if not named:
        return frozenset()
    return frozenset(name for names in state.nodes.index_values("service_providers") for name in names if name in named)


def provider_problems_of(job: Job, services: PlacedServices, offered: frozenset[str]) -> list[str]:
    """Services whose provider is neither built in nor installed on a node."""
    providers = offered | {DEFAULT_PROVIDER, NOMAD}
    if not [service for _, service in services if provider_of(service) not in providers]:
        return []
    from yurt.rules.validation.service import provider_problems

    named = [(f"Task group {group.name}", provider_problems(group, offered)) for group in job.task_groups]
    return [text for place, problems in named for text in nested(place, problems)]


def unregistered_services(services: PlacedServices, offered: frozenset[str]) -> list[str]:
    """A warning about each service for the provider that a service has by default, where no node has that."""
    if DEFAULT_PROVIDER in offered:
        return []
    by_default = [(place, each) for place, each in services if provider_of(each) == DEFAULT_PROVIDER]
    return [f"{place} has warnings: {text}" for place, each in by_default for text in unregistered((each,))]


def services_of(job: Job) -> PlacedServices:
    """The services of the job's groups and tasks."""
    services: list[tuple[str, Service]] = []
    for group in job.task_groups:
        place = f'Group "{group.name}"'
        for service in group.services:
            services.append((place, service))
        for task in group.tasks:
            for service in task.services:
                services.append((f'{place} has warnings: Task "{task.name}"', service))
    return services


def _empty_datacenters(state: Snapshot, job: Job, reads_nodes: bool) -> Iterator[str]:
    """A warning where no node is in any of the job's datacenters; none without nodes.

    Only callers who may read nodes learn in which they are.
    """
    common = sample_of(state.nodes).datacenters
    if not common or _is_in_one(job, common):
        return
    if not _is_in_one(job, {node.datacenter for node in state.nodes.values()}):
        hint = f"; nodes are in {', '.join(sorted(common))[:64]}" if reads_nodes else ""
        yield f"no node is in datacenter {' or '.join(job.datacenters)[:64]}{hint}"


def _is_in_one(job: Job, datacenters: Collection[str]) -> bool:
    """Whether one of the datacenters, of which there are some, is one of the job's."""
    if "*" in job.datacenters:
        return True
    return any(is_match(name, glob) for name in datacenters for glob in job.datacenters)


def driver_problems(state: Snapshot, task: Task, group: TaskGroup) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(errors, warnings) of a task's driver options; valid if any known version of the driver accepts them."""
    if not task.driver:
        return (), ()  # the rules of tasks say that it is missing
    schemas_known = tuple(state.schemas.values())
    stored = [row for row in schemas_known if row.driver == task.driver]
    if not stored:
        near = _misspelt_driver(state, task.driver)
        if near:
            return (f'unknown driver "{task.driver[:64]}": no node has it (did you mean "{near}"?)',), ()
        return (), (f'no node has shown which options driver "{task.driver[:64]}" takes, so they are not checked',)
    schemas = [read_schema(row) for row in stored]
    results = [check_config(each.schema, task.config or {}) for each in schemas]
    least = () if any(not problems for problems in results) else tuple(str(each) for each in min(results, key=len))
    from yurt.rules.references import label_problems

    has_labels = all(each.names_ports for each in schemas)
    labels = label_problems((task.config or {}).get("ports"), group, task) if has_labels else ()
    return (*least, *labels), ()


def _misspelt_driver(state: Snapshot, name: str) -> str | None:
    """The driver that was probably meant; None if there is one of this name or none like it."""
    known = sample_of(state.nodes).drivers
    if name in known:
        return None
    from yurt.rules.likeness import nearest

    drivers = known.union(row.driver for row in state.schemas.values())
    near = nearest(name, sorted(drivers), cutoff=ALIKE)
    return near if near and not name.startswith(near) else None


def inherited(job: Job, stored: Job | None, keep: RetainedFields) -> Job:
    """The job with what it inherits from the stored one: its parent, and the counts and resources to keep.

    Raises Invalid for a payload that is not the known one's.
    """
    job = with_descent_of(job, stored)
    if stored is not None and keep.counts:
        job = with_counts_of(job, stored)
    if stored is not None and keep.resources:
        job = with_resources_of(job, stored)
    return job


def with_defaults(state: Snapshot, job: Job) -> Job:
    """The job with what its namespace and its node pool say where it does not: the pool, what idle devices lead to."""
    namespace = state.namespaces.get(job.namespace)
    if not job.node_pool:
        job = replace(job, node_pool=default_pool(namespace))
    return with_idle_policy(job, namespace, state.node_pools.get(job.node_pool))


def with_descent_of(job: Job, stored: Job | None) -> Job:
    """The job with the parent of the stored one, or none: only launches and dispatches create children.

    What a caller says about a token is dropped, because it may be the secret.
    Raises Invalid for a payload that is not the known one's.
    """
    source = stored or NOBODYS
    if job.nomad_token_id:
        job = replace(job, nomad_token_id="")
    if job.payload and job.payload != source.payload:
        raise Invalid("job can't be submitted with a payload, only dispatched")
    if _descent(job) == _descent(source):
        return job
    return replace(
        job,
        parent_id=source.parent_id,
        dispatched=source.dispatched,
        dispatch_idempotency_token=source.dispatch_idempotency_token,
        payload=source.payload,
    )


def _descent(job: Job) -> tuple[str, bool, str, bytes]:
    return (job.parent_id, job.dispatched, job.dispatch_idempotency_token, job.payload)


def with_counts_of(job: Job, stored: Job) -> Job:
    """The job with the present counts of the stored one's groups."""
    counts = {group.name: group.count for group in stored.task_groups}
    groups = tuple(replace(group, count=counts.get(group.name, group.count)) for group in job.task_groups)
    return replace(job, task_groups=groups)


def with_resources_of(job: Job, stored: Job) -> Job:
    """The job with the present resources of the stored one's tasks, matched by group and task name."""
    resources = {(group.name, task.name): task.resources for group in stored.task_groups for task in group.tasks}

    def with_stored(group: TaskGroup) -> TaskGroup:
        tasks = (
            replace(task, resources=resources.get((group.name, task.name), task.resources)) for task in group.tasks
        )
        return replace(group, tasks=tuple(tasks))

    return replace(job, task_groups=tuple(with_stored(group) for group in job.task_groups))


def _tasks(job: Job) -> Iterator[tuple[str, TaskGroup, Task]]:
    for group in job.task_groups:
        for task in group.tasks:
            yield f'Task group {group.name} Task "{task.name}"', group, task


def _cluster_problems(state: Snapshot, job: Job, config: ServerConfig) -> Iterator[str]:
    namespace = state.namespaces.get(job.namespace)
    if namespace is None:
        yield f'job "{job.id}" is in nonexistent namespace "{job.namespace}"'
    else:
        yield from namespace_problems(namespace, job)
    if job.node_pool not in state.node_pools:
        yield f'job "{job.id}" is in nonexistent node pool "{job.node_pool}"'
    if not 1 <= job.priority <= config.job_max_priority:
        yield f"Job priority must be between [1, {config.job_max_priority}]"
    if too_many := total_count_problem(job, config.job_max_count):
        yield too_many
