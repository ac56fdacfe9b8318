"""The services that an allocation registers and their checks, with all names and addresses filled in.

Services of a provider that the node does not have are left out. A service of the group stands for the whole allocation
and is registered while any of its tasks runs; a service of a task while that task runs. A service is left out, with a
reported reason, when it or one of its checks has no address, because its port is not assigned or its address mode needs
a missing network.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from yurt.lifecycle.checks import HEALTHINESS, READINESS, CheckSpec
from yurt.sdk.services import DEFAULT_PROVIDER, NOMAD, ServiceInstance
from yurt.sdk.value import Duration, Value
from yurt.structs.alloc import Allocation, AllocNetworkStatus
from yurt.structs.job import TaskGroup
from yurt.structs.service import Service, ServiceCheck, registration_prefix

CHECK_KINDS: Final = ("tcp", "http")
OWN_ADDRESS: Final = ("alloc", "alloc_ipv6", "driver")
"""Address modes that use a network other than the host's."""

Fill = Callable[[str, str], str]
"""Fills in the variables of a text: `(task or "" for the group, text) -> text`."""


class ServiceAddress(Value):
    """The allocation's node and the host's address."""

    node_id: str
    datacenter: str
    address: str


class Planned(NamedTuple):
    """A service to register, its provider and its checks; `task` is "" for a group service."""

    registration: ServiceInstance
    provider: str
    task: str
    checks: tuple[CheckSpec, ...]


class ServicePlan(msgspec.Struct, frozen=True):
    """The services to register, and the reasons why others are not registered."""

    planned: tuple[Planned, ...] = ()
    problems: tuple[str, ...] = ()


class _NoAddressError(Exception):
    """The address of a service or check cannot be determined."""


class _TooEarlyError(Exception):
    """The address is unknown until its task runs."""


class _Owned(msgspec.Struct, frozen=True):
    """A service with its owner and its addresses."""

    service: Service
    task: str
    alloc: Allocation
    place: ServiceAddress
    fill: Fill
    running: Mapping[str, str]

    @property
    def id(self) -> str:
        """The service's id at its provider."""
        owner = self.task or f"group-{self.alloc.task_group}"
        name, port = self.filled(self.service.name), self.service.port_label
        return f"{registration_prefix(self.alloc.id)}{owner}-{name}-{port}"

    @property
    def address_of_driver(self) -> str:
        """The address that the driver reported for the service's task; empty without one."""
        return self.running.get(self.task or self.service.task_name, "")

    def check_runs(self) -> None:
        """Check that the service's task, or every task of its group, runs; raises _TooEarlyError."""
        task = self.task or self.service.task_name
        if not self.running or (task and task not in self.running):
            raise _TooEarlyError

    def filled(self, text: str) -> str:
        """The text with its variables replaced."""
        return self.fill(self.task, text) if "${" in text else text


def provider_of(service: Service) -> str:
    """The name of a service's provider."""
    return service.provider or DEFAULT_PROVIDER


def has_services(group: TaskGroup, providers: Collection[str]) -> bool:
    """Whether the group or one of its tasks has services for one of these providers."""
    services = (*group.services, *(service for task in group.tasks for service in task.services))
    return any(provider_of(service) in providers for service in services)


def plan(
    alloc: Allocation,
    place: ServiceAddress,
    fill: Fill,
    *,
    running: Mapping[str, str],
    providers: Collection[str] = (NOMAD,),
) -> ServicePlan:
    """All services and checks of an allocation; `running` are the addresses that drivers reported for running tasks.

    A service whose address is unknown until its task runs is left out until then, without a problem.
    """
    planned, problems = [], []
    for each in _owned(alloc, place, fill, running=running, providers=providers):
        try:
            planned.append(_planned(each))
        except _TooEarlyError:
            continue
        except _NoAddressError as error:
            problems.append(f"Service {each.service.name!r} is not registered: {error}")
    return ServicePlan(tuple(planned), tuple(problems))


def ids(
    alloc: Allocation, place: ServiceAddress, fill: Fill, *, providers: Collection[str] = (NOMAD,)
) -> Mapping[str, tuple[str, ...]]:
    """The ids of all services that the allocation may have registered, by provider."""
    found: dict[str, tuple[str, ...]] = {}
    for each in _owned(alloc, place, fill, running={}, providers=providers):
        provider = provider_of(each.service)
        found[provider] = (*found.get(provider, ()), each.id)
    return found


def _owned(
    alloc: Allocation, place: ServiceAddress, fill: Fill, *, running: Mapping[str, str], providers: Collection[str]
) -> tuple[_Owned, ...]:
    group = alloc.job.group(alloc.task_group) if alloc.job is not None else None
    assert group is not None, alloc.id
    services = [("", service) for service in group.services]
    services += [(task.name, service) for task in group.tasks for service in task.services]
    return tuple(
        _Owned(service, task, alloc, place, fill, running)
        for task, service in services
        if provider_of(service) in providers
    )


def due(planned: ServicePlan, running: Collection[str]) -> tuple[Planned, ...]:
    """The services to register while these tasks run."""
    return tuple(each for each in planned.planned if (each.task in running if each.task else running))


def checked(planned: ServicePlan, running: Collection[str]) -> tuple[CheckSpec, ...]:
    """The checks to run while these tasks run; a check with a task requires that task."""
    return tuple(
        check for each in due(planned, running) for check in each.checks if not check.task or check.task in running
    )


def _planned(owned: _Owned) -> Planned:
    service, alloc = owned.service, owned.alloc
    host, port = _address(owned, service.address_mode, service.port_label)
    is_canary = alloc.deployment_status is not None and alloc.deployment_status.canary
    tags = service.canary_tags if is_canary and service.canary_tags else service.tags
    meta = {**service.meta, **service.canary_meta} if is_canary else service.meta
    registration = ServiceInstance(
        id=owned.id,
        name=owned.filled(service.name),
        namespace=alloc.namespace,
        node_id=owned.place.node_id,
        datacenter=owned.place.datacenter,
        job_id=alloc.job_id,
        alloc_id=alloc.id,
        group_name=alloc.task_group,
        task_name=owned.task,
        meta={name: owned.filled(value) for name, value in meta.items()},
        tags=tuple(owned.filled(tag) for tag in tags),
        address=owned.filled(service.address) or host,
        port=port,
    )
    return Planned(registration, provider_of(service), owned.task, tuple(_checks(owned, registration)))


def _checks(owned: _Owned, registration: ServiceInstance) -> Iterator[CheckSpec]:
    for number, check in enumerate(owned.service.checks):
        if check.type in CHECK_KINDS:
            yield _check(owned, check, f"{registration.id}/{number}/{check.name}")


def _check(owned: _Owned, check: ServiceCheck, identity: str) -> CheckSpec:
    service, filled = owned.service, owned.filled
    host, port = _address(owned, check.address_mode or "host", check.port_label or service.port_label)
    if not port:
        raise _NoAddressError(f"its check {check.name!r} has no port")
    restart = check.check_restart or service.check_restart
    return CheckSpec(
        id=hashlib.blake2b(identity.encode(), digest_size=16).hexdigest(),
        name=filled(check.name) or f'service: "{filled(service.name)}" check',
        kind=check.type,
        service=filled(service.name),
        group=owned.alloc.task_group,
        task=owned.task or check.task_name,
        mode=READINESS if (check.on_update or service.on_update) == "ignore" else HEALTHINESS,
        host=host,
        port=port,
        protocol=check.protocol or "http",
        method=check.method or "GET",
        path=filled(check.path) or "/",
        header={name: tuple(map(filled, values)) for name, values in check.header.items()},
        body=filled(check.body),
        tls_server_name=check.tls_server_name,
        tls_skip_verify=check.tls_skip_verify,
        interval=check.interval,
        timeout=check.timeout,
        limit=0 if restart is None else restart.limit,
        grace=Duration(0) if restart is None else restart.grace,
    )


def _address(owned: _Owned, mode: str, label: str) -> tuple[str, int]:
    """The service's host and port, 0 for none."""
    label = owned.filled(label)
    if mode in OWN_ADDRESS:
        return _own_address(owned, label, mode)
    if not label:
        return owned.place.address, 0
    given = _given_port(owned, label)
    if given is not None:
        host, port, _ = given
        return _reachable(host, owned.place.address), port
    return owned.place.address, _number(label)


def _own_address(owned: _Owned, label: str, mode: str) -> tuple[str, int]:
    """The address in the allocation's network, or in that of the task's driver."""
    of_driver = owned.address_of_driver if mode == "driver" else ""
    status = owned.alloc.network_status or AllocNetworkStatus()
    address = of_driver or (status.address_ipv6 if mode == "alloc_ipv6" else status.address)
    if not address:
        owned.check_runs()
        lacks = {"alloc_ipv6": "the allocation has no IPv6 address", "alloc": "the allocation has no network"}
        reason = lacks.get(mode, "neither its driver nor the allocation has a network")
        raise _NoAddressError(f"its address_mode is {mode}, and {reason} of its own; use host")
    if not label:
        return address, 0
    given = _given_port(owned, label)
    if given is None:
        return address, _number(label)
    _, port, inside = given
    return address, inside or port


def _given_port(owned: _Owned, label: str) -> tuple[str, int, int] | None:
    """(host address, port, port inside) of an assigned port label."""
    resources = owned.alloc.allocated_resources
    for mapping in resources.shared.ports:
        if mapping.label == label:
            return mapping.host_ip, mapping.value, max(mapping.to, 0)
    task = resources.tasks.get(owned.task)
    for network in task.networks if task is not None else ():
        for port in (*network.reserved_ports, *network.dynamic_ports):
            if port.label == label:
                return network.ip, port.value, max(port.to, 0)
    return None


def _reachable(host: str, otherwise: str) -> str:
    """The address, with the host's in place of a wildcard address."""
    return otherwise if host in ("", "0.0.0.0", "::") else host


def _number(label: str) -> int:
    if label.isascii() and label.isdigit() and 0 < len(label) < 6 and 0 < int(label) < 65536:
        return int(label)
    raise _NoAddressError(f'the allocation has no port "{label[:64]}"')
