"""Zygote and shim: processes that outlive the agent."""
