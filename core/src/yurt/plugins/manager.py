"""Loads every installed plugin apart from the others, and says of each how that went.

Each plugin gets a pluggy manager of its own: a plugin that cannot be imported, has a misspelt hook or fails when it
is called becomes a status, and the next one is loaded all the same. A driver name has one owner; who comes second is
refused. Plugins are taken in the order of their names, so that the same machine always has the same owner.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points

import msgspec
import pluggy

from yurt.sdk import hooks
from yurt.sdk.driver import Driver, PluginContext
from yurt.sdk.value import Value, no_entries

log = logging.getLogger(__name__)

OK = "ok"
SKIPPED = "skipped"
FAILED = "failed"
DRIVER_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


class PluginStatus(Value):
    """How a plugin fares: `state` is ok, skipped or failed; `reason` is set for the latter two."""

    name: str
    state: str
    reason: str = ""
    distribution: str = ""
    version: str = ""
    drivers: tuple[str, ...] = ()


class LoadedPlugins(Value):
    """All drivers by name, and the status of every plugin."""

    drivers: Mapping[str, Driver] = no_entries()
    statuses: tuple[PluginStatus, ...] = ()

    def attributes(self) -> dict[str, str]:
        """The statuses as node attributes."""
        found: dict[str, str] = {}
        for status in self.statuses:
            found[f"plugin.{status.name}.status"] = status.state
            found |= {f"plugin.{status.name}.reason": status.reason} if status.reason else {}
            found |= {f"plugin.{status.name}.version": status.version} if status.version else {}
        return found


class PluginManager:
    """The plugins of one agent."""

    def __init__(self, found: Sequence[EntryPoint] | None = None) -> None:
        self._found = found
        self._drivers: dict[str, Driver] = {}

    def load(self, context_for: Callable[[str], PluginContext]) -> LoadedPlugins:
        """Load every plugin; `context_for` gives each its context by name."""
        found = entry_points(group=hooks.ENTRY_POINT_GROUP) if self._found is None else self._found
        statuses: list[PluginStatus] = []
        for entry_point in sorted(found, key=lambda each: each.name):
            statuses.append(self._load_one(entry_point, context_for, taken={each.name for each in statuses}))
        return LoadedPlugins(drivers=dict(self._drivers), statuses=tuple(statuses))

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
            drivers = make_drivers(entry_point, context_for(entry_point.name))
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
        for name, driver in self._drivers.items():
            try:
                await driver.close()
            except Exception:
                log.exception("driver %s failed to close", name)
        self._drivers.clear()


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
