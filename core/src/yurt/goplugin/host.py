"""Finds the binaries of `plugin_dir`, starts all at the same time, and returns each as a driver or a device plugin.

A binary that cannot be started, is not a plugin or hangs gets a status with the reason; the others are loaded all the
same. The agent waits for each at most for the time limit of a handshake.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from yurt.goplugin.device import BinaryDevice
from yurt.goplugin.driver import BinaryDriver, ask_facts
from yurt.goplugin.plugin import BinaryPlugin
from yurt.goplugin.process import PluginSpec
from yurt.runtime.env import Env
from yurt.sdk.errors import YurtError
from yurt.sdk.value import Value, no_entries
from yurt.structs.node import ProcessorTopology

log = logging.getLogger(__name__)

LOAD_LIMIT_S = 10.0
COMMON_PREFIX = "nomad-driver-"
GRPC_LOG = "grpc"


class BinarySettings(Value, rename=None):
    """The agent's settings for binaries: plugin folder, state folder, configurations and arguments."""

    plugin_dir: str
    state_dir: str
    is_dev: bool = False
    is_encrypted: bool = False
    ports: tuple[int, int] = (14000, 14512)
    configs: Mapping[str, Mapping[str, Any]] = no_entries()
    args: Mapping[str, tuple[str, ...]] = no_entries()
    load_limit_s: float = LOAD_LIMIT_S
    inherited: tuple[str, ...] = ()
    topology: ProcessorTopology | None = None


class LoadedBinary(Value, rename=None):
    """A loaded binary: its driver or device plugin, or the reason for its failure. `label`: that of its block."""

    name: str
    path: str
    version: str = ""
    label: str = ""
    driver: BinaryDriver | None = None
    device: BinaryDevice | None = None
    failure: str = ""


def find_binaries(folder: str) -> list[Path]:
    """The executables in a folder, in the order of their names; hidden ones are left out."""
    try:
        entries = sorted(Path(folder).iterdir())
    except OSError:
        return []
    return [path for path in entries if path.is_file() and os.access(path, os.X_OK) and not path.name.startswith(".")]


async def load_binaries(settings: BinarySettings, env: Env) -> tuple[LoadedBinary, ...]:
    """Start every binary; each yields a driver, a device plugin or the reason for its failure."""
    logging.getLogger(GRPC_LOG).setLevel(logging.WARNING)
    async with asyncio.TaskGroup() as group:
        loading = [group.create_task(load_binary(path, settings, env)) for path in find_binaries(settings.plugin_dir)]
    return tuple(task.result() for task in loading)


async def load_binary(path: Path, settings: BinarySettings, env: Env) -> LoadedBinary:
    """Start one binary."""
    name = path.name.removesuffix(".exe")
    label = next((each for each in (name, name.removeprefix(COMMON_PREFIX)) if each in settings.configs), "")
    found = LoadedBinary(name=name, path=str(path), label=label)
    plugin = BinaryPlugin(
        PluginSpec(
            name=name,
            path=str(path),
            folder=f"{settings.state_dir}/{name}",
            args=settings.args.get(label, ()),
            config=settings.configs.get(label, {}),
            is_dev=settings.is_dev,
            is_encrypted=settings.is_encrypted,
            ports=settings.ports,
            handshake_limit_s=settings.load_limit_s,
            inherited=settings.inherited,
            topology=settings.topology,
        ),
        env,
    )
    try:
        async with asyncio.timeout(settings.load_limit_s * 2):
            await plugin.connect()
            facts = await ask_facts(plugin) if plugin.facts.kind == "driver" else None
    except (YurtError, TimeoutError) as error:
        await plugin.close(keeps_process=False)
        reason = str(error) or f"it did not answer within {settings.load_limit_s * 2:g} s and was killed"
        log.warning("plugin %s failed: %s", name, reason)
        return LoadedBinary(name=name, path=str(path), label=label, failure=reason)
    return LoadedBinary(
        name=name,
        path=found.path,
        label=label,
        version=plugin.facts.version,
        driver=BinaryDriver(plugin, env, facts) if facts else None,
        device=None if facts else BinaryDevice(plugin, env),
    )
