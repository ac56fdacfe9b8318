"""Loads every installed plugin apart from the others, and says of each how that went.

Each plugin gets a pluggy manager of its own: a plugin that cannot be imported, has a misspelt hook or fails when it
is called becomes a status, and the next one is loaded all the same. A driver name has one owner; who comes second is
refused. Plugins are taken in the order of their names, so that the same machine always has the same owner.

A configuration is meant for a plugin when its label is the plugin's name or that of one of its drivers. Which drivers
there are shows only once they are made, so a plugin whose driver is configured is asked for them once more.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import msgspec
import pluggy

from yurt.sdk import hooks
from yurt.sdk.driver import Driver, PluginContext
from yurt.sdk.value import Value, no_entries, replace

log = logging.getLogger(__name__)

OK = "ok"
SKIPPED = "skipped"
FAILED = "failed"
DRIVER_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")

Configs = Mapping[str, Mapping[str, Any]]
"""Configurations by label."""


class PluginStatus(Value):
    """How a plugin fares: `state` is ok, skipped or failed; `reason` is set for the latter two."""

    name: str
    state: str
    reason: str = ""
    distribution: str = ""
    version: str = ""
    drivers: tuple[str, ...] = ()


class LoadedPlugins(Value):
    """All drivers by name, the status of every plugin, and the labels of configurations that no plugin has."""

    drivers: Mapping[str, Driver] = no_entries()
    statuses: tuple[PluginStatus, ...] = ()
    unused: tuple[str, ...] = ()

    def attributes(self) -> dict[str, str]:
        """The statuses as node attributes."""
        found: dict[str, str] = {}
        for status in self.statuses:
            found[f"plugin.{status.name}.status"] = status.state
            found |= {f"plugin.{status.name}.reason": status.reason} if status.reason else {}
            found |= {f"plugin.{status.name}.version": status.version} if status.version else {}
        return found

    def names(self) -> tuple[str, ...]:
        """The labels that a configuration may have."""
        return tuple(sorted({name for status in self.statuses for name in (status.name, *status.drivers)}))

    def unused_text(self, label: str) -> str:
        """What is wrong with a configuration for nobody, and how to mend it."""
        names = self.names()
        near = get_close_matches(label, names, n=1, cutoff=0.6)
        hint = f'did you mean "{near[0]}"?' if near else f"installed are: {', '.join(names) or 'none'}"
        return f'plugin "{label}" in the configuration has no effect: no plugin or driver of that name; {hint}'


class PluginManager:
    """The plugins of one agent."""

    def __init__(self, found: Sequence[EntryPoint] | None = None) -> None:
        self._found = found
        self._drivers: dict[str, Driver] = {}
        self._replaced: list[Driver] = []
        self._configs: Configs = {}

    def load(self, context_for: Callable[[str], PluginContext], *, configs: Configs | None = None) -> LoadedPlugins:
        """Load every plugin; `context_for` gives each its context by name, `configs` its configuration by label."""
        self._configs = configs or {}
        found = entry_points(group=hooks.ENTRY_POINT_GROUP) if self._found is None else self._found
        statuses: list[PluginStatus] = []
        for entry_point in sorted(found, key=lambda each: each.name):
            statuses.append(self._load_one(entry_point, context_for, taken={each.name for each in statuses}))
        known = {name for status in statuses for name in (status.name, *status.drivers)}
        unused = tuple(sorted(label for label in self._configs if label not in known))
        return LoadedPlugins(drivers=dict(self._drivers), statuses=tuple(statuses), unused=unused)

    def _load_one(
        self, entry_point: EntryPoint, context_for: Callable[[str], PluginContext], *, taken: set[str]
    ) -> PluginStatus:
        """Load a plugin and take its drivers; whatever it does ends as a status."""
        distribution = entry_point.dist
        status = PluginStatus(
            name=entry_point.name,
            state=OK,
            distribution=distribution.name if distribution else "",
            version=distribution.version if distribution else "",
        )
        try:
            if entry_point.name in taken:
                raise ValueError(f'another installed plugin is named "{entry_point.name}"; uninstall one of the two')
            drivers = self._make(entry_point, context_for(entry_point.name))
            self._check(drivers)
        except hooks.PluginSkipped as reason:
            return msgspec.structs.replace(status, state=SKIPPED, reason=str(reason))
        except (Exception, SystemExit) as error:
            log.warning("plugin %s failed: %s", entry_point.name, describe(error))
            log.debug("plugin %s failed", entry_point.name, exc_info=True)
            return msgspec.structs.replace(status, state=FAILED, reason=describe(error))
        self._drivers |= {driver.name: driver for driver in drivers}
        if not drivers:
            return msgspec.structs.replace(status, state=SKIPPED, reason="it offers nothing on this machine")
        return msgspec.structs.replace(status, drivers=tuple(driver.name for driver in drivers))

    def _make(self, entry_point: EntryPoint, context: PluginContext) -> tuple[Driver, ...]:
        """The plugin's drivers with the configuration for its name, and for its drivers' names where there is one."""
        config = dict(self._configs.get(entry_point.name, context.config))
        drivers = make_drivers(entry_point, replace(context, config=config))
        names = {getattr(driver, "name", "") for driver in drivers} - {entry_point.name}
        by_driver = [self._configs[name] for name in sorted(names) if name in self._configs]
        if not by_driver:
            return drivers
        self._replaced += [driver for driver in drivers if isinstance(driver, Driver)]
        for part in by_driver:
            config |= part
        return make_drivers(entry_point, replace(context, config=config))

    def _check(self, drivers: Sequence[Driver]) -> None:
        """Refuse what is no driver, and a name that has an owner."""
        names: set[str] = set(self._drivers)
        for driver in drivers:
            if not isinstance(driver, Driver):
                raise TypeError(f"{type(driver).__name__} is no task driver: it lacks {', '.join(missing_of(driver))}")
            if not DRIVER_NAME.fullmatch(driver.name):
                raise ValueError(f'"{driver.name}" is no name for a driver; use letters, digits, - and _')
            if driver.name in names:
                raise ValueError(f'the driver name "{driver.name}" is taken; uninstall one of the two plugins')
            if not issubclass(driver.task_config, msgspec.Struct):
                raise TypeError(f"task_config of the driver {driver.name} must be a msgspec.Struct")
            names.add(driver.name)

    async def close(self) -> None:
        """Close every driver, each apart."""
        for driver in (*self._drivers.values(), *self._replaced):
            try:
                await driver.close()
            except Exception:
                log.exception("driver %s failed to close", driver.name)
        self._drivers.clear()
        self._replaced.clear()


def make_drivers(entry_point: EntryPoint, context: PluginContext) -> tuple[Driver, ...]:
    """Import a plugin, check its hooks and ask for its drivers."""
    manager = pluggy.PluginManager(hooks.PROJECT)
    manager.add_hookspecs(hooks)
    manager.register(entry_point.load(), name=entry_point.name)
    manager.check_pending()
    return tuple(driver for drivers in manager.hook.yurt_task_drivers(context=context) for driver in drivers or ())


def missing_of(driver: object) -> list[str]:
    """The members of the protocol that an object lacks."""
    members = {name for name in Driver.__dict__ if not name.startswith("_")} | set(Driver.__annotations__)
    return sorted(name for name in members if not hasattr(driver, name))


def describe(error: BaseException) -> str:
    """A failure in one line for an operator."""
    if isinstance(error, ModuleNotFoundError):
        return f"cannot be imported: {error}; install what it needs"
    text = " ".join(str(error).split()) or type(error).__name__
    return text if isinstance(error, ValueError | TypeError) else f"{type(error).__name__}: {text}"
