"""The entry point of the docker driver: its own module is imported once there is an engine or a task.

The `docker` package is imported once an engine has answered.
"""

from __future__ import annotations

import msgspec
from yurt.sdk.containers.address import EngineAddress
from yurt.sdk.deferred import DeferredDriver
from yurt.sdk.driver import UNDETECTED, Driver, Fingerprint, PluginContext
from yurt.sdk.pinned_paths import PinnedPaths
from yurt.sdk.plugin import plugin_function

from yurt_driver_docker.config import CAPABILITIES, ENGINE, INSTALL, NAME, PluginOptions, TaskConfig, plugin_config


@plugin_function
def yurt_task_drivers(context: PluginContext) -> list[Driver]:
    """The driver; without an engine it is undetected, with instructions to install one."""
    config = plugin_config(context)
    address, pins = EngineAddress(config.endpoint, config.options.tls), PinnedPaths(config.owner)

    def absence() -> Fingerprint | None:
        if not address.is_absent() or pins.has_any():  # Only the driver removes the mounts of a killed agent.
            return None
        return Fingerprint(health=UNDETECTED, description=address.absence_text(ENGINE), fix=INSTALL)

    def make() -> Driver:
        from yurt_driver_docker.driver import DockerDriver

        return DockerDriver(config, clock=context.now)

    return [
        DeferredDriver(
            NAME,
            task_config=TaskConfig,
            capabilities=CAPABILITIES,
            absence=absence,
            module="yurt_driver_docker.driver",
            make=make,
        )
    ]


@plugin_function
def yurt_plugin_config() -> type[msgspec.Struct]:
    """The options of the plugin's block."""
    return PluginOptions
