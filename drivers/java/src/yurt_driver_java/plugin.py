"""The entry point of the java driver."""

from __future__ import annotations

import msgspec
from yurt.sdk.driver import Driver, PluginContext
from yurt.sdk.plugin import plugin_function

from yurt_driver_java.config import PluginConfig
from yurt_driver_java.driver import java_driver


@plugin_function
def yurt_task_drivers(context: PluginContext) -> list[Driver]:
    """The driver; without Java it is undetected, with instructions to install it."""
    return [java_driver(context)]


@plugin_function
def yurt_plugin_config() -> type[msgspec.Struct]:
    """The options of the plugin's block."""
    return PluginConfig
