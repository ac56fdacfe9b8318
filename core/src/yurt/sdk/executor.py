"""Processes that outlive the agent, for drivers that start some: the one module of the SDK that does IO."""

from yurt.executor import CgroupSpec, ProcessDriver, ProcessExecutor, ProcessHandle, ProcessSpec

__all__ = ["CgroupSpec", "ProcessDriver", "ProcessExecutor", "ProcessHandle", "ProcessSpec"]
