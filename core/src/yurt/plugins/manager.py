"""Loads every installed plugin in isolation and records a status for each.

Each plugin gets a pluggy manager of its own: a plugin that cannot be imported, has a misspelt function or fails when it
is called gets a status with the reason, and the others are loaded all the same. Names are unique among the parts of a
kind (drivers, device plugins, template providers and their functions, hooks, service providers, fingerprints, artifact
getters, log engines); the second plugin with a name is refused. Plugins are loaded in the order of their names, so that
the same plugin always gets a name.

The label of a configuration block is the name of a plugin or of one of its parts. The parts' names are known only once
the parts are made, so a plugin that is configured by a part's name makes its parts a second time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, Literal, NamedTuple

import msgspec
import pluggy

from yurt.sdk import plugin as declarations
from yurt.sdk.artifacts import GETTER_ATTRIBUTE, ArtifactGetter
from yurt.sdk.artifacts import problem_of as artifact_problem_of
from yurt.sdk.device import DevicePlugin
from yurt.sdk.driver import Driver, PluginContext
from yurt.sdk.errors import Invalid
from yurt.sdk.fingerprints import RESERVED, NodeFingerprint
from yurt.sdk.hooks import ALLOC_HOOKS, TASK_HOOKS, AllocHook, AllocHookOf, OrderedHook, TaskHook, TaskHookOf, order
from yurt.sdk.log_engines import OWN_ENGINES, LogEngine
from yurt.sdk.services import NODE_ATTRIBUTE, NOMAD, ServiceProvider
from yurt.sdk.templates import TemplateProvider, by_function, problem_of
from yurt.sdk.value import Value, no_entries, replace

log = logging.getLogger(__name__)

PluginState = Literal["ok", "skipped", "failed"]
OK: Final = "ok"
SKIPPED: Final = "skipped"
FAILED: Final = "failed"
CLOSE_LIMIT_S: Final = 5.0
PLUGIN_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")

Part = Driver | DevicePlugin | TemplateProvider | TaskHook | AllocHook | ServiceProvider | NodeFingerprint | LogEngine
PART_TYPES = (
    Driver, DevicePlugin, TemplateProvider, TaskHookOf, AllocHookOf, ServiceProvider, NodeFingerprint, LogEngine,
)  # fmt: skip
Configs = Mapping[str, Mapping[str, Any]]
"""Configuration blocks by label."""


class PluginStatus(Value):
    """The status of a plugin: `state` is ok, skipped or failed; `reason` is set for the latter two."""

    name: str
    state: PluginState
    reason: str = ""
    distribution: str = ""
    version: str = ""
    drivers: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    """Template providers."""
    task_hooks: tuple[str, ...] = ()
    alloc_hooks: tuple[str, ...] = ()
    service_providers: tuple[str, ...] = ()
    fingerprints: tuple[str, ...] = ()
    artifact_getters: tuple[str, ...] = ()
    log_engines: tuple[str, ...] = ()

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of configuration blocks that configure the plugin."""
        hooks = (*self.task_hooks, *self.alloc_hooks)
        others = (*self.service_providers, *self.fingerprints, *self.artifact_getters, *self.log_engines)
        return (self.name, *self.drivers, *self.devices, *self.providers, *hooks, *others)

    @property
    def fixed(self) -> str:
        """The kinds of parts that take effect only at the agent's start; empty without any."""
        kinds = (
            ("devices", self.devices),
            ("template providers", self.providers),
            ("hooks", (*self.task_hooks, *self.alloc_hooks)),
            ("service providers", self.service_providers),
            ("fingerprints", self.fingerprints),
            ("artifact getters", self.artifact_getters),
            ("log engines", self.log_engines),
        )
        return next((kind for kind, names in kinds if names), "")


class MadePlugin(NamedTuple):
    """The parts that one plugin makes."""

    drivers: tuple[Driver, ...] = ()
    devices: tuple[DevicePlugin, ...] = ()
    providers: tuple[TemplateProvider, ...] = ()
    task_hooks: tuple[TaskHook, ...] = ()
    alloc_hooks: tuple[AllocHook, ...] = ()
    service_providers: tuple[ServiceProvider, ...] = ()
    fingerprints: tuple[NodeFingerprint, ...] = ()
    artifact_getters: tuple[ArtifactGetter, ...] = ()
    log_engines: tuple[LogEngine, ...] = ()

    @property
    def all(self) -> tuple[Part | ArtifactGetter, ...]:
        """Every part."""
        return tuple(part for parts in self for part in parts)

    @property
    def names(self) -> dict[str, tuple[str, ...]]:
        """The names of the parts, by the field of `PluginStatus` for their kind."""
        return {kind: tuple(part.name for part in parts) for kind, parts in self._asdict().items()}


class LoadedPlugins(Value):
    """The parts of all plugins by name, the status of every plugin, and the labels of blocks without a plugin."""

    drivers: Mapping[str, Driver] = no_entries()
    devices: Mapping[str, DevicePlugin] = no_entries()
    providers: Mapping[str, TemplateProvider] = no_entries()
    task_hooks: Mapping[str, TaskHook] = no_entries()
    alloc_hooks: Mapping[str, AllocHook] = no_entries()
    service_providers: Mapping[str, ServiceProvider] = no_entries()
    fingerprints: Mapping[str, NodeFingerprint] = no_entries()
    artifact_getters: Mapping[str, ArtifactGetter] = no_entries()
    log_engines: Mapping[str, LogEngine] = no_entries()
    statuses: tuple[PluginStatus, ...] = ()
    unused: tuple[str, ...] = ()

    def attributes(self) -> dict[str, str]:
        """The statuses as node attributes."""
        found: dict[str, str] = {}
        for status in self.statuses:
            found[f"plugin.{status.name}.status"] = status.state
            found |= {f"plugin.{status.name}.reason": status.reason} if status.reason else {}
            found |= {f"plugin.{status.name}.version": status.version} if status.version else {}
        found |= {f"{NODE_ATTRIBUTE}{name}": "true" for name in self.service_providers}
        return found | {f"{GETTER_ATTRIBUTE}{name}": "true" for name in self.artifact_getters}

    def names(self) -> tuple[str, ...]:
        """The labels that a configuration may have."""
        return tuple(sorted({name for status in self.statuses for name in status.labels}))

    def unused_text(self, label: str) -> str:
        """The problem of a configuration block without a plugin, and its remedy."""
        names = self.names()
        near = get_close_matches(label, names, n=1, cutoff=0.6)
        hint = f'did you mean "{near[0]}"?' if near else f"installed are: {', '.join(names) or 'none'}"
        return f'plugin "{label}" in the configuration has no effect: no plugin or driver of that name; {hint}'


class PluginFailed(Exception):
    """A plugin failed; the text gives the reason in one line."""


@contextlib.contextmanager
def reported_failures(name: str) -> Iterator[None]:
    """Convert exceptions of a plugin's code to PluginFailed; PluginSkipped passes through."""
    try:
        yield
    except declarations.PluginSkipped:
        raise
    except (Exception, SystemExit) as error:
        log.warning("plugin %s failed: %s", name, describe(error))
        log.debug("plugin %s failed", name, exc_info=True)
        raise PluginFailed(describe(error)) from error


class PluginManager:
    """Loads and holds the plugins of one agent."""

    def __init__(
        self, found: Sequence[EntryPoint] | None = None, *, refusal: Callable[[str], str] = lambda _: ""
    ) -> None:
        """`refusal` says why a driver of a name may not be used here; "" when it may."""
        self._found = found
        self._refusal = refusal
        self._drivers: dict[str, Driver] = {}
        self._devices: dict[str, DevicePlugin] = {}
        self._providers: dict[str, TemplateProvider] = {}
        self._task_hooks: dict[str, TaskHook] = {}
        self._alloc_hooks: dict[str, AllocHook] = {}
        self._service_providers: dict[str, ServiceProvider] = {}
        self._fingerprints: dict[str, NodeFingerprint] = {}
        self._artifact_getters: dict[str, ArtifactGetter] = {}
        self._log_engines: dict[str, LogEngine] = {}
        self._replaced: list[Part] = []
        self._configs: Configs = {}

    def load(self, context_for: Callable[[str], PluginContext], *, configs: Configs | None = None) -> LoadedPlugins:
        """Load every plugin; `context_for` gives each its context by name, `configs` its configuration by label."""
        self._configs = configs or {}
        found = entry_points(group=declarations.ENTRY_POINT_GROUP) if self._found is None else self._found
        statuses: list[PluginStatus] = []
        for entry_point in sorted(found, key=lambda each: each.name):
            statuses.append(self._load_one(entry_point, context_for, names_in_use={each.name for each in statuses}))
        used = {name for status in statuses for name in status.labels}
        unused = tuple(sorted(label for label in self._configs if label not in used))
        return LoadedPlugins(
            drivers=dict(self._drivers),
            devices=dict(self._devices),
            providers=dict(self._providers),
            task_hooks=dict(self._task_hooks),
            alloc_hooks=dict(self._alloc_hooks),
            service_providers=dict(self._service_providers),
            fingerprints=dict(self._fingerprints),
            artifact_getters=dict(self._artifact_getters),
            log_engines=dict(self._log_engines),
            statuses=tuple(statuses),
            unused=unused,
        )

    def _load_one(
        self, entry_point: EntryPoint, context_for: Callable[[str], PluginContext], *, names_in_use: set[str]
    ) -> PluginStatus:
        """Load a plugin and register its parts; every failure becomes a status."""
        distribution = entry_point.dist
        status = PluginStatus(
            name=entry_point.name,
            state=OK,
            distribution=distribution.name if distribution else "",
            version=distribution.version if distribution else "",
        )
        try:
            with reported_failures(entry_point.name):
                if entry_point.name in names_in_use:
                    raise ValueError(
                        f'another installed plugin is named "{entry_point.name}"; uninstall one of the two'
                    )
                made = self._make(entry_point, context_for(entry_point.name))
                self._check(made.drivers)
                self._check_devices(made.devices)
                self._check_providers(made.providers)
                self._check_hooks(made)
                self._check_service_providers(made.service_providers)
                self._check_fingerprints(made.fingerprints)
                self._check_artifact_getters(made.artifact_getters)
                check_log_engines(made.log_engines, entry_point.name)
        except declarations.PluginSkipped as reason:
            return msgspec.structs.replace(status, state=SKIPPED, reason=str(reason))
        except PluginFailed as error:
            return msgspec.structs.replace(status, state=FAILED, reason=str(error))
        self._drivers |= {driver.name: driver for driver in made.drivers}
        self._devices |= {device.name: device for device in made.devices}
        self._providers |= {provider.name: provider for provider in made.providers}
        self._task_hooks |= {hook.name: hook for hook in made.task_hooks}
        self._alloc_hooks |= {hook.name: hook for hook in made.alloc_hooks}
        self._service_providers |= {provider.name: provider for provider in made.service_providers}
        self._fingerprints |= {fingerprint.name: fingerprint for fingerprint in made.fingerprints}
        self._artifact_getters |= {getter.name: getter for getter in made.artifact_getters}
        self._log_engines |= {engine.name: engine for engine in made.log_engines}
        if not made.all:
            return msgspec.structs.replace(status, state=SKIPPED, reason="it offers nothing on this machine")
        return msgspec.structs.replace(status, **made.names)

    def _make(self, entry_point: EntryPoint, context: PluginContext) -> MadePlugin:
        """Create a plugin's parts with the configurations for its name and the names of its parts."""
        config = dict(self._configs.get(entry_point.name, context.config))
        made = self._permitted(make_parts(entry_point, replace(context, config=config)))
        names = {getattr(each, "name", "") for each in made.all} - {entry_point.name}
        by_part = [self._configs[name] for name in sorted(names) if name in self._configs]
        if not by_part:
            return made
        self._replaced += [each for each in made.all if isinstance(each, PART_TYPES)]
        for part in by_part:
            config |= part
        return self._permitted(make_parts(entry_point, replace(context, config=config)))

    def _permitted(self, made: MadePlugin) -> MadePlugin:
        """The plugin's parts without refused drivers; raises PluginSkipped when none is left."""
        reasons = {driver.name: self._refusal(driver.name) for driver in made.drivers if isinstance(driver, Driver)}
        refused = {name: reason for name, reason in reasons.items() if reason}
        if not refused:
            return made
        self._replaced += [driver for driver in made.drivers if getattr(driver, "name", "") in refused]
        left = made._replace(drivers=tuple(each for each in made.drivers if getattr(each, "name", "") not in refused))
        if not left.all:
            raise declarations.PluginSkipped("; ".join(f"driver {name}: {reason}" for name, reason in refused.items()))
        return left

    def drivers_of(self, status: PluginStatus) -> dict[str, Driver]:
        """The current drivers of a plugin."""
        return {name: self._drivers[name] for name in status.drivers}

    def make_again(
        self, status: PluginStatus, entry_point: EntryPoint, context: PluginContext
    ) -> tuple[PluginStatus, dict[str, Driver]]:
        """New drivers from a plugin's reloaded code, and the status with them.

        They are checked, but not installed. Raises PluginFailed or PluginSkipped, and Invalid when a driver is missing
        or the code makes parts of other kinds.
        """
        with reported_failures(entry_point.name):
            made = self._make(entry_point, context)
            self._check(made.drivers, own=frozenset(status.drivers))
        names = tuple(driver.name for driver in made.drivers)
        missing = [name for name in status.drivers if name not in names]
        if missing:
            raise Invalid(f"the new code no longer has the driver {' and '.join(missing)}; install it by a restart")
        if kind := msgspec.structs.replace(status, **made.names).fixed:
            raise Invalid(f"the new code offers {kind}, which take effect only at the agent's start; restart the agent")
        distribution = entry_point.dist
        version = distribution.version if distribution else ""
        fresh = msgspec.structs.replace(status, drivers=names, version=version)
        return fresh, {driver.name: driver for driver in made.drivers}

    def put(self, drivers: Mapping[str, Driver]) -> None:
        """Install new drivers; the caller has closed the previous ones."""
        self._drivers |= drivers

    def _check(self, drivers: Sequence[Driver], *, own: frozenset[str] = frozenset()) -> None:
        """Check drivers: their type, and that no other plugin has their names; raises TypeError or ValueError."""
        names: set[str] = set(self._drivers) - own
        for driver in drivers:
            if not isinstance(driver, Driver):
                raise TypeError(missing_members_text(driver, Driver, "task driver"))
            _check_name(driver.name, "driver", names)
            if not issubclass(driver.task_config, msgspec.Struct):
                raise TypeError(f"task_config of the driver {driver.name} must be a msgspec.Struct")
            names.add(driver.name)

    def _check_devices(self, devices: Sequence[DevicePlugin]) -> None:
        """Check device plugins: their type, and that their names are free."""
        names: set[str] = set(self._devices)
        for device in devices:
            if not isinstance(device, DevicePlugin):
                raise TypeError(missing_members_text(device, DevicePlugin, "device plugin"))
            _check_name(device.name, "device plugin", names)
            names.add(device.name)

    def _check_providers(self, providers: Sequence[TemplateProvider]) -> None:
        """Check template providers: their type, and that their names and those of their functions are free."""
        registered = dict(self._providers)
        for provider in providers:
            if not isinstance(provider, TemplateProvider):
                raise TypeError(missing_members_text(provider, TemplateProvider, "template provider"))
            _check_name(provider.name, "template provider", registered)
            if problem := problem_of(provider):
                raise ValueError(problem)
            owners = by_function(registered)
            if duplicate := next((name for name in provider.functions if name in owners), ""):
                raise ValueError(
                    f'the template function "{duplicate}" is provided by "{owners[duplicate].name}" already'
                )
            registered[provider.name] = provider

    def _check_hooks(self, made: MadePlugin) -> None:
        """Check hooks: their type, that their names are free, and that their order has no contradiction."""
        task_names, alloc_names = {*TASK_HOOKS, *self._task_hooks}, {*ALLOC_HOOKS, *self._alloc_hooks}
        for hook in made.task_hooks:
            if not isinstance(hook, TaskHookOf):
                raise TypeError(f"{hook!r} is not a task hook; derive its class from TaskHook")
            _check_name(hook.name, "task hook", task_names)
            _check_places(hook)
            task_names.add(hook.name)
        for alloc_hook in made.alloc_hooks:
            if not isinstance(alloc_hook, AllocHookOf):
                raise TypeError(f"{alloc_hook!r} is not an allocation hook; derive its class from AllocHook")
            _check_name(alloc_hook.name, "allocation hook", alloc_names)
            _check_places(alloc_hook)
            alloc_names.add(alloc_hook.name)
        try:
            order(TASK_HOOKS, (*self._task_hooks.values(), *made.task_hooks))
            order(ALLOC_HOOKS, (*self._alloc_hooks.values(), *made.alloc_hooks))
        except Invalid as error:
            raise ValueError(str(error)) from None

    def _check_service_providers(self, providers: Sequence[ServiceProvider]) -> None:
        """Check service providers: their type, and that their names are free."""
        names = {NOMAD, *self._service_providers}
        for provider in providers:
            if not isinstance(provider, ServiceProvider):
                raise TypeError(missing_members_text(provider, ServiceProvider, "service provider"))
            _check_name(provider.name, "service provider", names)
            names.add(provider.name)

    def _check_fingerprints(self, fingerprints: Sequence[NodeFingerprint]) -> None:
        """Check fingerprints: their type, and that their names are free and not reserved for Yurt's attributes."""
        names = {*RESERVED, *self._fingerprints}
        for fingerprint in fingerprints:
            if not isinstance(fingerprint, NodeFingerprint):
                raise TypeError(missing_members_text(fingerprint, NodeFingerprint, "fingerprint"))
            _check_name(fingerprint.name, "fingerprint", names)
            names.add(fingerprint.name)

    def _check_artifact_getters(self, getters: Sequence[ArtifactGetter]) -> None:
        """Check artifact getters: their type and declaration, and that their names are free."""
        names = set(self._artifact_getters)
        for getter in getters:
            if not isinstance(getter, ArtifactGetter):
                raise TypeError(f"{getter!r} is not an artifact getter; make a yurt.sdk.artifacts.ArtifactGetter")
            if problem := artifact_problem_of(getter):
                raise ValueError(problem)
            _check_name(getter.name, "artifact getter", names)
            names.add(getter.name)

    async def close(self) -> None:
        """Close every part of every plugin; one that fails or hangs does not keep the others open."""
        hooks = (self._task_hooks, self._alloc_hooks)
        others = (self._service_providers, self._fingerprints, self._log_engines)
        tables = (self._drivers, self._devices, self._providers, *hooks, *others)
        for each in (*(part for table in tables for part in table.values()), *self._replaced):
            await _close(each)
        for table in tables:
            table.clear()
        self._artifact_getters.clear()
        self._replaced.clear()


async def _close(part: Part) -> None:
    """Close a part of a plugin, within a bound; a failure is logged."""

    async def close() -> None:
        await part.close()  # in a coroutine of ours: a part may raise before it gives one

    closing = asyncio.ensure_future(close())  # noqa: TID251 - awaited, or cancelled below
    if not (await asyncio.wait({closing}, timeout=CLOSE_LIMIT_S))[0]:
        closing.cancel()
        log.error("plugin part does not close: limit_s=%g name=%s", CLOSE_LIMIT_S, part.name)
    elif not closing.cancelled() and (error := closing.exception()) is not None:
        log.error("plugin part failed to close: name=%s", part.name, exc_info=error)


def make_parts(entry_point: EntryPoint, context: PluginContext) -> MadePlugin:
    """Import a plugin, check its functions and call them to create its parts."""
    functions = functions_of(entry_point)

    def parts(name: str) -> tuple[Any, ...]:
        """The parts that the plugin function of this name makes."""
        return tuple(each for found in getattr(functions, name)(context=context) for each in found or ())

    return MadePlugin(
        drivers=parts("yurt_task_drivers"),
        devices=parts("yurt_device_plugins"),
        providers=parts("yurt_template_providers"),
        task_hooks=parts("yurt_task_hooks"),
        alloc_hooks=parts("yurt_alloc_hooks"),
        service_providers=parts("yurt_service_providers"),
        fingerprints=parts("yurt_fingerprints"),
        artifact_getters=parts("yurt_artifact_getters"),
        log_engines=parts("yurt_log_engines"),
    )


def options_of(entry_point: EntryPoint) -> type[msgspec.Struct] | None:
    """The struct of a plugin's block in the agent's configuration; None when the plugin does not declare it."""
    found: type[msgspec.Struct] | None = functions_of(entry_point).yurt_plugin_config()
    return found


def functions_of(entry_point: EntryPoint) -> pluggy.HookRelay:
    """Import a plugin, check the names of its plugin functions, and return them."""
    manager = pluggy.PluginManager(declarations.PROJECT)
    manager.add_hookspecs(declarations)
    manager.register(entry_point.load(), name=entry_point.name)
    manager.check_pending()
    return manager.hook


def check_log_engines(engines: Sequence[LogEngine], plugin: str) -> None:
    """Check log engines: their type and name. A server finds its engine by the plugin's name, so the two are equal."""
    for engine in engines:
        if not isinstance(engine, LogEngine):
            raise TypeError(missing_members_text(engine, LogEngine, "log engine"))
        if engine.name != plugin or engine.name in OWN_ENGINES:
            raise ValueError(
                f'the log engine "{engine.name}" must have the name of its plugin, "{plugin}", and its own'
            )


def make_log_engine(name: str, context: PluginContext) -> LogEngine:
    """The log engine of the plugin of that name; raises Invalid with the reason when there is none."""
    found = [each for each in entry_points(group=declarations.ENTRY_POINT_GROUP) if each.name == name]
    if not found:
        raise Invalid(f'server raft_logstore.backend: unknown log engine "{name}": no plugin of that name is installed')
    try:
        with reported_failures(name):
            engines: tuple[LogEngine, ...] = tuple(
                each for made in functions_of(found[0]).yurt_log_engines(context=context) for each in made or ()
            )
            check_log_engines(engines, name)
    except (declarations.PluginSkipped, PluginFailed) as error:
        raise Invalid(f'server raft_logstore.backend: the plugin "{name}" offers no log engine: {error}') from None
    if not engines:
        raise Invalid(f'server raft_logstore.backend: the plugin "{name}" offers no log engine')
    return engines[0]


def missing_members_text(made: object, protocol: type, kind: str) -> str:
    """The members of a protocol that an object lacks, as text."""
    members = {name for name in protocol.__dict__ if not name.startswith("_")} | set(protocol.__annotations__)
    missing = ", ".join(sorted(name for name in members if not hasattr(made, name)))
    return f"{type(made).__name__} is not a {kind}: it lacks {missing}"


def describe(error: BaseException) -> str:
    """A failure in one line for an operator."""
    if isinstance(error, ModuleNotFoundError):
        return f"cannot be imported: {error}; install what it needs"
    text = " ".join(str(error).split()) or type(error).__name__
    return text if isinstance(error, ValueError | TypeError) else f"{type(error).__name__}: {text}"


def _check_places(hook: OrderedHook) -> None:
    """Check that `after` and `before` are tuples of names: a string would be read letter by letter."""
    places: tuple[tuple[str, object], ...] = (("after", hook.after), ("before", hook.before))
    for field, names in places:
        if not isinstance(names, tuple | list) or not all(isinstance(name, str) for name in names):
            raise TypeError(f'{field} of the hook "{hook.name}" must be a tuple of names, for example ("templates",)')


def _check_name(name: str, kind: str, names_in_use: Collection[str]) -> None:
    """Check that a part's name is valid and free."""
    if not PLUGIN_NAME.fullmatch(name):
        raise ValueError(f'"{name}" is not a valid name for a {kind}; use letters, digits, - and _')
    if name in names_in_use:
        raise ValueError(f'the {kind} name "{name}" is taken; uninstall one of the two plugins')
