"""The entry point of the podman driver; the `podman` package is imported once an engine has answered."""

from __future__ import annotations

from yurt.sdk.driver import Driver, PluginContext
from yurt.sdk.plugin import plugin_function

from yurt_driver_podman.config import plugin_config
from yurt_driver_podman.driver import PodmanDriver


@plugin_function
def yurt_task_drivers(context: PluginContext) -> list[Driver]:
    """The driver; without an engine it is undetected, with instructions to start one."""
    return [PodmanDriver(plugin_config(context), clock=context.now)]
