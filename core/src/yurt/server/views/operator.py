"""Region-wide configuration, and root keys."""

from __future__ import annotations

from yurt.server.views.rows import Rows
from yurt.structs.cluster import AutopilotConfiguration, SchedulerConfiguration
from yurt.structs.variable import RootKeyMeta


class SchedulerConfigurationRows(Rows[str, SchedulerConfiguration]):
    """The scheduler configuration: one row, once it was set."""

    __slots__ = ()
    name = "scheduler_config"

    @property
    def current(self) -> SchedulerConfiguration:
        """The configuration in effect: the row, or the defaults."""
        return self._state.scheduler_config


class AutopilotConfigurationRows(Rows[str, AutopilotConfiguration]):
    """The autopilot configuration: one row, once it was set."""

    __slots__ = ()
    name = "autopilot_config"

    @property
    def current(self) -> AutopilotConfiguration:
        """The configuration in effect: the row, or the defaults."""
        return self._state.autopilot_config


class RootKeyRows(Rows[str, RootKeyMeta]):
    """Metadata of root keys; the keys themselves are not in the state."""

    __slots__ = ()
    name = "root_keys"

    def oldest_first(self) -> list[RootKeyMeta]:
        """All keys, in the order of their creation."""
        return sorted(self.all(), key=lambda key: (key.create_index, key.key_id))
