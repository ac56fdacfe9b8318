"""Zygote and shim: processes that outlive the agent."""

from yurt.executor.process_driver import ProcessDriver
from yurt.executor.process_executor import ProcessExecutor
from yurt.executor.spec import CgroupSpec, ProcessHandle, ProcessSpec

__all__ = ["CgroupSpec", "ProcessDriver", "ProcessExecutor", "ProcessHandle", "ProcessSpec"]
