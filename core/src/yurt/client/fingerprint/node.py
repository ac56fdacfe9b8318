"""Builds the node from host facts and the operator's configuration."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from yurt.client.artifacts.confinement import isolation
from yurt.client.config import ClientConfig
from yurt.client.fingerprint.exclusion import without_excluded
from yurt.client.fingerprint.host import CpuFacts, cpu_facts, host_attributes, host_name, memory_bytes
from yurt.client.fingerprint.network import host_networks, network_facts, node_networks
from yurt.client.fingerprint.topology import topology_of
from yurt.client.node.metadata import static_meta
from yurt.sdk.errors import Invalid
from yurt.sdk.landlock import availability
from yurt.sdk.value import replace
from yurt.storage.client_db import NodeIdentity
from yurt.structs.network import NetworkResource
from yurt.structs.node import (
    Node,
    NodeCpuResources,
    NodeDiskResources,
    NodeMemoryResources,
    NodeProcessorResources,
    NodeReservedCpuResources,
    NodeReservedDiskResources,
    NodeReservedMemoryResources,
    NodeReservedNetworkResources,
    NodeReservedResources,
    NodeResources,
)
from yurt.structs.status import ELIGIBLE, INELIGIBLE

MIB = 1024 * 1024


def build_node(config: ClientConfig, identity: NodeIdentity, plugin_attributes: Mapping[str, str]) -> Node:
    """The node without its drivers; blocking."""
    Path(config.alloc_dir).mkdir(parents=True, exist_ok=True)
    check_volumes(config)
    cpu = with_reservable(cpu_facts(config.cpu_total_compute), config)
    disk = shutil.disk_usage(config.alloc_dir)
    attributes = host_attributes(cpu) | dict(plugin_attributes)
    attributes |= {
        "unique.storage.volume": str(_mount_point(Path(config.alloc_dir))),
        "unique.storage.bytestotal": str(disk.total),
        "unique.storage.bytesfree": str(disk.free),
        "nomad.service_discovery": "true" if config.has_service_discovery else "false",
        **_confinement(config),
    }
    family = config.networks.preferred_family
    network = network_facts(config.network_interface, config.network_speed, family=family)
    named = host_networks(config.host_networks, family=family)
    networks: tuple[NetworkResource, ...] = ()
    if network is not None:
        attributes["unique.network.ip-address"] = network.ip
        prefix = 128 if ":" in network.ip else 32
        networks = (
            NetworkResource(
                mode="host",
                device=network.interface,
                ip=network.ip,
                cidr=f"{network.ip}/{prefix}",
                mbits=network.speed_mbits,
            ),
        )
    resources = _resources(config, cpu, disk.free, networks)
    node = Node(
        id=identity.node_id,
        secret_id=identity.secret_id,
        name=config.name or host_name(),
        datacenter=config.datacenter,
        node_class=config.node_class,
        node_pool=config.node_pool,
        http_addr=config.http_addr,
        meta=static_meta(config.meta),
        attributes=attributes,
        node_resources=replace(resources, node_networks=node_networks(network, named, family=family)),
        reserved_resources=_reserved(config, cpu),
        cgroup_parent=config.cgroup_parent,
        host_volumes=config.host_volumes,
        host_networks=named,
        node_max_allocs=config.node_max_allocs,
        gc_volumes_on_node_gc=config.gc_volumes_on_node_gc,
        scheduling_eligibility=INELIGIBLE if config.default_ineligible else ELIGIBLE,
    )
    return without_excluded(node, config)


def _confinement(config: ClientConfig) -> dict[str, str]:
    """The attributes of artifact confinement and Landlock."""
    found = availability()
    attributes = {"artifact.isolation": isolation(is_confined=config.artifact.is_confined).text}
    return attributes | ({"kernel.landlock": f"v{found.version}"} if found.version else {})


def check_volumes(config: ClientConfig) -> None:
    """Raise Invalid for a configured host volume whose folder is missing."""
    for name, volume in config.host_volumes.items():
        if not volume.path.startswith("/") or not os.path.isdir(volume.path):
            raise Invalid(
                f'client host_volume "{name}": {volume.path or "its path"} is not a folder of this machine, '
                "given by its full path; make it, or remove the block"
            )


def _resources(
    config: ClientConfig, cpu: CpuFacts, disk_free: int, networks: tuple[NetworkResource, ...]
) -> NodeResources:
    return NodeResources(
        cpu=NodeCpuResources(
            cpu_shares=cpu.total_mhz, total_cpu_cores=len(cpu.cores), reservable_cpu_cores=cpu.reservable
        ),
        memory=NodeMemoryResources(memory_mb=config.memory_total_mb or memory_bytes() // MIB),
        disk=NodeDiskResources(disk_mb=config.disk_total_mb or disk_free // MIB),
        networks=networks,
        processors=NodeProcessorResources(topology=topology_of(cpu, override_mhz=config.cpu_total_compute)),
        min_dynamic_port=config.min_dynamic_port,
        max_dynamic_port=config.max_dynamic_port,
    )


def with_reservable(cpu: CpuFacts, config: ClientConfig) -> CpuFacts:
    """The processor with the cores that the operator lets tasks reserve; raises Invalid for cores that are absent."""
    for setting, cores in (("reservable_cores", config.reservable_cores), ("reserved.cores", config.reserved.cores)):
        missing = sorted(set(cores) - set(cpu.cores))
        if missing:
            raise Invalid(
                f"client {setting} names the cores {_listed(missing)}, but this agent may use "
                f"{_listed(cpu.cores)}; correct the list, or the affinity of the agent"
            )
    both = sorted(set(config.reservable_cores) & set(config.reserved.cores))
    if both:
        raise Invalid(
            f"client reservable_cores and reserved.cores both name {_listed(both)}: "
            "a core is kept from tasks or given to them"
        )
    kept = frozenset(config.reserved.cores)
    return replace(cpu, reservable=config.reservable_cores or tuple(core for core in cpu.cores if core not in kept))


def _listed(cores: Iterable[int]) -> str:
    return ",".join(map(str, cores))


def _reserved(config: ClientConfig, cpu: CpuFacts) -> NodeReservedResources:
    """The resources reserved for the system; the MHz of reserved cores count when they exceed the reserved MHz."""
    reserved = config.reserved
    of_cores = cpu.total_mhz // max(len(cpu.cores), 1) * len(reserved.cores)
    return NodeReservedResources(
        cpu=NodeReservedCpuResources(cpu_shares=max(reserved.cpu, of_cores)),
        memory=NodeReservedMemoryResources(memory_mb=reserved.memory_mb),
        disk=NodeReservedDiskResources(disk_mb=reserved.disk_mb),
        networks=NodeReservedNetworkResources(reserved_host_ports=reserved.ports),
    )


def _mount_point(path: Path) -> Path:
    """The mount point that holds `path`."""
    path = path.resolve()
    while not os.path.ismount(path):
        path = path.parent
    return path
