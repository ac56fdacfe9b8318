"""Zygote and shim: starts tasks, plain or isolated by runc, that outlive the agent."""

from yurt.executor.container_executor import Abilities, ContainerExecutor, check_task_user, host_binds
from yurt.executor.host_program import FoundProgram, Program
from yurt.executor.oci.allowance import (
    DEFAULT_CAPABILITIES,
    DEFAULT_USER,
    UserRules,
    capabilities,
    check_host_ids,
    denied_names,
    id_map,
    is_filtered,
    namespace_mode,
    parse_ranges,
)
from yurt.executor.oci.bundle import Bind, ContainerSpec, IdMap, LinuxCapabilities
from yurt.executor.process_driver import ProcessDriver
from yurt.executor.process_executor import ProcessExecutor
from yurt.executor.spec import CgroupSpec, ProcessHandle, ProcessSpec

__all__ = [
    "DEFAULT_CAPABILITIES",
    "DEFAULT_USER",
    "Abilities",
    "Bind",
    "CgroupSpec",
    "ContainerExecutor",
    "ContainerSpec",
    "FoundProgram",
    "IdMap",
    "LinuxCapabilities",
    "ProcessDriver",
    "ProcessExecutor",
    "ProcessHandle",
    "ProcessSpec",
    "Program",
    "UserRules",
    "capabilities",
    "check_host_ids",
    "check_task_user",
    "denied_names",
    "host_binds",
    "id_map",
    "is_filtered",
    "namespace_mode",
    "parse_ranges",
]
