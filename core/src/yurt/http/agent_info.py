"""Facts about the agent that the HTTP layer needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yurt.http.telemetry import TelemetrySettings
from yurt.sdk.value import StrMap, Value, no_entries


class SearchSettings(Value):
    """The bounds of a fuzzy search."""

    is_enabled: bool = True
    text_min: int = 2
    """Characters of the text that is searched for."""
    matches_max: int = 100
    """Matches of a context in an answer."""


class AgentInfo(Value):
    """Facts of one agent; `config` is its configuration as data, tokens already blanked."""

    version: str = ""
    name: str = ""
    region: str = "global"
    datacenter: str = "dc1"
    http_addr: str = "127.0.0.1:4646"
    rpc_addr: str = "127.0.0.1:4647"
    serf_addr: str = "127.0.0.1:4648"
    dev: bool = False
    enable_debug: bool = False
    acl_enabled: bool = False
    """Access control is on. A server decides by its own settings; this is for an agent without one."""
    config: Mapping[str, Any] = no_entries()
    telemetry: TelemetrySettings = TelemetrySettings()
    search: SearchSettings = SearchSettings()
    ui_enabled: bool = True
    response_headers: StrMap = no_entries()
    host_names: tuple[str, ...] = ()
    """Names of the agent for others: what it advertises, where it listens, its host's name."""
    allowed_hosts: tuple[str, ...] = ()
    """`http_allowed_hosts`"""
    plugins: tuple[Mapping[str, Any], ...] = ()
