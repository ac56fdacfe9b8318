"""The entry point of the podman driver: its own module is imported once there is an engine or a task.

The `podman` package is imported once an engine has answered.
"""

from __future__ import annotations

from yurt.sdk.containers.address import EngineAddress
from yurt.sdk.deferred import DeferredDriver
from yurt.sdk.driver import UNDETECTED, Driver, Fingerprint, PluginContext
from yurt.sdk.pinned_paths import PinnedPaths
from yurt.sdk.plugin import plugin_function

from yurt_driver_podman.config import CAPABILITIES, DEFAULT_NAME, DRIVER, ENGINE, INSTALL, TaskConfig, plugin_config


@plugin_function
def yurt_task_drivers(context: PluginContext) -> list[Driver]:
    """The driver; without an engine it is undetected, with instructions to start one."""
    config = plugin_config(context)
    addresses = {name: EngineAddress(f"unix://{path}") for name, path in config.sockets.items()}
    pins = [PinnedPaths(f"{config.owner}-{name}") for name in addresses]

    def absence() -> Fingerprint | None:
        # Only the driver removes the mounts of a killed agent.
        if any(not each.is_absent() for each in addresses.values()) or any(each.has_any() for each in pins):
            return None
        return Fingerprint(health=UNDETECTED, description=addresses[DEFAULT_NAME].absence_text(ENGINE), fix=INSTALL)

    def make() -> Driver:
        from yurt_driver_podman.driver import PodmanDriver

        return PodmanDriver(config, clock=context.now)

    return [
        DeferredDriver(
            DRIVER,
            task_config=TaskConfig,
            capabilities=CAPABILITIES,
            absence=absence,
            module="yurt_driver_podman.driver",
            make=make,
        )
    ]
