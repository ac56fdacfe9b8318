"""What operators set for the region, and the root keys."""

from __future__ import annotations

from yurt.server.views.rows import Rows
from yurt.structs.cluster import AutopilotConfiguration, SchedulerConfiguration
from yurt.structs.variable import RootKeyMeta


class SchedulerConfigurationRows(Rows[str, SchedulerConfiguration]):
    """The scheduler's configuration: one row, once somebody has set it."""

    __slots__ = ()
    name = "scheduler_config"

    @property
    def current(self) -> SchedulerConfiguration:
        """The configuration in effect: the row, or the defaults."""
        return self._state.scheduler_config


class AutopilotConfigurationRows(Rows[str, AutopilotConfiguration]):
    """The configuration of autopilot: one row, once somebody has set it."""

    __slots__ = ()
    name = "autopilot_config"

    @property
    def current(self) -> AutopilotConfiguration:
        """The configuration in effect: the row, or the defaults."""
        return self._state.autopilot_config


class RootKeyRows(Rows[str, RootKeyMeta]):
    """What is known of root keys; the keys themselves are in no state."""

    __slots__ = ()
    name = "root_keys"

    def oldest_first(self) -> list[RootKeyMeta]:
        """All keys, in the order in which they were made."""
        return sorted(self.all(), key=lambda key: (key.create_index, key.key_id))
