"""The entry point of the docker driver; the `docker` package is imported once an engine has answered."""

from __future__ import annotations

import msgspec
from yurt.sdk.driver import Driver, PluginContext
from yurt.sdk.plugin import plugin_function

from yurt_driver_docker.config import PluginOptions, plugin_config
from yurt_driver_docker.driver import DockerDriver


@plugin_function
def yurt_task_drivers(context: PluginContext) -> list[Driver]:
    """The driver; without an engine it is undetected, with instructions to install one."""
    return [DockerDriver(plugin_config(context), clock=context.now)]


@plugin_function
def yurt_plugin_config() -> type[msgspec.Struct]:
    """The options of the plugin's block."""
    return PluginOptions
