"""The configuration of one agent, from files, flags and the rules of dev mode; later files win over earlier ones, flags
over files.

`-dev` lies under everything: a file's ports and name win over it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from yurt.agent.addresses import bracketed, host_of, is_loopback, with_port
from yurt.agent.blocks.cluster import OWN_ETCD, SERF_PORT, ClusterSettings, cluster_problems, cluster_settings
from yurt.agent.config_check import NOT_AVAILABLE, ConfigFinding, merge
from yurt.agent.config_files import NO_SOURCES, ConfigSources
from yurt.http.edge.hosts import is_host
from yurt.sdk.errors import Invalid
from yurt.sdk.value import NANOSECONDS, Value, no_entries, parse_duration
from yurt.structs.node import NodeResources

LOG_LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "OFF")
HTTP_PORT, RPC_PORT = 4646, 4647
LOOPBACK = "127.0.0.1"
LOG_ROTATE_S = 86_400.0
"""The default age at which a log file is rotated."""
PORTS = NodeResources()
"""The default range of ports for tasks."""
SHORTEST, LONGEST = "token_min_expiration_ttl", "token_max_expiration_ttl"
USUAL_TOKEN_TIMES = {SHORTEST: "1m", LONGEST: "24h"}
"""The default bounds on the lifetime of expiring tokens."""
PLUGIN_PORTS = (14000, 14512)
"""The default range of ports for plugin binaries that listen on TCP."""

DEV: Mapping[str, Any] = {
    "bind_addr": "127.0.0.1",
    "log_level": "DEBUG",
    "enable_debug": True,
    "disable_update_check": True,
    "server": {"enabled": True, "bootstrap_expect": 1},
    "client": {
        "enabled": True,
        "options": {"driver.raw_exec.enable": "true", "driver.docker.volumes": "true"},
        "gc_interval": "10m",
        "gc_disk_usage_threshold": 99,
        "gc_inode_usage_threshold": 99,
        "gc_max_allocs": 50,
    },
    "telemetry": {
        "prometheus_metrics": True,
        "publish_allocation_metrics": True,
        "publish_node_metrics": True,
        "include_alloc_metadata_in_metrics": True,
    },
}


class AgentConfig(Value):
    """A checked configuration. `raw` is all of it in the shape of the files, `client` and `server` are in it."""

    name: str
    region: str = "global"
    datacenter: str = "dc1"
    data_dir: str = ""
    is_dev: bool = False
    makes_token: bool = False
    """A dev agent bootstraps access control itself and shows the management token."""
    has_acl: bool = False
    """Access control is on."""
    allows_rpc_without_tls: bool = False
    """With access control the server port may be open to other hosts without TLS."""
    hides_rpc: bool = False
    """A single server listens for agents on loopback only, because it has access control and no TLS."""
    is_server: bool = False
    is_client: bool = False
    log_level: str = "INFO"
    log_json: bool = False
    has_log_location: bool = False
    log_file: str = ""
    log_rotate_bytes: int = 0
    log_rotate_s: float = LOG_ROTATE_S
    log_rotate_max_files: int = 0
    has_syslog: bool = False
    syslog_facility: str = "LOCAL0"
    has_own_log_level: bool = False
    http_addresses: tuple[str, ...] = ("0.0.0.0",)
    rpc_address: str = "0.0.0.0"
    serf_address: str = "0.0.0.0"
    http_port: int = HTTP_PORT
    rpc_port: int = RPC_PORT
    serf_port: int = SERF_PORT
    advertise_http: str = ""
    advertise_rpc: str = ""
    advertise_serf: str = ""
    leave_on_interrupt: bool = False
    leave_on_terminate: bool = False
    response_headers: Mapping[str, str] = no_entries()
    allowed_hosts: tuple[str, ...] = ()
    plugins: Mapping[str, Mapping[str, Any]] = no_entries()
    plugin_args: Mapping[str, tuple[str, ...]] = no_entries()
    plugin_dir: str = ""
    plugin_ports: tuple[int, int] = PLUGIN_PORTS
    client: Mapping[str, Any] = no_entries()
    server: Mapping[str, Any] = no_entries()
    cluster: ClusterSettings = ClusterSettings()
    raw: Mapping[str, Any] = no_entries()
    files: tuple[str, ...] = ()

    @property
    def terminal_log_level(self) -> str:
        """The level printed by the agent; a dev agent without a setting shows debug lines to monitors only."""
        return self.log_level if self.has_own_log_level or not self.is_dev else "INFO"


def seconds_of(text: str | None, default: float) -> float:
    """A duration text in seconds."""
    return default if text is None else parse_duration(text) / NANOSECONDS


def make_config(
    from_files: Mapping[str, Any],
    from_flags: Mapping[str, Any],
    *,
    is_dev: bool,
    makes_token: bool = False,
    sources: ConfigSources = NO_SOURCES,
) -> AgentConfig:
    """Merge dev mode, files and flags; raises Invalid with every problem found."""
    raw = merge(merge(DEV if is_dev else {}, from_files), from_flags)
    if is_dev:
        # A file without its own agent in mind says `enabled = false`: dev mode runs both parts whatever it says.
        raw = merge(raw, {part: {"enabled": True} for part in ("server", "client") if part not in from_flags})
    client, server, ports, acl = (raw.get(block, {}) for block in ("client", "server", "ports", "acl"))
    bind, addresses = raw.get("bind_addr", "0.0.0.0"), raw.get("addresses", {})
    http = tuple((addresses.get("http") or bind).split())
    cluster = cluster_settings(raw, is_dev=is_dev)
    has_acl, is_allowed = bool(acl.get("enabled")), bool(acl.get("allow_rpc_without_tls"))
    is_open = not is_dev and _lets_any_host_act(raw, has_acl=has_acl, is_allowed=is_allowed)
    hides_rpc = is_open and _stands_alone(raw, cluster)
    rpc, serf = (LOOPBACK if hides_rpc else addresses.get(kind) or bind for kind in ("rpc", "serf"))
    config = AgentConfig(
        name=raw.get("name") or socket.gethostname(),
        region=raw.get("region", "global"),
        datacenter=raw.get("datacenter", "dc1"),
        data_dir=_absolute(raw.get("data_dir", "")),
        is_dev=is_dev,
        makes_token=is_dev and makes_token,
        has_acl=has_acl,
        allows_rpc_without_tls=is_allowed,
        hides_rpc=hides_rpc,
        is_server=bool(server.get("enabled")),
        is_client=bool(client.get("enabled")),
        log_level=str(raw.get("log_level", "INFO")).upper(),
        log_json=bool(raw.get("log_json")),
        has_log_location=bool(raw.get("log_include_location")),
        log_file=raw.get("log_file", ""),
        log_rotate_bytes=raw.get("log_rotate_bytes", 0),
        log_rotate_s=seconds_of(raw.get("log_rotate_duration"), LOG_ROTATE_S),
        log_rotate_max_files=raw.get("log_rotate_max_files", 0),
        has_syslog=bool(raw.get("enable_syslog")),
        syslog_facility=raw.get("syslog_facility") or "LOCAL0",
        has_own_log_level="log_level" in from_files or "log_level" in from_flags,
        http_addresses=http,
        rpc_address=rpc,
        serf_address=serf,
        http_port=ports.get("http", HTTP_PORT),
        rpc_port=ports.get("rpc", RPC_PORT),
        serf_port=ports.get("serf", SERF_PORT),
        advertise_http=_advertised(raw, "http", http[0], ports.get("http", HTTP_PORT)),
        advertise_rpc=_advertised(raw, "rpc", rpc, ports.get("rpc", RPC_PORT)),
        advertise_serf=_advertised(raw, "serf", serf, ports.get("serf", SERF_PORT)),
        leave_on_interrupt=bool(raw.get("leave_on_interrupt")),
        leave_on_terminate=bool(raw.get("leave_on_terminate")),
        response_headers=raw.get("http_api_response_headers", {}),
        allowed_hosts=tuple(raw.get("http_allowed_hosts", ())),
        plugins={label: _plugin_config(body) for label, body in raw.get("plugin", {}).items()},
        plugin_args={label: tuple(map(str, body.get("args", ()))) for label, body in raw.get("plugin", {}).items()},
        plugin_dir=_absolute(raw.get("plugin_dir", "")),
        plugin_ports=(client.get("client_min_port", PLUGIN_PORTS[0]), client.get("client_max_port", PLUGIN_PORTS[1])),
        client=client,
        server=server,
        cluster=cluster,
        raw=raw,
        files=sources.names,
    )
    problems = [*_relative_problem(raw.get("data_dir", "")), *_problems(config), *_access_problems(raw, sources)]
    if problems:
        raise Invalid("\n".join(problems))
    return config


def _relative_problem(data_dir: str) -> list[str]:
    """The problem of a relative folder: a start from another directory would lose the state."""
    if not data_dir or Path(data_dir).is_absolute():
        return []
    return [f'data_dir "{data_dir}" must be an absolute path; write {_absolute(data_dir)}']


def _problems(config: AgentConfig) -> list[str]:
    found = []
    if not config.is_server and not config.is_client:
        found.append("Must specify either server, client or dev mode for the agent.")
    elif not config.is_server and not _servers_named(config.client):
        found.append(
            "A client without a server in the same agent needs to know where servers are: client { servers = "
            '["10.0.0.1:4647"] }, or -servers=10.0.0.1:4647.'
        )
    if config.is_server:
        found += cluster_problems(config.raw, config.name, is_dev=config.is_dev)
    if not config.data_dir and not config.is_dev:
        found.append("Must specify a data directory: data_dir in the configuration, or -data-dir=/absolute/path.")
    if config.log_level not in LOG_LEVELS:
        from yurt.rules.problems import near_hint

        hint = near_hint(config.log_level, LOG_LEVELS)
        found.append(f'log_level "{config.log_level}" is not one of {", ".join(LOG_LEVELS)}{hint}.')
    ports = {
        "http": config.http_port, "rpc": config.rpc_port, "serf": config.serf_port, "etcd": config.cluster.etcd_port
    }  # fmt: skip
    if config.cluster.engine != OWN_ETCD and not config.cluster.has_etcd_port:
        del ports["etcd"]
    for key, port in ports.items():
        if not 0 <= port <= 65535:
            found.append(f"ports.{key} is {port}; a port is a number from 1 to 65535.")
    if config.is_server and not config.is_dev:
        found += _clash_problems(config, ports)
        found += _plain_text_problems(config)
    found += _advertise_problems(config)
    low = config.client.get("min_dynamic_port") or PORTS.min_dynamic_port
    high = config.client.get("max_dynamic_port") or PORTS.max_dynamic_port
    if not low <= high <= 65535:
        found.append(f"client.min_dynamic_port is {low} and max_dynamic_port {high}: no range of ports up to 65535.")
    if any("{{" in address for address in (*config.http_addresses, config.rpc_address, config.serf_address)):
        found.append(f"Address templates ({{{{ ... }}}}) are {NOT_AVAILABLE}; write the address itself.")
    found += [
        f'client: "{address}" is not a server address; finding servers by a cloud provider is {NOT_AVAILABLE}.'
        for address in _servers_named(config.client)
        if "=" in address or " " in address
    ]
    found += [
        f'client.chroot_env: "{path}" must be an absolute path'
        for pair in config.client.get("chroot_env", {}).items()
        for path in pair
        if path and not path.startswith("/")
    ]
    found += [
        f'http_allowed_hosts: "{host}" is not a host name; write a name such as "nomad.example.com", "*.example.com" '
        'for all names below one, or "nomad.example.com:8443" for pages at another port than 80 and 443.'
        for host in config.allowed_hosts
        if not is_host(host)
    ]
    if config.log_file and not Path(config.log_file).is_absolute():
        found.append(f'log_file "{config.log_file}" must be an absolute path; write {_absolute(config.log_file)}')
    if config.log_file or config.has_syslog:
        from yurt.agent.process.logs import log_problems

        found += log_problems(config.raw)
    if blocks := config.raw.get("keyring"):
        from yurt.agent.blocks.keyring import keyring_problems

        found += keyring_problems(blocks)
    return found


def _access_problems(raw: Mapping[str, Any], sources: ConfigSources) -> list[str]:
    """Problems of values in the blocks `acl`, `audit` and `telemetry`, each with its position in the file."""
    found: list[ConfigFinding] = []
    if acl := raw.get("acl"):
        found += _acl_problems(acl)
    if audit := raw.get("audit"):
        from yurt.agent.blocks.audit import audit_problems

        found += audit_problems(audit)
    if telemetry := raw.get("telemetry"):
        from yurt.agent.blocks.telemetry import telemetry_problems

        found += telemetry_problems(telemetry)
    places = (sources.place_of(tuple(str(step) for step in problem.path)) for problem in found)
    return [f"{place}: {problem.text}" if place else problem.text for place, problem in zip(places, found, strict=True)]


def _acl_problems(block: Mapping[str, Any]) -> list[ConfigFinding]:
    """Inconsistent times, and an invalid replication token, whose text is not shown."""
    from yurt.structs.acl import SECRET

    found: list[ConfigFinding] = []

    def add(key: str, text: str) -> None:
        found.append(ConfigFinding(("acl", key), text))

    shortest, longest = (block.get(name, USUAL_TOKEN_TIMES[name]) for name in (SHORTEST, LONGEST))
    if parse_duration(shortest) <= 0:
        add(SHORTEST, f'acl.{SHORTEST} is "{shortest}"; it must be above 0.')
    if parse_duration(shortest) > parse_duration(longest):
        defaults = [name for name in (SHORTEST, LONGEST) if name not in block]
        note = f" ({defaults[0]} is the default)" if defaults else ""
        key = SHORTEST if SHORTEST in block else LONGEST
        add(key, f'acl.{SHORTEST} is "{shortest}", longer than {LONGEST}, "{longest}"{note}.')
    if (token := block.get("replication_token")) and not SECRET.fullmatch(token):
        add(
            "replication_token",
            "acl.replication_token must be the Secret ID of a management token of the authoritative region, such as "
            "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee.",
        )
    return found


def _clash_problems(config: AgentConfig, ports: Mapping[str, int]) -> list[str]:
    """Two services of a server that would listen on one address and port."""
    hosts = {"http": config.http_addresses, "rpc": (config.rpc_address,)}
    used: dict[tuple[str, int], str] = {}
    found = []
    for key, port in ports.items():
        for host in hosts.get(key, (config.serf_address,)) if port else ():
            other = used.setdefault((host, port), key)
            if other != key:
                default = " (the default: the serf port plus one)" if not config.cluster.has_etcd_port else ""
                found.append(
                    f"ports.{other} and ports.{key}{default * (key == 'etcd')} are both {port} on {host}; "
                    f"give one of them another port: ports {{ {key} = ... }}."
                )
    return found


def _lets_any_host_act(raw: Mapping[str, Any], *, has_acl: bool, is_allowed: bool) -> bool:
    """Whether any host that reaches the server port of an agent with access control can act as a server or a node.

    `is_allowed`: its configuration allows that.
    """
    tls = raw.get("tls", {})
    has_tls = tls.get("rpc") and not tls.get("rpc_upgrade_mode")
    return has_acl and not has_tls and not is_allowed


def _stands_alone(raw: Mapping[str, Any], cluster: ClusterSettings) -> bool:
    """Whether a server may listen for agents on loopback only, where any host could act as one.

    Nomad starts a server with access control and no TLS on all addresses. A server that stands alone starts here as
    well, since nothing in its configuration asks for other hosts; one that names an address or other servers is refused
    (`_plain_text_problems`), since it could not do what its configuration says.
    """
    if not raw.get("server", {}).get("enabled"):
        return False
    named = ({"rpc", "serf"} & {*raw.get("addresses", {}), *raw.get("advertise", {})}) or "bind_addr" in raw
    joins = cluster.start_join or cluster.retry_join or cluster.rejoins
    return not named and cluster.expect == 1 and not joins and not _has_far_servers(raw)


def _has_far_servers(raw: Mapping[str, Any]) -> bool:
    """Whether an agent with a server names servers of another region, or of another host for its client."""
    region = raw.get("region", "global")
    is_federated = (
        raw.get("acl", {}).get("replication_token")
        or (raw.get("server", {}).get("authoritative_region") or region) != region
    )
    client = raw.get("client", {})
    named = _servers_named(client) if client.get("enabled") else []
    return bool(is_federated) or any(not is_loopback(host_of(with_port(each, RPC_PORT))) for each in named)


def _plain_text_problems(config: AgentConfig) -> list[str]:
    """The problem of access control without TLS: any host may then speak to the server port as a server or a node."""
    tls = config.raw.get("tls", {})
    if not _lets_any_host_act(config.raw, has_acl=config.has_acl, is_allowed=config.allows_rpc_without_tls):
        return []
    ports = (("RPC", config.rpc_address, config.rpc_port), ("Serf", config.serf_address, config.serf_port))
    open_ports = [f"{name} {bracketed(host)}:{port}" for name, host, port in ports if not is_loopback(host)]
    if not open_ports:
        return []
    plain = "tls.rpc_upgrade_mode lets agents in without TLS" if tls.get("rpc") else "tls.rpc is off"
    return [
        f"acl.enabled: other hosts can reach {' and '.join(open_ports)}, and {plain}: anyone there could act as a "
        "server or a node, whatever the policies say. Make certificates (`yurt tls ca create`, `yurt tls cert "
        'create`) and set tls { rpc = true }; or let nobody reach these ports: bind_addr = "127.0.0.1"; or accept the '
        "risk in a trusted network: acl { allow_rpc_without_tls = true }."
    ]


def _advertise_problems(config: AgentConfig) -> list[str]:
    advertised = {"http": config.advertise_http, "rpc": config.advertise_rpc, "serf": config.advertise_serf}
    ports = {kind: address.rpartition(":")[2] for kind, address in advertised.items()}
    return [
        f'advertise.{kind} is "{advertised[kind]}"; a port is a number from 1 to 65535.'
        for kind, port in ports.items()
        if kind in config.raw.get("advertise", {}) and not (port.isdecimal() and 0 < int(port[:9]) <= 65535)
    ]


def _servers_named(client: Mapping[str, Any]) -> list[str]:
    joined = client.get("server_join", {})
    return [*client.get("servers", ()), *joined.get("retry_join", ()), *joined.get("start_join", ())]


def _plugin_config(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The `config` of a plugin block; a repeated block is merged."""
    config = body.get("config", {})
    merged: dict[str, Any] = {}
    for part in config if isinstance(config, list | tuple) else [config]:
        merged = merge(merged, part)
    return merged


def _advertised(raw: Mapping[str, Any], kind: str, bound: str, port: int) -> str:
    address = str(raw.get("advertise", {}).get(kind, ""))
    if address:
        has_port = (address.startswith("[") and "]:" in address) or address.count(":") == 1
        return address if has_port else f"{bracketed(address)}:{port}"
    host = _outward_address() if bound in ("0.0.0.0", "::", "") else bound
    return f"{bracketed(host)}:{port}"


def _outward_address() -> str:
    """The address of the interface that the default route uses; loopback when there is none. Sends nothing."""
    probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"
    finally:
        probe.close()


def _absolute(path: str) -> str:
    return str(Path(path).absolute()) if path else ""


def is_root() -> bool:
    """The agent runs as root."""
    return hasattr(os, "geteuid") and os.geteuid() == 0
