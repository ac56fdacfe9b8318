"""The start-up screen of an agent: its configuration, the state of its drivers, and the next commands to type."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from yurt.agent.addresses import bracketed, host_of, is_loopback, with_port
from yurt.agent.blocks.cluster import OWN_ETCD
from yurt.agent.config import AgentConfig
from yurt.agent.tls import TlsSettings
from yurt.sdk.value import Value

if TYPE_CHECKING:
    from yurt.agent.dev_token import DevToken

_WIDTH = 18


class DriverLine(Value):
    """A driver on the first screen."""

    name: str
    is_healthy: bool
    reason: str = ""
    is_loaded: bool = True


def loaded_line(files: Sequence[str]) -> str:
    """Which configuration files were read."""
    return f"==> Loaded configuration from {', '.join(files)}" if files else "==> No configuration files loaded"


def configuration_lines(config: AgentConfig, *, version: str, data_dir: str, node_id: str) -> list[str]:
    """Nomad's block of right-aligned facts, sorted."""
    http = ", ".join(f"{address}:{config.http_port}" for address in config.http_addresses)
    advertised = {"HTTP": config.advertise_http, "RPC": config.advertise_rpc}
    bound = {"HTTP": http, "RPC": f"{config.rpc_address}:{config.rpc_port}"}
    if config.is_server and not config.is_dev:
        advertised["Serf"], bound["Serf"] = config.advertise_serf, f"{config.serf_address}:{config.serf_port}"
    if config.is_server and config.cluster.engine == OWN_ETCD:
        advertised["etcd"] = with_port(host_of(config.advertise_serf), config.cluster.etcd_port)
        bound["etcd"] = f"{config.serf_address}:{config.cluster.etcd_port}"
    facts = {
        "Advertise Addrs": "; ".join(f"{name}: {address}" for name, address in advertised.items()),
        "Bind Addrs": "; ".join(f"{name}: {address}" for name, address in bound.items()),
        "Client": str(config.is_client).lower(),
        "Data Dir": f"{data_dir} (removed when the agent stops)" if config.is_dev and not config.data_dir else data_dir,
        "Log Level": config.terminal_log_level,
        "Node Id": node_id or "none",
        "Region": f"{config.region} (DC: {config.datacenter})",
        "Server": str(config.is_server).lower(),
        "Version": version,
    }
    return [
        "==> Yurt agent configuration:",
        "",
        *(f"{name.rjust(_WIDTH)}: {facts[name]}" for name in sorted(facts)),
        "",
    ]


def exposure_lines(config: AgentConfig, tls: TlsSettings) -> list[str]:
    """A warning about ports that other hosts reach without TLS, and the setting that helps; empty without any."""
    ports: list[tuple[str, str, str, int]] = []
    if not tls.http:
        ports += [("http", "HTTP", address, config.http_port) for address in config.http_addresses]
    if not tls.rpc and config.is_server and not config.is_dev:
        ports += [("rpc", "RPC", config.rpc_address, config.rpc_port)]
        ports += [("rpc", "Serf", config.serf_address, config.serf_port)]
    found = [port for port in ports if not is_loopback(port[2])]
    if not found:
        return []
    switches = " and ".join(f"{switch} = true" for switch in dict.fromkeys(switch for switch, *_ in found))
    return [
        "==> WARNING: other hosts can reach this agent, and it speaks to them without TLS:",
        f"      {', '.join(f'{name} {bracketed(address)}:{port}' for _, name, address, port in found)}",
        f"    {_danger(config, switches)}",
        f"    Make certificates (`yurt tls ca create`, `yurt tls cert create`) and set tls {{ {switches} }},",
        '    or let nobody reach it: bind_addr = "127.0.0.1".',
        "",
    ]


def hidden_lines(config: AgentConfig) -> list[str]:
    """Why a server with access control accepts agents of this machine only, and how to let others in."""
    if not config.hides_rpc:
        return []
    return [
        f"==> WARNING: only this machine reaches RPC {config.rpc_address}:{config.rpc_port} and "
        f"Serf {config.serf_address}:{config.serf_port}: with access control",
        "    and without TLS, any host that reaches them could act as a server or a node, whatever the policies say.",
        "    Any process on this machine, of any user, can still act as a server or a node through loopback.",
        "    To let other agents join, make certificates (`yurt tls ca create`, `yurt tls cert create`) and set",
        "    tls { rpc = true }; or, in a trusted network, acl { allow_rpc_without_tls = true }.",
        "",
    ]


def _danger(config: AgentConfig, switches: str) -> str:
    """The risk of the exposed ports, as a sentence."""
    on_the_path = "anyone on the network path can read or alter traffic"
    if not config.has_acl:
        return f"Anyone who can reach these ports can run jobs; {on_the_path}."
    if "rpc" in switches:
        return f"Anyone who can reach the RPC port can act as a server or a node; {on_the_path}, tokens included."
    return f"{on_the_path.capitalize()}, tokens included."


def driver_lines(drivers: Iterable[DriverLine]) -> list[str]:
    """One line per driver; for an unhealthy one, the cause and the fix."""
    found = sorted(drivers, key=lambda driver: (not driver.is_healthy, driver.name))
    if not found:
        return ["==> No task drivers are installed; add one with: pip install 'yurt[raw-exec]'"]
    width = max(len(driver.name) for driver in found)
    lines = ["==> Task drivers:"]
    for driver in found:
        problem = "not usable" if driver.is_loaded else "failed"
        state = "healthy" if driver.is_healthy else f"{problem}: {driver.reason or 'no reason given'}"
        lines.append(f"      {driver.name.ljust(width)}  {state}")
    return lines


def device_lines(plugins: Mapping[str, tuple[bool, str]]) -> list[str]:
    """The devices that plugins report, or why there are none; no line without plugins."""
    width = max(map(len, plugins), default=0)
    rows = [
        f"      {name.ljust(width)}  {text if works else f'none: {text}'}" for name, (works, text) in plugins.items()
    ]
    return ["==> Devices:", *rows] if rows else []


def token_lines(token: DevToken) -> list[str]:
    """The management token of a dev agent, and how to use it."""
    kept = f"kept in {token.kept_at} for the next start" if token.kept_at else "gone when the agent stops"
    return [
        f"==> Access control is on. The management token, {kept}:",
        f"      Accessor ID: {token.accessor_id}",
        f"      Secret ID:   {token.secret_id}",
        "    Requests without a token are refused. In another terminal, before other commands:",
        f"      export NOMAD_TOKEN={token.secret_id}",
    ]


def access_lines() -> list[str]:
    """The credentials that an agent with access control requires of its callers."""
    return [
        "==> Access control is on: requests need a token, which commands take from NOMAD_TOKEN or -token.",
        "    In a new cluster make the first one, a management token, with: yurt acl bootstrap",
    ]


def tls_lines(settings: TlsSettings, region: str) -> list[str]:
    """The files without which commands cannot speak to this agent; no line without TLS."""
    if not settings.http:
        return []
    lines = [
        "==> Commands speak TLS with this agent. Before them:",
        f"      export NOMAD_CACERT={settings.ca_file}",
    ]
    if settings.verify_https_client:
        lines += [
            "    and with a certificate of this authority, as `yurt tls cert create -cli` makes one:",
            f"      export NOMAD_CLIENT_CERT={region}-cli-nomad.pem NOMAD_CLIENT_KEY={region}-cli-nomad-key.pem",
        ]
    return lines


def next_lines(address: str, command: str, missing: Sequence[str] = ()) -> list[str]:
    """The next commands to type; for parts that are not ready, the reason."""
    prefix = "" if address == "http://127.0.0.1:4646" else f"NOMAD_ADDR={address} "
    if missing:
        return [
            f"==> Yurt agent started at {address}, but it is not ready yet:",
            *(f"      {each}" for each in missing),
            "    Log data will stream in below:",
            "",
        ]
    return [
        f"==> Yurt agent started and ready at {address}. In another terminal:",
        f"      {prefix}{command} job init",
        f"      {prefix}{command} job run example.nomad.hcl",
        f"      {prefix}{command} job status example",
        "    Log data will stream in below:",
        "",
    ]


def command_name(cwd: Path, environ: Mapping[str, str]) -> str:
    """The command that starts yurt here: in a checkout whose environment is not active, through uv or by its path."""
    is_checkout = (cwd / "pyproject.toml").is_file() and (cwd / "core" / "src" / "yurt").is_dir()
    is_active = bool(environ.get("VIRTUAL_ENV")) and not environ.get("UV_RUN_RECURSION_DEPTH")
    if not is_checkout or is_active:
        return "yurt"
    if shutil.which("uv", path=environ.get("PATH")):
        return "uv run yurt"
    return ".venv/bin/yurt" if (cwd / ".venv" / "bin" / "yurt").is_file() else "yurt"
