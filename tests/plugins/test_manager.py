"""Plugins are loaded apart: whatever one does, the others are there and it has a status."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from yurt.plugins import LoadedPlugins, PluginManager
from yurt.sdk.driver import PluginContext

GOOD = """
from yurt.sdk.plugin import plugin_function
from yurt_driver_mock.config import PluginOptions
from yurt_driver_mock.driver import MockDriver

class Mine(MockDriver):
    name = "{name}"
    closed = False
    async def close(self):
        Mine.closed = True
        {close}

@plugin_function
def yurt_task_drivers(context):
    return [Mine(PluginOptions())]
"""
SKIPPED = """
from yurt.sdk.plugin import PluginSkipped, plugin_function
@plugin_function
def yurt_task_drivers(context):
    raise PluginSkipped("no socket at /run/engine.sock")
"""
PROVIDER = """
from yurt.sdk.plugin import plugin_function
from yurt.sdk.templates import TemplateAnswer
class Provider:
    name = "{name}"
    functions = {functions}
    def __init__(self, config):
        self.config = config
    async def watch(self, ask):
        yield TemplateAnswer(data=ask.function)
    async def close(self):
        pass
@plugin_function
def yurt_template_providers(context):
    return [Provider(context.config)]
"""


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder whose modules can be imported as plugins."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("plugin_")]:
        del sys.modules[name]


def manager_of(folder: Path, **sources: str) -> PluginManager:
    """A manager that finds these modules as plugins."""
    for name, source in sources.items():
        (folder / f"plugin_{name}.py").write_text(source)
    return PluginManager([EntryPoint(name, f"plugin_{name}", "yurt.plugins.v1") for name in sources])


def load(folder: Path, **sources: str) -> LoadedPlugins:
    """Load these modules as plugins."""
    return manager_of(folder, **sources).load(lambda name: PluginContext())


def good(name: str, close: str = "pass") -> str:
    """A plugin that offers one driver."""
    return GOOD.format(name=name, close=close)


async def test_a_good_plugin_offers_its_drivers(plugins: Path) -> None:
    loaded = load(plugins, a=good("one"))
    assert list(loaded.drivers) == ["one"]
    assert [(status.state, status.drivers) for status in loaded.statuses] == [("ok", ("one",))]


@pytest.mark.parametrize(
    ("source", "state", "reason"),
    [
        ("import no_such_library", "failed", "no_such_library"),
        ("raise RuntimeError('broken at import')", "failed", "broken at import"),
        ("import sys; sys.exit(3)", "failed", "3"),
        ("x = = 1", "failed", "SyntaxError"),
        (good("one").replace("def yurt_task_drivers", "def yurt_task_driver"), "failed", "yurt_task_driver"),
        (good("one").replace("(context)", "(contxt)"), "failed", "contxt"),
        (good("one").replace("[Mine(PluginOptions())]", "[object()]"), "failed", "lacks capabilities"),
        (good("bad name!"), "failed", "not a valid name for a driver"),
        (good("one").replace("[Mine(PluginOptions())]", "1 / 0"), "failed", "division by zero"),
        (SKIPPED, "skipped", "no socket at /run/engine.sock"),
        ("", "skipped", "offers nothing"),
    ],
)
async def test_a_plugin_that_cannot_be_used_has_a_reason_and_stops_no_other(
    plugins: Path, source: str, state: str, reason: str
) -> None:
    loaded = load(plugins, a=source, b=good("two"))
    assert list(loaded.drivers) == ["two"]
    assert loaded.statuses[0].state == state
    assert reason in loaded.statuses[0].reason
    assert "Traceback" not in loaded.statuses[0].reason


async def test_the_second_owner_of_a_driver_name_is_refused(plugins: Path) -> None:
    loaded = load(plugins, b=good("same"), a=good("same"))
    assert [(status.name, status.state) for status in loaded.statuses] == [("a", "ok"), ("b", "failed")]
    assert 'the driver name "same" is taken' in loaded.statuses[1].reason


async def test_a_context_is_made_for_each_plugin_by_name(plugins: Path) -> None:
    contexts = {"a": PluginContext(options={"x": "1"}), "b": PluginContext()}
    source = good("one").replace("    return [Mine", "    assert context.options == {'x': '1'}\n    return [Mine")
    loaded = manager_of(plugins, a=source, b=good("two")).load(contexts.__getitem__)
    assert list(loaded.drivers) == ["one", "two"]


@pytest.mark.parametrize("label", ["mock", "mock_driver"])
async def test_a_configuration_may_be_named_after_the_plugin_or_its_driver(label: str) -> None:
    manager = PluginManager()

    loaded = manager.load(lambda name: PluginContext(dev=True), configs={label: {"fs_isolation": "image"}})

    assert loaded.drivers["mock_driver"].capabilities.fs_isolation == "image"
    assert loaded.unused == ()
    await manager.close()


async def test_a_driver_made_again_for_its_configuration_is_closed_both_times(plugins: Path) -> None:
    counted = good("one").replace("closed = False", "count = 0").replace("Mine.closed = True", "Mine.count += 1")
    manager = manager_of(plugins, a=counted)

    loaded = manager.load(lambda name: PluginContext(), configs={"one": {}})
    await manager.close()

    assert loaded.drivers["one"].count == 2  # type: ignore[attr-defined]


async def test_a_driver_that_does_not_close_keeps_no_other_open(
    plugins: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("yurt.plugins.manager.CLOSE_LIMIT_S", 0.05)
    hangs = good("one", close="import asyncio; await asyncio.Event().wait()")
    manager = manager_of(plugins, a=hangs, b=good("two"))

    loaded = manager.load(lambda name: PluginContext())
    async with asyncio.timeout(30):
        await manager.close()

    assert loaded.drivers["two"].closed  # type: ignore[attr-defined]
    assert "plugin part does not close: limit_s=0.05 name=one" in caplog.text


async def test_a_configuration_for_nobody_is_told_with_the_nearest_name(plugins: Path) -> None:
    sources = {"a": good("docker"), "b": SKIPPED}

    loaded = manager_of(plugins, **sources).load(
        lambda name: PluginContext(), configs={"dokcer": {}, "zzz": {}, "b": {}}
    )

    assert loaded.unused == ("dokcer", "zzz")
    assert loaded.unused_text("dokcer").endswith('no plugin or driver of that name; did you mean "docker"?')
    assert loaded.unused_text("zzz").endswith("installed are: a, b, docker")


async def test_statuses_become_node_attributes(plugins: Path) -> None:
    attributes = load(plugins, a=good("one"), b=SKIPPED).attributes()
    assert attributes["plugin.a.status"] == "ok"
    assert attributes["plugin.b.reason"] == "no socket at /run/engine.sock"


@pytest.mark.parametrize("kind", ["async def close", "def close"])
async def test_one_that_fails_to_close_keeps_no_other_open(plugins: Path, kind: str) -> None:
    broken = good("one", close="raise RuntimeError('stuck')").replace("async def close", kind)
    manager = manager_of(plugins, a=broken, b=good("two"))
    loaded = manager.load(lambda name: PluginContext())
    await manager.close()
    assert [driver.closed for driver in loaded.drivers.values()] == [True, True]  # type: ignore[attr-defined]


async def test_the_installed_drivers_are_found_by_their_entry_points() -> None:
    manager = PluginManager()
    loaded = manager.load(lambda name: PluginContext(dev=True))
    statuses = {status.name: status for status in loaded.statuses}
    assert statuses["raw_exec"].drivers == ("raw_exec",)
    assert statuses["mock"].drivers == ("mock_driver",)
    assert statuses["mock"].distribution == "yurt-driver-mock"
    assert statuses["mock"].version
    await manager.close()


DEVICES = """
from yurt.sdk.plugin import plugin_function
from yurt.testing.fake_devices import FakeDevices

@plugin_function
def yurt_device_plugins(context):
    made = FakeDevices(*context.config.get("ids", ()), name="{name}")
    {change}
    return [made]
"""


def devices(name: str, change: str = "pass") -> str:
    """A plugin that offers devices."""
    return DEVICES.format(name=name, change=change)


def test_device_plugins_are_loaded_as_drivers_are_and_configured_by_their_name(plugins: Path) -> None:
    manager = manager_of(plugins, one=devices("fpga"), two=good("two"))
    loaded = manager.load(lambda name: PluginContext(), configs={"fpga": {"ids": ["f0"]}})

    assert (list(loaded.devices), list(loaded.drivers)) == (["fpga"], ["two"])
    assert loaded.statuses[0].devices == ("fpga",)
    assert loaded.devices["fpga"].ids == ("f0",)  # type: ignore[attr-defined]
    assert loaded.unused == ()


@pytest.mark.parametrize(
    ("source", "word"),
    [
        (devices("same"), "is taken"),
        (devices("bad name"), "is not a valid name"),
        (devices("other", "made = type('Own', (), {'name': 'other'})()"), "lacks close, fingerprint"),
    ],
)
def test_a_device_plugin_that_cannot_be_used_is_refused_alone(plugins: Path, source: str, word: str) -> None:
    loaded = load(plugins, one=devices("same"), two=source)

    assert [status.state for status in loaded.statuses] == ["ok", "failed"]
    assert word in loaded.statuses[1].reason
    assert list(loaded.devices) == ["same"]


def provider(name: str, *functions: str) -> str:
    """A plugin that offers one template provider."""
    return PROVIDER.format(name=name, functions=functions)


async def test_a_template_provider_is_loaded_and_configured_by_its_name(plugins: Path) -> None:
    manager = manager_of(plugins, a=provider("consul", "key", "consul_own"))
    loaded = manager.load(lambda name: PluginContext(), configs={"consul": {"address": "here"}})
    assert [(status.state, status.providers) for status in loaded.statuses] == [("ok", ("consul",))]
    assert loaded.unused == ()
    assert loaded.providers["consul"].config == {"address": "here"}  # type: ignore[attr-defined]
    await manager.close()


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (provider("consul"), "has no functions"),
        (provider("bad name!", "key"), "not a valid name for a template provider"),
        (provider("mine", "env"), 'its name has to begin with "mine_"'),
        (provider("mine", "mine_x-y"), 'its name has to begin with "mine_"'),
        (provider("sprig", "sprig_upper"), "functions of that prefix are taken"),
        (provider("good", "good_two"), 'the template provider name "good" is taken'),
        (provider("mine", "key"), 'the template function "key" is provided by "good" already'),
        (provider("mine", "key").replace("async def watch", "async def see"), "lacks watch"),
    ],
)
async def test_a_template_provider_that_cannot_be_used_is_refused_alone(
    plugins: Path, source: str, reason: str
) -> None:
    loaded = load(plugins, a=provider("good", "key"), b=source)
    assert list(loaded.providers) == ["good"]
    (status,) = [status for status in loaded.statuses if status.name == "b"]
    assert status.state == "failed" and reason in status.reason


def test_a_driver_that_may_not_be_used_is_not_offered_and_its_plugin_says_why(plugins: Path) -> None:
    found = manager_of(plugins, a=good("one"), b=good("two"))._found
    manager = PluginManager(found, refusal=lambda name: "the denylist names it" if name == "two" else "")
    loaded = manager.load(lambda name: PluginContext())
    assert list(loaded.drivers) == ["one"]
    assert [(status.state, status.reason) for status in loaded.statuses] == [
        ("ok", ""),
        ("skipped", "driver two: the denylist names it"),
    ]


HOOKS = """
from yurt.sdk.hooks import AllocHook, TaskHook
from yurt.sdk.plugin import plugin_function

class Mesh(TaskHook):
    name = "{name}"
    after, before = {after!r}, {before!r}

class Quota(AllocHook):
    name = "{name}-quota"

class Directory:
    name = "{provider}"
    async def register(self, services): ...
    async def deregister(self, ids): ...
    async def close(self): ...

@plugin_function
def yurt_task_hooks(context):
    return [{made}]

@plugin_function
def yurt_alloc_hooks(context):
    return [Quota()]

@plugin_function
def yurt_service_providers(context):
    return [Directory()]
"""


def hooks(
    name: str = "mesh",
    *,
    provider: str = "directory",
    after: tuple[str, ...] | str = (),
    before: tuple[str, ...] = (),
    made: str = "Mesh()",
) -> str:
    """A plugin that offers hooks and a service provider."""
    return HOOKS.format(name=name, provider=provider, after=after, before=before, made=made)


def test_hooks_and_service_providers_are_loaded(plugins: Path) -> None:
    loaded = load(plugins, a=hooks())
    (status,) = loaded.statuses
    assert (status.task_hooks, status.alloc_hooks, status.service_providers) == (
        ("mesh",),
        ("mesh-quota",),
        ("directory",),
    )
    assert loaded.task_hooks["mesh"].name == "mesh" and loaded.service_providers["directory"].name == "directory"
    assert loaded.attributes()["service.provider.directory"] == "true"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (hooks("devices"), 'the task hook name "devices" is taken'),
        (hooks("mesh", provider="other"), 'the task hook name "mesh" is taken'),
        (hooks("two"), 'the service provider name "directory" is taken'),
        (hooks("two", provider="nomad"), 'the service provider name "nomad" is taken'),
        (hooks("two", provider="other", made="Mesh"), "is not a task hook"),
        (hooks("two", provider="x", after=("templates",), before=("devices",)), "they stand in the opposite order"),
        (hooks("two", provider="x").replace("deregister", "forget"), "lacks deregister"),
        (hooks("two", provider="x", made="Mesh(), Mesh()"), 'the task hook name "two" is taken'),
        (hooks("two", provider="x").replace("[Quota()]", "[Quota(), Quota()]"), '"two-quota" is taken'),
        (hooks("two", provider="x").replace("[Directory()]", "[Directory(), Directory()]"), '"x" is taken'),
        (hooks("two", provider="x", after="templates"), 'after of the hook "two" must be a tuple of names'),
    ],
)
def test_hooks_that_cannot_be_used_are_refused_alone(plugins: Path, source: str, reason: str) -> None:
    loaded = load(plugins, a=hooks(), b=source)
    assert (list(loaded.task_hooks), list(loaded.service_providers)) == (["mesh"], ["directory"])
    (status,) = [status for status in loaded.statuses if status.name == "b"]
    assert status.state == "failed" and reason in status.reason
