"""Services with their checks and identities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yurt.sdk.value import Duration, Value, no_entries


class CheckRestart(Value):
    """Restart a task after `limit` failed checks in a row, not counting the first `grace`."""

    limit: int = 0
    grace: Duration = Duration(0)
    ignore_warnings: bool = False


class WorkloadIdentity(Value):
    """A signed identity given to a task."""

    name: str = ""
    audience: tuple[str, ...] = ()
    change_mode: str = ""
    change_signal: str = ""
    env: bool = False
    file: bool = False
    filepath: str = ""
    service_name: str = ""
    ttl: Duration = Duration(0)
    extra_claims: tuple[str, ...] = ()


DEFAULT_IDENTITY = WorkloadIdentity(name="default", audience=("nomadproject.io",))
"""The identity of a task that does not declare one."""


class ServiceWeights(Value):
    """DNS weights of a service by health."""

    passing: int = 0
    warning: int = 0


class ServiceCheck(Value):
    """A health check of a service."""

    name: str = ""
    type: str = ""
    command: str = ""
    args: tuple[str, ...] = ()
    path: str = ""
    protocol: str = ""
    port_label: str = ""
    expose: bool = False
    address_mode: str = ""
    advertise: str = ""
    interval: Duration = Duration(0)
    timeout: Duration = Duration(0)
    initial_status: str = ""
    notes: str = ""
    tls_server_name: str = ""
    tls_skip_verify: bool = False
    header: Mapping[str, tuple[str, ...]] = no_entries()
    method: str = ""
    check_restart: CheckRestart | None = None
    grpc_service: str = ""
    grpc_use_tls: bool = False
    task_name: str = ""
    success_before_passing: int = 0
    failures_before_critical: int = 0
    failures_before_warning: int = 0
    body: str = ""
    on_update: str = ""


class ServiceRegistration(Value):
    """A registered service instance: its address, and the allocation with which it ends."""

    id: str = ""
    service_name: str = ""
    namespace: str = "default"
    node_id: str = ""
    datacenter: str = ""
    job_id: str = ""
    alloc_id: str = ""
    tags: tuple[str, ...] = ()
    address: str = ""
    port: int = 0
    create_index: int = 0
    modify_index: int = 0


def registration_prefix(alloc_id: str) -> str:
    """The id prefix of an allocation's registrations, so that every id belongs to one allocation and node."""
    return f"_nomad-task-{alloc_id}-"


class Service(Value):
    """A service to register while its task or group runs."""

    name: str = ""
    tags: tuple[str, ...] = ()
    canary_tags: tuple[str, ...] = ()
    enable_tag_override: bool = False
    port_label: str = ""
    address_mode: str = ""
    address: str = ""
    checks: tuple[ServiceCheck, ...] = ()
    check_restart: CheckRestart | None = None
    connect: Mapping[str, Any] | None = None
    meta: Mapping[str, str] = no_entries()
    canary_meta: Mapping[str, str] = no_entries()
    tagged_addresses: Mapping[str, str] = no_entries()
    task_name: str = ""
    on_update: str = ""
    identity: WorkloadIdentity | None = None
    weights: ServiceWeights | None = None
    provider: str = ""
    cluster: str = ""
    kind: str = ""
