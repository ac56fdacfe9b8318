"""Finds, loads and watches plugins."""

from yurt.plugins.manager import LoadedPlugins, PluginManager, PluginStatus

__all__ = ["LoadedPlugins", "PluginManager", "PluginStatus"]
