"""The entry point of the exec driver."""

from __future__ import annotations

import msgspec
from yurt.sdk.driver import Driver, PluginContext
from yurt.sdk.executor import ContainerExecutor
from yurt.sdk.plugin import plugin_function

from yurt_driver_exec.config import PluginConfig
from yurt_driver_exec.driver import exec_driver


@plugin_function
def yurt_task_drivers(context: PluginContext) -> list[Driver]:
    """The driver; where it cannot work it is unhealthy, with the reason and the fix."""
    return [exec_driver(context, ContainerExecutor.from_context(context))]


@plugin_function
def yurt_plugin_config() -> type[msgspec.Struct]:
    """The options of the plugin's block."""
    return PluginConfig
