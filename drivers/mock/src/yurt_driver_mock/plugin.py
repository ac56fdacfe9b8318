"""The entry point of the mock driver."""

from __future__ import annotations

import msgspec
from yurt.sdk.driver import Driver, PluginContext
from yurt.sdk.plugin import plugin_function
from yurt.sdk.schema import decode_config

from yurt_driver_mock.config import PluginOptions
from yurt_driver_mock.driver import MockDriver


@plugin_function
def yurt_task_drivers(context: PluginContext) -> list[Driver]:
    """The driver, on the agent's clock."""
    return [MockDriver(decode_config(PluginOptions, context.config), clock=context.now)]


@plugin_function
def yurt_plugin_config() -> type[msgspec.Struct]:
    """The options of the plugin's block."""
    return PluginOptions
