"""The entry point of the docker driver; the `docker` package is imported only once an engine has answered."""

from __future__ import annotations

from yurt.sdk.driver import Driver, PluginContext
from yurt.sdk.hooks import hookimpl

from yurt_driver_docker.config import plugin_config
from yurt_driver_docker.driver import DockerDriver


@hookimpl
def yurt_task_drivers(context: PluginContext) -> list[Driver]:
    """The driver; where no engine answers it reports so, with the way to install one."""
    return [DockerDriver(plugin_config(context), clock=context.now)]
