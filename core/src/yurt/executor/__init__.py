"""Zygote and shim: processes that outlive the agent, plain or isolated by runc."""

from yurt.executor.allowance import (
    DEFAULT_CAPABILITIES,
    DEFAULT_USER,
    UserRules,
    capabilities,
    denied_names,
    namespace_mode,
    parse_ranges,
)
from yurt.executor.bundle import Bind, ContainerSpec
from yurt.executor.container_executor import ContainerExecutor, check_task_user, host_binds
from yurt.executor.process_driver import ProcessDriver
from yurt.executor.process_executor import ProcessExecutor
from yurt.executor.program import FoundProgram, Program
from yurt.executor.spec import CgroupSpec, ProcessHandle, ProcessSpec

__all__ = [
    "DEFAULT_CAPABILITIES",
    "DEFAULT_USER",
    "Bind",
    "CgroupSpec",
    "ContainerExecutor",
    "ContainerSpec",
    "FoundProgram",
    "ProcessDriver",
    "ProcessExecutor",
    "ProcessHandle",
    "ProcessSpec",
    "Program",
    "UserRules",
    "capabilities",
    "check_task_user",
    "denied_names",
    "host_binds",
    "namespace_mode",
    "parse_ranges",
]
