"""The hooks that a plugin may implement; the markers are pluggy's.

A plugin is a module (or object) named by an entry point of the group `yurt.plugins.v1`.
"""

from __future__ import annotations

from collections.abc import Sequence

import pluggy

from yurt.sdk.driver import Driver, PluginContext

PROJECT = "yurt"
ENTRY_POINT_GROUP = "yurt.plugins.v1"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def yurt_task_drivers(context: PluginContext) -> Sequence[Driver]:
    """Make the plugin's task drivers; raise to be reported as failed, return nothing to be reported as skipped."""
    raise NotImplementedError
