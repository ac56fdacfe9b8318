"""The plugin functions with which a package registers what it offers.

A plugin is a module (or object) named by an entry point of the group `yurt.plugins.v1`. Its plugin functions are those
marked with `@plugin_function` whose names stand here. pluggy calls them hooks; in Yurt a hook is a step of an
allocation or a task (`yurt.sdk.hooks`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pluggy

from yurt.sdk.artifacts import ArtifactGetter
from yurt.sdk.commands import PackageCommand
from yurt.sdk.device import DevicePlugin
from yurt.sdk.driver import Driver, PluginContext
from yurt.sdk.fingerprints import NodeFingerprint
from yurt.sdk.hooks import AllocHook, TaskHook
from yurt.sdk.log_engines import LogEngine
from yurt.sdk.services import ServiceProvider
from yurt.sdk.templates import TemplateProvider

PROJECT = "yurt"
ENTRY_POINT_GROUP = "yurt.plugins.v1"

declared = pluggy.HookspecMarker(PROJECT)
plugin_function = pluggy.HookimplMarker(PROJECT)


class PluginSkipped(Exception):
    """Raised by a plugin to explain why it offers nothing on this machine; not a failure."""


@declared
def yurt_task_drivers(context: PluginContext) -> Sequence[Driver]:
    """Create the plugin's task drivers; raise PluginSkipped with the reason when there are none."""
    raise NotImplementedError


@declared
def yurt_device_plugins(context: PluginContext) -> Sequence[DevicePlugin]:
    """Create the plugin's device plugins; raise PluginSkipped with the reason when there are none."""
    raise NotImplementedError


@declared
def yurt_template_providers(context: PluginContext) -> Sequence[TemplateProvider]:
    """Create the plugin's template providers; raise PluginSkipped with the reason when there are none."""
    raise NotImplementedError


@declared
def yurt_task_hooks(context: PluginContext) -> Sequence[TaskHook]:
    """Create the plugin's task hooks; raise PluginSkipped with the reason when there are none."""
    raise NotImplementedError


@declared
def yurt_alloc_hooks(context: PluginContext) -> Sequence[AllocHook]:
    """Create the plugin's allocation hooks; raise PluginSkipped with the reason when there are none."""
    raise NotImplementedError


@declared
def yurt_service_providers(context: PluginContext) -> Sequence[ServiceProvider]:
    """Create the plugin's service providers; raise PluginSkipped with the reason when there are none."""
    raise NotImplementedError


@declared
def yurt_fingerprints(context: PluginContext) -> Sequence[NodeFingerprint]:
    """Make the plugin's fingerprints of the node; raise PluginSkipped with the reason when there are none."""
    raise NotImplementedError


@declared
def yurt_artifact_getters(context: PluginContext) -> Sequence[ArtifactGetter]:
    """Name the plugin's artifact getters; raise PluginSkipped with the reason when there are none."""
    raise NotImplementedError


@declared
def yurt_log_engines(context: PluginContext) -> Sequence[LogEngine]:
    """Create the plugin's engines of the command log; raise PluginSkipped with the reason when there are none."""
    raise NotImplementedError


@declared
def yurt_commands() -> Sequence[PackageCommand]:
    """The commands of a module that an entry point of the group `yurt.commands.v1` names."""
    raise NotImplementedError


@declared(firstresult=True)
def yurt_plugin_config() -> type[msgspec.Struct]:
    """The struct of the `config` in the agent's plugin block, for programs that serve the plugin to other agents."""
    raise NotImplementedError
