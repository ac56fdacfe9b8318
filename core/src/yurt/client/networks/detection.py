"""Detects the networks that this machine can offer to groups, and the reasons why others are missing.

Blocking parts are named. The attributes `plugins.cni.version.<name>` are Nomad's. For a plugin without a version,
such as those of Debian's package, the value is the newest version of the CNI specification that it supports.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from yurt.client.networks.bridge import BRIDGE, IPTABLES, NFTABLES, bridge_network
from yurt.client.networks.cni import NetworkConfig, read_config
from yurt.client.networks.namespaces import bridge_obstacle, obstacle
from yurt.client.networks.plugins import SBIN, find_program, run_program
from yurt.client.networks.settings import NetworkSettings
from yurt.sdk.errors import Invalid, RecoverableError
from yurt.sdk.trust import distrust
from yurt.sdk.value import Value, no_entries

ATTRIBUTE = "plugins.cni.version."
CONFIG_SUFFIXES = (".conflist", ".conf", ".json")
NFTABLES_WITH = "1.1.0"
"""The version of the CNI specification whose plugins support nftables, since their release 1.6."""
EVERY_MODE = "all"
PROBE_LIMIT_S = 5.0
PROBES_AT_ONCE = 4
CONFIG_BYTES_MAX = 1 << 20
PLUGINS_MAX = 200
VERSION = re.compile(r"plugin\s+v?(\d+\.\d+\.\d+\S*)")
PROTOCOLS = re.compile(r"supported:\s*([\d., ]+)")
INSTALL = "apt install containernetworking-plugins, or unpack their release into /opt/cni/bin"


class Offered(Value):
    """Networks by mode, attributes of the node, and problems as (mode, reason)."""

    networks: Mapping[str, NetworkConfig] = no_entries()
    has_namespaces: bool = False
    attributes: Mapping[str, str] = no_entries()
    problems: tuple[tuple[str, str], ...] = ()

    def why_not(self, mode: str) -> str:
        """The reason why a mode is not offered."""
        reasons = dict(self.problems)
        names = ", ".join(sorted(self.networks)) or "none"
        return reasons.get(mode) or reasons.get(EVERY_MODE) or f"no CNI configuration has this name; there are: {names}"


def folders_mark(settings: NetworkSettings) -> tuple[tuple[str, int, int], ...]:
    """A value that changes when the files in the CNI folders change. Blocking."""
    found: list[tuple[str, int, int]] = []
    for folder in (*settings.cni_paths, settings.cni_config_dir):
        try:
            with os.scandir(folder) as entries:
                stats = [(entry.path, entry.stat()) for entry in entries]
        except OSError:
            continue
        found += [(path, stat.st_mtime_ns, stat.st_size) for path, stat in stats]
    return tuple(sorted(found))


async def find_offered(settings: NetworkSettings) -> Offered:
    """Detect networks by asking the kernel and the plugins."""
    reason = await asyncio.to_thread(obstacle)
    if reason:
        text = f"no network namespace can be made here: {reason}; run the agent as root on Linux"
        return Offered(problems=((EVERY_MODE, text),))
    versions = await _version_texts(settings.cni_paths)
    problems: list[tuple[str, str]] = []
    networks: dict[str, NetworkConfig] = {}
    backend = packet_filter(supports_nftables=NFTABLES_WITH in reported_protocols(versions.get("portmap", "")))
    bridge = bridge_network(settings, backend=backend or IPTABLES)
    reason = await asyncio.to_thread(_bridge_problem, settings, bridge, backend)
    if reason:
        problems.append((BRIDGE, reason))
    else:
        networks[BRIDGE] = bridge
    found, broken = await asyncio.to_thread(_read_configs, settings)
    problems += broken
    for config in found:
        mode = f"cni/{config.name}"
        reason = _missing_programs(config, settings.cni_paths)
        if reason:
            problems.append((mode, reason))
        else:
            networks.setdefault(mode, config)
    plugins = {name: reported_version(text) for name, text in versions.items()}
    attributes = {f"{ATTRIBUTE}{name}": version for name, version in plugins.items() if version}
    attributes["nomad.bridge.hairpin_mode"] = "true" if settings.bridge_hairpin_mode else "false"
    return Offered(networks=networks, has_namespaces=True, attributes=attributes, problems=tuple(problems))


def packet_filter(*, supports_nftables: bool) -> str:
    """The packet filter for the bridge's plugins: iptables if installed, else nftables if supported, or ""."""
    search = f"{os.environ.get('PATH', '')}:{SBIN}"
    if shutil.which("iptables", path=search):
        return IPTABLES
    return NFTABLES if supports_nftables and shutil.which("nft", path=search) else ""


def _bridge_problem(settings: NetworkSettings, bridge: NetworkConfig, backend: str) -> str:
    missing = _missing_programs(bridge, settings.cni_paths)
    if missing:
        return missing
    if not backend:
        return "neither iptables nor (with CNI plugins from 1.6 on) nft is on PATH; apt install iptables"
    reason = bridge_obstacle()
    return f"the kernel makes no bridge: {reason}; load its module: modprobe bridge" if reason else ""


def _missing_programs(config: NetworkConfig, paths: Sequence[str]) -> str:
    missing = [name for name in config.programs if not find_program(name, paths)]
    if not missing:
        refused = next(filter(None, (distrust(find_program(name, paths)) for name in config.programs)), "")
        return f"a CNI plugin is refused: {refused}" if refused else ""
    return f"CNI plugins {', '.join(missing)} are in none of the folders {', '.join(paths)}; {INSTALL}"


def _read_configs(settings: NetworkSettings) -> tuple[list[NetworkConfig], list[tuple[str, str]]]:
    """The operator's networks by file name, and the problems of invalid files; blocking."""
    found: list[NetworkConfig] = []
    problems: list[tuple[str, str]] = []
    try:
        names = sorted(os.listdir(settings.cni_config_dir))
    except OSError:
        return [], []
    for name in names:
        path = Path(settings.cni_config_dir) / name
        if path.suffix not in CONFIG_SUFFIXES or not path.is_file():
            continue
        try:
            with path.open("rb") as file:
                found.append(read_config(file.read(CONFIG_BYTES_MAX), str(path)))
        except (OSError, Invalid) as error:
            problems.append((f"cni/{path.stem}", str(error)))
    return found, problems


async def _version_texts(paths: Sequence[str]) -> dict[str, str]:
    """The version texts of all plugins in the folders."""
    programs = await asyncio.to_thread(_programs, paths)
    limit = asyncio.Semaphore(PROBES_AT_ONCE)

    async def ask(program: str) -> str:
        async with limit:
            try:
                _, output, errors = await run_program(program, b"", {}, arguments=("--version",), limit_s=PROBE_LIMIT_S)
            except RecoverableError:
                return ""
        return (output + errors).decode(errors="replace")

    answers = await asyncio.gather(*(ask(program) for program in programs.values()))
    return dict(zip(programs, answers, strict=True))


def _programs(paths: Sequence[str]) -> dict[str, str]:
    """Plugins by name; the first folder that has one counts."""
    found: dict[str, str] = {}
    for folder in paths:
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            continue
        for name in names:
            path = os.path.join(folder, name)
            if os.path.isfile(path) and os.access(path, os.X_OK) and not distrust(path):
                found.setdefault(name, path)
    return dict(sorted(found.items())[:PLUGINS_MAX])


def reported_version(text: str) -> str:
    """The version in a text such as "CNI bridge plugin v1.5.1"; for an unknown version the newest protocol."""
    own = VERSION.search(text)
    if own is not None:
        return f"v{own.group(1)}"
    spoken = reported_protocols(text)
    return f"v{spoken[-1]}" if spoken else ""


def reported_protocols(text: str) -> list[str]:
    """The versions of the specification that a plugin supports."""
    spoken = PROTOCOLS.search(text)
    return [part.strip() for part in spoken.group(1).split(",") if part.strip()] if spoken else []
