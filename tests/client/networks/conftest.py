"""CNI plugins that write down what they were asked, and networks made with them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from yurt.client.networks import namespaces
from yurt.client.networks.cni import NetworkConfig
from yurt.client.networks.construction import Construction
from yurt.client.networks.detection import Offered
from yurt.client.networks.makers import NamespaceMakers
from yurt.client.networks.manager import Networks
from yurt.client.networks.offers import OfferedNetworks
from yurt.client.networks.records import RecordFolder, owner_of
from yurt.client.networks.settings import NetworkSettings
from yurt.client.node.local_node import LocalNode
from yurt.runtime.env import RealEnv
from yurt.sdk.driver import Driver
from yurt.structs import node as nodes
from yurt.testing.fakes import FakeDriver

AS_ROOT = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="network namespaces take root on Linux"
)
PLUGIN = """#!/bin/sh
folder="$(dirname "$0")"
input="$(cat)"
name="$(basename "$0")"
printf '%s\\t%s\\t%s\\t%s\\t%s\\n' "$name" "$CNI_COMMAND" "$CNI_NETNS" "$CNI_ARGS" "$input" >> "$folder/asked"
if [ "$1" = --version ]; then echo "CNI $name plugin v1.2.3" >&2; exit 0; fi
if [ -e "$folder/fail-$name-$CNI_COMMAND" ]; then
    echo '{"code": 7, "msg": "refused", "details": "by the test"}'
    exit 1
fi
[ "$CNI_COMMAND" != ADD ] || cat "$folder/answer"
"""
ANSWER = {
    "cniVersion": "1.0.0",
    "interfaces": [{"name": "veth1"}, {"name": "eth0", "sandbox": "/run/netns/x"}],
    "ips": [{"address": "10.9.8.7/24", "interface": 1}],
    "dns": {"nameservers": ["10.9.8.53"]},
}


class Plugins:
    """A folder of plugins."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.answer(ANSWER)

    def make(self, *names: str) -> None:
        for name in names:
            (self.folder / name).write_text(PLUGIN)
            (self.folder / name).chmod(0o755)

    def answer(self, result: dict[str, Any]) -> None:
        (self.folder / "answer").write_text(json.dumps(result))

    def fail(self, name: str, command: str) -> Path:
        mark = self.folder / f"fail-{name}-{command}"
        mark.touch()
        return mark

    @property
    def asked(self) -> list[tuple[str, str]]:
        """(plugin, command) of each call."""
        path = self.folder / "asked"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(line.split("\t")[0], line.split("\t")[1]) for line in lines]

    def inputs(self, name: str, command: str) -> list[dict[str, Any]]:
        """What a plugin read."""
        lines = [line.split("\t") for line in (self.folder / "asked").read_text().splitlines()]
        return [json.loads(line[4]) for line in lines if line[:2] == [name, command]]


@pytest.fixture
def plugins(tmp_path: Path) -> Plugins:
    """Two plugins that succeed."""
    made = Plugins(tmp_path / "plugins")
    made.make("first", "second")
    return made


class Node:
    """A machine whose networks outlive its agents."""

    def __init__(self, folder: Path, plugins: Plugins) -> None:
        self.folder, self.plugins = folder, plugins
        self.records = RecordFolder(folder / "run")
        self.driver = FakeDriver()

    def config(self, **changes: Any) -> NetworkConfig:
        second = {"type": "second", "capabilities": {"portMappings": True}}
        return NetworkConfig(**{"name": "net", "version": "1.0.0", "plugins": ({"type": "first"}, second), **changes})

    async def networks(self, *, allocs: tuple[str, ...] = (), drivers: dict[str, Driver] | None = None) -> Networks:
        """The networks of a new agent."""
        settings, env = NetworkSettings(cni_paths=(str(self.plugins.folder),)), RealEnv()

        async def find(settings: NetworkSettings) -> Offered:
            return Offered(networks={"bridge": self.config()}, has_namespaces=True)

        offers = OfferedNetworks(settings, env, node=LocalNode(nodes.Node()), find=find)
        await offers.open()
        makers = NamespaceMakers(drivers if drivers is not None else {self.driver.name: self.driver})
        construction = Construction(settings, env, makers=makers, folder=self.records)
        made = Networks(offers, construction, env, owner=owner_of(str(self.folder), is_dev=False))
        await made.open(set(allocs))
        return made


@pytest.fixture
def node(tmp_path: Path, plugins: Plugins, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    """A machine with a folder of namespaces of its own; afterwards none is left."""
    folder = tmp_path / "netns"
    monkeypatch.setattr(namespaces, "FOLDER", folder)
    yield Node(tmp_path, plugins)
    for path in folder.glob("*") if folder.is_dir() else ():
        if path.is_file():
            namespaces.remove_namespace(path)
    namespaces.remove_folder(folder)
