"""The entry point of the qemu driver: its own module is imported once there is an emulator or a task."""

from __future__ import annotations

import shutil

import msgspec
from yurt.sdk.containers.common import owner_of
from yurt.sdk.deferred import DeferredDriver
from yurt.sdk.driver import Driver, Fingerprint, PluginContext
from yurt.sdk.pinned_paths import PinnedPaths
from yurt.sdk.plugin import plugin_function

from yurt_driver_qemu.config import (
    ABSENT,
    CAPABILITIES,
    DEFAULT_EMULATOR,
    NAME,
    PluginConfig,
    TaskConfig,
    plugin_config,
)


@plugin_function
def yurt_task_drivers(context: PluginContext) -> list[Driver]:
    """The driver; without an emulator it is undetected, with instructions to install one."""
    plugin_config(context.config)
    pins = PinnedPaths(f"{owner_of(context.paths.state_dir)}-{NAME}")

    def absence() -> Fingerprint | None:
        # Only the driver removes the mounts of a killed agent.
        return None if shutil.which(DEFAULT_EMULATOR) or pins.has_any() else ABSENT

    def make() -> Driver:
        from yurt_driver_qemu.driver import QemuDriver

        return QemuDriver(context)

    return [
        DeferredDriver(
            NAME,
            task_config=TaskConfig,
            capabilities=CAPABILITIES,
            absence=absence,
            module="yurt_driver_qemu.driver",
            make=make,
        )
    ]


@plugin_function
def yurt_plugin_config() -> type[msgspec.Struct]:
    """The options of the plugin's block."""
    return PluginConfig
