"""The entry point of the mock driver."""

from __future__ import annotations

from yurt.sdk.driver import Driver, PluginContext
from yurt.sdk.hooks import hookimpl
from yurt.sdk.schema import decode_config

from yurt_driver_mock.config import PluginOptions
from yurt_driver_mock.driver import MockDriver


@hookimpl
def yurt_task_drivers(context: PluginContext) -> list[Driver]:
    """The driver, with the agent's clock."""
    return [MockDriver(decode_config(PluginOptions, context.config), clock=context.now)]
