"""The environment of a task and the interpolation of `${...}` in its configuration.

Values of the same name override each other in this order: the agent's own environment (only for drivers that run
programs of the host, not images; without the denied names), Nomad's variables, the task's `env` block, what its
`env = true` templates say, the variables that name its devices, so that no task widens its set. A reference that
nobody knows stays as written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from yurt.sdk.driver import PortGiven, TaskDirs
from yurt.sdk.value import Value, no_entries
from yurt.structs.alloc import AllocatedTaskResources, Allocation
from yurt.structs.job import Job, TaskGroup
from yurt.structs.node import Node
from yurt.structs.predicates import alloc_index
from yurt.structs.queueing.requeue import requeues_of
from yurt.structs.task import Task

_REFERENCE = re.compile(r"\$\{([^{}]+)\}")
_ENV_CALL = re.compile(r'^env\["([^"]*)"\]$')
_UNCLEAN = re.compile(r"[^A-Za-z0-9_]")
_NAMESPACED_MODES = ("bridge",)


class EnvInputs(Value):
    """The inputs of a task's environment; directories are as the task sees them."""

    node: Node
    region: str
    alloc: Allocation
    job: Job
    group: TaskGroup
    task: Task
    alloc_dir: str
    task_dir: str
    secrets_dir: str
    host_env: Mapping[str, str] = no_entries()
    device_env: Mapping[str, str] = no_entries()
    template_env: Mapping[str, str] = no_entries()


def clean_key(key: str) -> str:
    """The name with characters replaced that shells do not accept in variables."""
    return _UNCLEAN.sub("_", key)


def replace_references(text: str, lookup: Callable[[str], str | None]) -> str:
    """`text` with every `${...}` replaced that `lookup` resolves."""
    if "${" not in text:
        return text

    def substitute(match: re.Match[str]) -> str:
        value = lookup(match.group(1).strip())
        return match.group(0) if value is None else value

    return _REFERENCE.sub(substitute, text)


def replace_in_words(words: tuple[str, ...], lookup: Callable[[str], str | None]) -> tuple[str, ...]:
    """The words of a command with their `${...}` replaced."""
    return tuple(replace_references(word, lookup) for word in words)


def replace_in(value: Any, lookup: Callable[[str], str | None]) -> Any:
    """`value` with the references in all its strings replaced, map keys included."""
    match value:
        case str():
            return replace_references(value, lookup)
        case Mapping():
            return {replace_references(str(key), lookup): replace_in(item, lookup) for key, item in value.items()}
        case list() | tuple():
            return [replace_in(item, lookup) for item in value]
        case _:
            return value


def visible_dirs(dirs: TaskDirs, fs_isolation: str) -> tuple[str, str, str]:
    """Allocation, task and secrets directory as the task sees them."""
    if fs_isolation == "none":
        return dirs.shared_dir, dirs.local_dir, dirs.secrets_dir
    return "/alloc", "/local", "/secrets"


def build_env(inputs: EnvInputs) -> dict[str, str]:
    """The environment of the task."""
    variables = nomad_variables(inputs)
    lookup = lookup_in(inputs.node, inputs.region, variables)
    for key, value in merged_meta(inputs).items():
        shown = replace_references(value, lookup)
        variables[f"NOMAD_META_{clean_key(key)}"] = shown
        variables[f"NOMAD_META_{clean_key(key).upper()}"] = shown
    env = {**inputs.host_env, **variables, **inputs.device_env}
    lookup = lookup_in(inputs.node, inputs.region, env)
    own = {clean_key(key): replace_references(value, lookup) for key, value in inputs.task.env.items()}
    return {**env, **own, **inputs.template_env, **inputs.device_env}


def merged_meta(inputs: EnvInputs) -> dict[str, str]:
    """Metadata of job, group and task; the innermost wins."""
    return {**inputs.job.meta, **inputs.group.meta, **inputs.task.meta}


def node_values(node: Node, region: str) -> dict[str, str]:
    """The node values for `${...}`, by name: `node.*`, `attr.*` and `meta.*`."""
    attributes = {f"attr.{name}": value for name, value in node.attributes.items()}
    return {**_own_values(node, region), **attributes, **{f"meta.{name}": value for name, value in node.meta.items()}}


def _own_values(node: Node, region: str) -> dict[str, str]:
    return {
        "node.unique.id": node.id,
        "node.region": region,
        "node.datacenter": node.datacenter,
        "node.unique.name": node.name,
        "node.class": node.node_class,
        "node.pool": node.node_pool,
    }


def lookup_in(node: Node, region: str, env: Mapping[str, str]) -> Callable[[str], str | None]:
    """The look-up of `${name}`: node values, `env["X"]`, then variables of the environment."""
    of_node = _own_values(node, region)

    def lookup(name: str) -> str | None:
        if name.startswith("attr."):
            return node.attributes.get(name[5:])
        if name.startswith("meta."):
            return node.meta.get(name[5:])
        call = _ENV_CALL.match(name)
        if call is not None:
            return env.get(call.group(1), "")
        return of_node.get(name, env.get(name))

    return lookup


def nomad_variables(inputs: EnvInputs) -> dict[str, str]:
    """Every `NOMAD_*` variable but the metadata."""
    alloc, job = inputs.alloc, inputs.job
    variables = {
        "NOMAD_ALLOC_DIR": inputs.alloc_dir,
        "NOMAD_TASK_DIR": inputs.task_dir,
        "NOMAD_SECRETS_DIR": inputs.secrets_dir,
        "NOMAD_UNIX_ADDR": f"unix://{inputs.secrets_dir}/api.sock",
        "NOMAD_ALLOC_ID": alloc.id,
        "NOMAD_SHORT_ALLOC_ID": alloc.id[:8],
        "NOMAD_ALLOC_NAME": alloc.name,
        "NOMAD_ALLOC_INDEX": str(max(alloc_index(alloc.name), 0)),
        "NOMAD_TASK_NAME": inputs.task.name,
        "NOMAD_GROUP_NAME": inputs.group.name,
        "NOMAD_JOB_ID": job.id,
        "NOMAD_JOB_NAME": job.name or job.id,
        "NOMAD_DC": inputs.node.datacenter,
        "NOMAD_REGION": inputs.region,
        "NOMAD_NAMESPACE": alloc.namespace,
    }
    if job.parent_id:
        variables["NOMAD_JOB_PARENT_ID"] = job.parent_id
    if inputs.node.cgroup_parent:
        variables["NOMAD_PARENT_CGROUP"] = inputs.node.cgroup_parent
    return variables | _preemption(inputs) | _limits(alloc, inputs.task.name) | _ports(inputs)


def _preemption(inputs: EnvInputs) -> dict[str, str]:
    """The `YURT_*` variables: where the task saves its work, and why earlier allocations ended."""
    variables, checkpoint = {}, inputs.group.checkpoint
    if checkpoint is not None:
        is_own = checkpoint.path.startswith("/")
        variables["YURT_CHECKPOINT_DIR"] = checkpoint.path if is_own else f"{inputs.alloc_dir}/data/{checkpoint.path}"
    if inputs.group.requeue is not None:
        requeues = requeues_of(inputs.alloc)
        variables["YURT_REQUEUE_COUNT"] = str(requeues)
        variables["YURT_REQUEUE_REASON"] = "preempted" if requeues else ""
    return variables


def _limits(alloc: Allocation, task: str) -> dict[str, str]:
    resources = alloc.allocated_resources.tasks.get(task, AllocatedTaskResources())
    limits = {}
    if resources.memory.memory_mb:
        limits["NOMAD_MEMORY_LIMIT"] = str(resources.memory.memory_mb)
    if resources.memory.memory_max_mb:
        limits["NOMAD_MEMORY_MAX_LIMIT"] = str(resources.memory.memory_max_mb)
    if resources.cpu.cpu_shares:
        limits["NOMAD_CPU_LIMIT"] = str(resources.cpu.cpu_shares)
    if resources.cpu.reserved_cores:
        limits["NOMAD_CPU_CORES"] = core_ranges(resources.cpu.reserved_cores)
    return limits


def core_ranges(cores: tuple[int, ...]) -> str:
    """Cores as ranges: (0, 1, 2, 5) -> "0-2,5"."""
    parts: list[tuple[int, int]] = []
    for core in sorted(cores):
        if parts and parts[-1][1] == core - 1:
            parts[-1] = (parts[-1][0], core)
        else:
            parts.append((core, core))
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)


def allocated_ports(alloc: Allocation) -> tuple[PortGiven, ...]:
    """The ports of the allocation's group."""
    shared = alloc.allocated_resources.shared
    if shared.ports:
        return tuple(
            PortGiven(label=port.label, host_ip=port.host_ip, host_port=port.value, to=port.to) for port in shared.ports
        )
    return tuple(
        PortGiven(label=port.label, host_ip=network.ip, host_port=port.value, to=port.to)
        for network in shared.networks
        for port in (*network.reserved_ports, *network.dynamic_ports)
    )


def ports_of_task(alloc: Allocation, task: str) -> tuple[PortGiven, ...]:
    """The ports that a task requests in the network block of its resources."""
    resources = alloc.allocated_resources.tasks.get(task)
    return tuple(
        PortGiven(label=port.label, host_ip=network.ip, host_port=port.value, to=port.to, of_task=True)
        for network in (resources.networks if resources is not None else ())
        for port in (*network.reserved_ports, *network.dynamic_ports)
    )


def _ports(inputs: EnvInputs) -> dict[str, str]:
    mode = inputs.group.networks[0].mode if inputs.group.networks else ""
    is_namespaced = mode in _NAMESPACED_MODES or mode.startswith("cni/")
    variables: dict[str, str] = {}
    for port in allocated_ports(inputs.alloc):
        variables |= _port_variables(clean_key(port.label), port, is_namespaced=is_namespaced)
        if inputs.alloc.network_status is not None:
            variables |= _alloc_port_variables(clean_key(port.label), port, inputs.alloc)
    for task in inputs.alloc.allocated_resources.tasks:
        for port in ports_of_task(inputs.alloc, task):
            label = clean_key(port.label)
            name = label if task == inputs.task.name else f"{clean_key(task)}_{label}"
            variables |= _port_variables(name, port, is_namespaced=False)
    return variables


def _port_variables(label: str, port: PortGiven, *, is_namespaced: bool) -> dict[str, str]:
    inside = port.to if is_namespaced and port.to > 0 else port.host_port
    host = f"[{port.host_ip}]" if ":" in port.host_ip else port.host_ip
    address = f"{host}:{port.host_port}"
    return {
        f"NOMAD_IP_{label}": port.host_ip,
        f"NOMAD_PORT_{label}": str(inside),
        f"NOMAD_ADDR_{label}": address,
        f"NOMAD_HOST_IP_{label}": port.host_ip,
        f"NOMAD_HOST_PORT_{label}": str(port.host_port),
        f"NOMAD_HOST_ADDR_{label}": address,
    }


def _alloc_port_variables(label: str, port: PortGiven, alloc: Allocation) -> dict[str, str]:
    status = alloc.network_status
    if status is None or not status.address:
        return {}
    inside = port.to if port.to > 0 else port.host_port
    return {
        f"NOMAD_ALLOC_IP_{label}": status.address,
        f"NOMAD_ALLOC_PORT_{label}": str(inside),
        f"NOMAD_ALLOC_ADDR_{label}": f"{status.address}:{inside}",
        f"NOMAD_ALLOC_INTERFACE_{label}": status.interface_name,
    }
