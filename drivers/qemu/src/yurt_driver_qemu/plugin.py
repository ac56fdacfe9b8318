"""The entry point of the qemu driver."""

from __future__ import annotations

import msgspec
from yurt.sdk.driver import Driver, PluginContext
from yurt.sdk.plugin import plugin_function

from yurt_driver_qemu.config import PluginConfig
from yurt_driver_qemu.driver import QemuDriver


@plugin_function
def yurt_task_drivers(context: PluginContext) -> list[Driver]:
    """The driver; without an emulator it is undetected, with instructions to install one."""
    return [QemuDriver(context)]


@plugin_function
def yurt_plugin_config() -> type[msgspec.Struct]:
    """The options of the plugin's block."""
    return PluginConfig
