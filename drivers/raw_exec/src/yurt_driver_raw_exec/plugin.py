"""The entry point of the raw_exec driver."""

from __future__ import annotations

import msgspec
from yurt.sdk.driver import Driver, PluginContext
from yurt.sdk.executor import ProcessExecutor
from yurt.sdk.plugin import plugin_function

from yurt_driver_raw_exec.config import PluginOptions, plugin_config
from yurt_driver_raw_exec.driver import raw_exec_driver


@plugin_function
def yurt_task_drivers(context: PluginContext) -> list[Driver]:
    """The driver; when disabled it is unhealthy, with instructions to enable it."""
    executor = ProcessExecutor.from_context(context)
    return [raw_exec_driver(plugin_config(context), executor)]


@plugin_function
def yurt_plugin_config() -> type[msgspec.Struct]:
    """The options of the plugin's block."""
    return PluginOptions
