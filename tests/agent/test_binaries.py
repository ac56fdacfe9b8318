"""Binaries and packages in one table: who has a name, and what the list of plugins says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from yurt.agent.binaries import Binaries, plugin_folder
from yurt.agent.config import make_config
from yurt.agent.data_dir import AgentDataDir
from yurt.goplugin.driver import BinaryDriver, DriverFacts
from yurt.goplugin.hclspec import spec_from_schema
from yurt.goplugin.host import LoadedBinary
from yurt.goplugin.plugin import BinaryPlugin
from yurt.goplugin.process import PluginSpec
from yurt.plugins.manager import FAILED, OK, SKIPPED, LoadedPlugins, PluginStatus
from yurt.runtime.env import RealEnv
from yurt.sdk.driver import Capabilities
from yurt.sdk.schema import Schema
from yurt.storage.data_dir import DataDir as OwnedFolder


def loaded(file: str, driver: str, folder: Path) -> LoadedBinary:
    """A binary that offers a driver; its process is not needed here."""
    plugin = BinaryPlugin(PluginSpec(name=file, path=f"/plugins/{file}", folder=str(folder)), RealEnv())
    facts = DriverFacts(driver, spec_from_schema(Schema()), Capabilities())
    return LoadedBinary(
        name=file, path=f"/plugins/{file}", version="v1.2", driver=BinaryDriver(plugin, RealEnv(), facts), label=file
    )


async def test_a_binary_has_the_name_that_a_package_has_too(tmp_path: Path) -> None:
    binaries = Binaries((loaded("nomad-driver-podman", "podman", tmp_path),))
    packages = LoadedPlugins(
        drivers={"podman": binaries.loaded[0].driver, "mock_driver": binaries.loaded[0].driver},
        statuses=(
            PluginStatus(name="podman", state=OK, drivers=("podman",)),
            PluginStatus(name="mock", state=OK, drivers=("mock_driver",)),
        ),
    )
    merged = binaries.merged(packages)
    assert merged.drivers["podman"] is binaries.loaded[0].driver
    package, mock, binary = merged.statuses
    assert (package.state, package.drivers, "plugin_dir" in package.reason) == (SKIPPED, (), True)
    assert (mock.state, mock.drivers) == (OK, ("mock_driver",))
    assert (binary.name, binary.version, binary.drivers) == ("nomad-driver-podman", "1.2", ("podman",))
    assert binary.distribution == "/plugins/nomad-driver-podman"
    assert binaries.labels == {"nomad-driver-podman"}
    await binaries.close()


async def test_of_two_binaries_with_one_driver_the_second_is_refused(tmp_path: Path) -> None:
    binaries = Binaries((loaded("a", "twice", tmp_path / "a"), loaded("b", "twice", tmp_path / "b")))
    merged = binaries.merged(LoadedPlugins())
    assert merged.drivers == {"twice": binaries.loaded[0].driver}
    assert [status.state for status in merged.statuses] == [OK, FAILED]
    assert "taken by another binary" in merged.statuses[1].reason
    await binaries.close()


def test_a_binary_that_failed_says_why() -> None:
    [status] = Binaries((LoadedBinary(name="x", path="/x", failure="it hangs"),)).merged(LoadedPlugins()).statuses
    assert (status.state, status.reason) == (FAILED, "it hangs")


def test_plugin_dir_is_given_or_lies_in_the_data_directory(tmp_path: Path) -> None:
    def folder_of(data: dict[str, Any], *, is_dev: bool = False) -> Path | None:
        config = make_config(data, {}, is_dev=is_dev)
        owned = OwnedFolder(tmp_path)
        directory = AgentDataDir(tmp_path, is_temporary=False, owned=owned)
        owned.close()
        return plugin_folder(config, directory)

    base = {"server": {"enabled": True}, "client": {"enabled": True}, "data_dir": str(tmp_path)}
    assert folder_of(base) == tmp_path / "plugins"
    assert folder_of({**base, "plugin_dir": "/opt/plugins"}) == Path("/opt/plugins")
    assert folder_of({}, is_dev=True) is None
