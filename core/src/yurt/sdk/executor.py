"""Processes that outlive the agent, for drivers that start some: the one module of the SDK that does IO."""

from yurt.executor import CgroupSpec, ProcessExecutor, ProcessHandle, ProcessSpec

__all__ = ["CgroupSpec", "ProcessExecutor", "ProcessHandle", "ProcessSpec"]
