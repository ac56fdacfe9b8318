"""Rules for the networks, volumes and services of a group, and for the services of its tasks."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from yurt.lifecycle.services import provider_of
from yurt.rules.problems import HOSTNAME, duplicates, is_open, near_hint, nested
from yurt.sdk.services import DEFAULT_PROVIDER, NOMAD
from yurt.sdk.value import NANOSECONDS
from yurt.structs.job import TaskGroup
from yurt.structs.network import NetworkResource, Port
from yurt.structs.service import Service, ServiceCheck
from yurt.structs.task import Task

SERVICE_NAME = re.compile(r"(?i)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
PORT_MAX = 65535
CHECK_TIME_MIN = NANOSECONDS
NOTES_MAX = 255
SINGLE_ACCESS = (
    "single-node-reader-only",
    "single-node-writer",
    "single-node-single-writer",
    "single-node-multi-writer",
)
NETWORK_MODES = ("none", "host", "bridge")
VOLUME_TYPES = ("host", "csi")
CHECK_STATES = ("passing", "warning", "critical")
MULTI_ACCESS = ("multi-node-reader-only", "multi-node-single-writer", "multi-node-multi-writer")


def network_problems(group: TaskGroup) -> Iterator[str]:
    """Problems of a group's network, and of its tasks' ports."""
    if len(group.networks) > 1:
        yield "Only a single network block can be specified per group"
    for network in group.networks:
        yield from _mode_problems(network)
        yield from _port_problems(network)
    for task in group.tasks:
        for network in task.resources.networks:
            yield from _port_problems(network)


def _mode_problems(network: NetworkResource) -> Iterator[str]:
    mode = network.mode
    if mode not in ("", *NETWORK_MODES) and not (mode.startswith("cni/") and len(mode) > len("cni/")):
        hint = near_hint(mode, NETWORK_MODES)
        yield f'invalid network mode "{mode[:64]}": use none, host, bridge or cni/<name>{hint}'
    if network.hostname and not is_open(network.hostname) and not HOSTNAME.match(network.hostname):
        yield f'Hostname "{network.hostname[:64]}" is not a valid DNS name'


def _port_problems(network: NetworkResource) -> Iterator[str]:
    ports = (*network.reserved_ports, *network.dynamic_ports)
    for label in duplicates(port.label for port in ports):
        yield f"Port label {label[:64]} already in use"
    for port in ports:
        yield from _one_port(port)
    static: dict[tuple[str, int], str] = {}
    for port in network.reserved_ports:
        other = static.setdefault((port.host_network, port.value), port.label)
        if other != port.label and not port.ignore_collision:
            yield f"Static port {port.value} already reserved by {other[:64]}"


def _one_port(port: Port) -> Iterator[str]:
    if not port.label:
        yield "Port label must be given"
    if not 0 <= port.value <= PORT_MAX:
        yield f"Port {port.label[:64]} has invalid port {port.value}: it must be between 1 and {PORT_MAX}"
    if not -1 <= port.to <= PORT_MAX:
        yield f"Port {port.label[:64]} cannot be mapped to a port ({port.to}) greater than {PORT_MAX} or below -1"


def volume_problems(group: TaskGroup) -> Iterator[str]:
    """Problems of a group's volume requests."""
    has_canaries = group.update is not None and group.update.canary > 0
    for name, volume in sorted(group.volumes.items()):
        problems: list[str] = []
        if volume.type not in VOLUME_TYPES:
            hint = near_hint(volume.type, VOLUME_TYPES)
            problems.append(f'volume has unrecognized type "{volume.type[:64]}": use host or csi{hint}')
        if not volume.source:
            problems.append("volume has an empty source")
        if volume.type == "csi":
            if not volume.attachment_mode:
                problems.append("CSI volumes must have an attachment mode")
            if not volume.access_mode:
                problems.append("CSI volumes must have an access mode")
        if volume.access_mode not in ("", *SINGLE_ACCESS, *MULTI_ACCESS):
            modes = SINGLE_ACCESS + MULTI_ACCESS
            hint = near_hint(volume.access_mode, modes)
            problems.append(f'access mode "{volume.access_mode[:64]}" is not one of: {", ".join(modes)}{hint}')
        if volume.sticky and volume.type != "host":
            problems.append("only host volumes can be sticky")
        if volume.per_alloc and has_canaries:
            problems.append("volume cannot be per_alloc when canaries are in use")
        if volume.per_alloc and volume.sticky:
            problems.append("volume cannot be both per_alloc and sticky")
        is_single = volume.access_mode in ("single-node-single-writer", "single-node-writer")
        if group.count > 1 and is_single and not volume.per_alloc:
            problems.append(f'volume with access mode "{volume.access_mode}" cannot be used by count {group.count}')
        yield from nested(f'Task group volume "{name}"', problems)


def service_problems(group: TaskGroup) -> Iterator[str]:
    """Problems of the services of a group and its tasks."""
    labels = {port.label for network in group.networks for port in (*network.reserved_ports, *network.dynamic_ports)}
    named: list[str] = []
    for owner in (None, *group.tasks):
        port_labels = labels | _task_labels(owner)
        for service in group.services if owner is None else owner.services:
            place = (
                f"Service[{service.name[:64]}]" if owner is None else f"Task {owner.name} Service[{service.name[:64]}]"
            )
            yield from nested(place, _one_service(group, service, port_labels))
            named.append(f"{service.provider}/{service.name}/{service.port_label}")
    for name in duplicates(named):
        yield f"Service {name.split('/')[1]!r} is declared more than once for the same provider and port"


def provider_problems(group: TaskGroup, providers: Collection[str]) -> Iterator[str]:
    """Services of a group and its tasks with an unknown provider; `providers` are the providers of the nodes."""
    owned = [(f"Service[{each.name[:64]}]", each) for each in group.services]
    owned += [(f"Task {task.name} Service[{each.name[:64]}]", each) for task in group.tasks for each in task.services]
    for place, service in owned:
        if provider_of(service) not in (DEFAULT_PROVIDER, NOMAD, *providers):
            text = f'Service provider must be "consul" or "nomad"; got "{service.provider[:64]}"'
            yield from nested(place, (text,))


def _task_labels(task: Task | None) -> set[str]:
    networks = () if task is None else task.resources.networks
    return {port.label for network in networks for port in (*network.reserved_ports, *network.dynamic_ports)}


def _one_service(group: TaskGroup, service: Service, labels: set[str]) -> Iterator[str]:
    if not is_open(service.name) and not SERVICE_NAME.match(service.name):
        yield (
            "Service name must be valid per RFC 1123 and can contain only alphanumeric characters or dashes "
            f'and must be no longer than 63 characters: "{service.name[:80]}"'
        )
    if service.address_mode not in ("", "auto", "host", "driver", "alloc", "alloc_ipv6"):
        yield f'Service address_mode must be "auto", "host", "driver" or "alloc"; not "{service.address_mode[:64]}"'
    if service.on_update not in ("", "require_healthy", "ignore_warnings", "ignore"):
        choices = '"require_healthy", "ignore_warnings" or "ignore"'
        yield f'Service on_update must be {choices}; not "{service.on_update[:64]}"'
    yield from _label_problems(service.port_label, service.address_mode, labels, "service")
    if service.task_name and group.task(service.task_name) is None:
        yield f'Service task "{service.task_name[:64]}" does not exist in the group'
    if service.provider == "nomad":
        yield from _nomad_provider_problems(service)
    for number, check in enumerate(service.checks, start=1):
        yield from nested(f"check {check.name[:64] or f'#{number}'}", _check_problems(service, check, labels))


def _label_problems(label: str, address_mode: str, labels: set[str], what: str) -> Iterator[str]:
    if not label or label in labels or is_open(label):
        return
    if label.isascii() and label.isdigit():
        if not 0 < int(label[:9]) <= PORT_MAX:
            yield f"{what} port {label[:16]} must be between 1 and {PORT_MAX}"
        return
    if address_mode not in ("driver", "alloc"):
        yield f'{what} references unknown port label "{label[:64]}": add it to the group\'s network'


def _nomad_provider_problems(service: Service) -> Iterator[str]:
    if service.connect is not None:
        yield "Service with provider nomad cannot include Connect blocks"
    if service.enable_tag_override:
        yield "Service with provider nomad cannot include enable_tag_override"
    if service.on_update == "ignore_warnings":
        yield "on_update may only be set to ignore_warnings for Consul service checks"


def _check_problems(service: Service, check: ServiceCheck, labels: set[str]) -> Iterator[str]:
    kinds = ("tcp", "http") if service.provider == "nomad" else ("tcp", "http", "grpc", "script")
    if check.type not in kinds:
        hint = near_hint(check.type, kinds)
        yield f'invalid check type ("{check.type[:64]}"), must be one of {", ".join(kinds)}{hint}'
    if check.interval < CHECK_TIME_MIN:
        yield "interval must be 1s or more"
    if check.timeout < CHECK_TIME_MIN:
        yield "timeout must be 1s or more"
    if check.type == "http":
        if not check.path:
            yield "http type must have http path"
        elif "://" in check.path:
            yield "relative http path required"
    if check.type == "script" and not check.command:
        yield "Consul: script type must have a valid script path"
    if check.type in ("http", "tcp") and not check.port_label and not service.port_label:
        yield f"{check.type} checks require an address: give the check or its service a port"
    state = check.initial_status
    if state not in ("", *CHECK_STATES):
        hint = near_hint(state, CHECK_STATES)
        yield f'invalid initial check state ("{state[:64]}"), must be one of {", ".join(CHECK_STATES)}{hint}'
    if len(check.notes) > NOTES_MAX:
        yield f"notes must not be longer than {NOTES_MAX} characters"
    if check.check_restart is not None and (check.check_restart.limit < 0 or check.check_restart.grace < 0):
        yield "check_restart limit and grace must not be negative"
    if check.success_before_passing < 0 or check.failures_before_critical < 0 or check.failures_before_warning < 0:
        yield "success_before_passing and failures_before_critical must not be negative"
    if service.provider == "nomad":
        yield from _nomad_check_problems(check)
    yield from _label_problems(check.port_label, check.address_mode, labels, "check")


def _nomad_check_problems(check: ServiceCheck) -> Iterator[str]:
    if check.success_before_passing or check.failures_before_critical or check.failures_before_warning:
        fields = "success_before_passing, failures_before_critical and failures_before_warning"
        yield f"{fields} may only be set for Consul checks"
    if check.on_update == "ignore_warnings":
        yield "on_update may only be set to ignore_warnings for Consul service checks"
    if check.expose:
        yield "expose may only be set for Consul service checks"
