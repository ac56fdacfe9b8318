"""Service registrations; they are deleted with their allocations at the latest.

A registration that comes when its allocation is over already is left out, and an allocation that ends, goes, or is on
a node that is down takes its registrations with it (`Edit.put_alloc`, `Edit.delete_alloc`, `fsm.nodes`).

A registration stands for its allocation: node, namespace, job and the beginning of its id are the allocation's. A node
can therefore neither register a service for a job that it does not run nor replace the registration of another node.
"""

from __future__ import annotations

from typing import assert_never

from yurt.fsm.edit import Edit
from yurt.fsm.reject import invalid, not_found
from yurt.sdk.value import replace
from yurt.state import Tables
from yurt.structs.alloc import Allocation
from yurt.structs.commands import DeregisterServices, RegisterServices, Rejected, ServiceCommand
from yurt.structs.predicates import is_client_terminal
from yurt.structs.service import ServiceRegistration, registration_prefix


def apply_service(edit: Edit, command: ServiceCommand) -> Rejected | None:
    """Apply a service registration command."""
    match command:
        case RegisterServices():
            return _register(edit, command)
        case DeregisterServices():
            return _deregister(edit, command)
        case _:
            assert_never(command)


def _register(edit: Edit, command: RegisterServices) -> Rejected | None:
    for service in command.services:
        if not service.id or not service.service_name:
            return invalid("a service registration needs an ID and a service name")
        owner = edit.alloc(service.alloc_id)
        problem = "" if owner is None else _ownership_problem(service, owner)
        if problem:
            return invalid(f'service "{service.id}" is not one of allocation {service.alloc_id}: {problem}')
    for service in command.services:
        alloc = edit.alloc(service.alloc_id)
        if alloc is None or is_client_terminal(alloc):
            continue
        existing: ServiceRegistration | None = edit.tx.get(Tables.services, service.id)
        created = edit.index if existing is None else existing.create_index
        stored = replace(service, create_index=created, modify_index=edit.index)
        if existing is None or replace(existing, modify_index=edit.index) != stored:
            edit.tx.put(Tables.services, service.id, stored)
    return None


def _deregister(edit: Edit, command: DeregisterServices) -> Rejected | None:
    existing: list[ServiceRegistration | None] = [
        edit.tx.get(Tables.services, service_id) for service_id in command.ids
    ]
    matching = [service for service in existing if service is not None and _is_selected(service, command)]
    if command.name and not matching:
        return not_found("service registration not found")
    for service in matching:
        edit.tx.delete(Tables.services, service.id)
    return None


def _is_selected(service: ServiceRegistration, command: DeregisterServices) -> bool:
    if command.node_id and service.node_id != command.node_id:
        return False
    return not command.name or (service.namespace, service.service_name) == (command.namespace, command.name)


def _ownership_problem(service: ServiceRegistration, alloc: Allocation) -> str:
    """A field of the registration that does not match its allocation; "" when all match."""
    for name, claimed, actual in (
        ("node", service.node_id, alloc.node_id),
        ("namespace", service.namespace, alloc.namespace),
        ("job", service.job_id, alloc.job_id),
    ):
        if claimed != actual:
            return f'its {name} is "{actual}", not "{claimed}"'
    prefix = registration_prefix(alloc.id)
    return "" if service.id.startswith(prefix) else f'the ID must begin with "{prefix}"'
