"""The status of an agent's plugins, as the API shows it."""

from __future__ import annotations

from yurt.sdk.value import Value


class PluginReloaded(Value):
    """A plugin whose code was reloaded: its drivers, and the number of tasks they recovered."""

    name: str
    version: str = ""
    drivers: tuple[str, ...] = ()
    tasks: int = 0
