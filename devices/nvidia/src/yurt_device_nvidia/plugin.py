"""The entry point of nvidia."""

from __future__ import annotations

from yurt.sdk.device import DevicePlugin
from yurt.sdk.driver import PluginContext
from yurt.sdk.plugin import PluginSkipped, plugin_function

from yurt_device_nvidia.library import has_card, has_library
from yurt_device_nvidia.options import settings_of


@plugin_function
def yurt_device_plugins(context: PluginContext) -> list[DevicePlugin]:
    """The GPUs of this machine; with a card but without a driver the plugin reports that, until it changes."""
    settings = settings_of(context)
    if not settings.options.enabled:
        raise PluginSkipped('it is turned off by enabled = false in plugin "nvidia" of the configuration')
    if not has_library(settings.options.library) and not has_card():
        raise PluginSkipped(
            f"this machine has no NVIDIA card, and no driver ({settings.options.library} is not found); "
            "in a container, start it with --gpus all"
        )
    from yurt_device_nvidia.devices import NvidiaDevices

    return [NvidiaDevices(settings, context)]
