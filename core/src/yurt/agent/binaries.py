"""Joins binaries of `plugin_dir` and plugins that are Python packages in one table of drivers and one list of statuses.

An operator puts a binary into that folder on purpose: it takes precedence over a package's driver of the same name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yurt.agent.component_configs import client_folder
from yurt.agent.config import AgentConfig
from yurt.agent.data_dir import AgentDataDir
from yurt.plugins.manager import FAILED, OK, PLUGIN_NAME, SKIPPED, LoadedPlugins, PluginStatus
from yurt.runtime.env import Env
from yurt.sdk.device import DevicePlugin
from yurt.sdk.driver import Driver
from yurt.sdk.value import replace

if TYPE_CHECKING:
    from yurt.goplugin.host import LoadedBinary
    from yurt.structs.node import ProcessorTopology

log = logging.getLogger(__name__)

MTLS_OPTION = "plugin.mtls"
ENV_OPTION = "plugin.env.allowlist"


class Binaries:
    """The binaries that were loaded; closed with the agent."""

    def __init__(self, loaded: tuple[LoadedBinary, ...] = ()) -> None:
        self.loaded = loaded

    @property
    def labels(self) -> frozenset[str]:
        """Labels of configurations that are for binaries."""
        return frozenset(each.label for each in self.loaded if each.label)

    async def close(self) -> None:
        """Disconnect from each binary; those with tasks continue, except in dev mode."""
        for each in self.loaded:
            for part in (each.driver, each.device):
                if part is not None:
                    await part.close()

    def merged(self, packages: LoadedPlugins, *, refusal: Callable[[str], str] = lambda _: "") -> LoadedPlugins:
        """Both kinds combined; `refusal` says why a driver of a name may not be used."""
        drivers: dict[str, Driver] = {}
        devices: dict[str, DevicePlugin] = {}
        statuses: list[PluginStatus] = []
        for each in self.loaded:
            part = each.driver or each.device
            name = part.name if part else ""
            problem = each.failure
            if part and (name in drivers or name in devices or not PLUGIN_NAME.fullmatch(name)):
                problem = f'the name "{name}" is taken by another binary, or is none; remove one of the two'
            elif each.driver and (reason := refusal(name)):
                problem = f"driver {name}: {reason}"
            elif each.driver:
                drivers[name] = each.driver
            elif each.device:
                devices[name] = each.device
            statuses.append(status_of(each, problem))
        owned = {**drivers, **devices}
        return replace(
            packages,
            drivers={**packages.drivers, **drivers},
            devices={**packages.devices, **devices},
            statuses=(*(without(status, owned) for status in packages.statuses), *statuses),
        )


def status_of(binary: LoadedBinary, problem: str) -> PluginStatus:
    """The status of a binary; its path takes the place of a package."""
    return PluginStatus(
        name=binary.name,
        state=FAILED if problem else OK,
        reason=problem,
        distribution=binary.path,
        version=binary.version.removeprefix("v"),
        drivers=(binary.driver.name,) if binary.driver and not problem else (),
        devices=(binary.device.name,) if binary.device and not problem else (),
    )


def without(status: PluginStatus, owned: Mapping[str, Any]) -> PluginStatus:
    """The status of a package whose driver or devices a binary has taken over."""
    drivers = tuple(name for name in status.drivers if name not in owned)
    devices = tuple(name for name in status.devices if name not in owned)
    if status.state != OK or (drivers, devices) == (status.drivers, status.devices):
        return status
    taken = sorted((set(status.drivers) | set(status.devices)) & set(owned))
    reason = f"a binary in plugin_dir offers {', '.join(taken)}"
    log.info("plugin %s: %s", status.name, reason)
    return replace(status, drivers=drivers, devices=devices, reason=reason, state=status.state if drivers else SKIPPED)


def plugin_folder(config: AgentConfig, data: AgentDataDir) -> Path | None:
    """The folder of binaries: `plugin_dir`, else `plugins` in the data directory; a dev agent needs the setting."""
    if config.plugin_dir:
        return Path(config.plugin_dir)
    return None if config.is_dev else data.root / "plugins"


def _topology(total_mhz: int) -> ProcessorTopology:
    from yurt.client.fingerprint.host import cpu_facts
    from yurt.client.fingerprint.topology import topology_of

    return topology_of(cpu_facts(total_mhz), override_mhz=total_mhz)


async def load(config: AgentConfig, data: AgentDataDir, env: Env) -> Binaries:
    """Start the binaries, if there are any; gRPC is imported only then."""
    folder = plugin_folder(config, data)
    if folder is None or not folder.is_dir() or not any(folder.iterdir()):
        return Binaries()
    from yurt.goplugin.host import BinarySettings, load_binaries

    options = config.client.get("options", {})
    settings = BinarySettings(
        plugin_dir=str(folder),
        state_dir=str(client_folder(config, data) / "binaries"),
        is_dev=config.is_dev,
        is_encrypted=str(options.get(MTLS_OPTION, "")).lower() in ("1", "true"),
        ports=config.plugin_ports,
        configs=config.plugins,
        args=config.plugin_args,
        inherited=tuple(filter(None, (name.strip() for name in str(options.get(ENV_OPTION, "")).split(",")))),
        topology=await env.in_thread(partial(_topology, int(config.client.get("cpu_total_compute") or 0))),
    )
    return Binaries(await load_binaries(settings, env))
