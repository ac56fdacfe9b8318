"""Validates a `telemetry` block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from yurt.agent.config_check import ConfigFinding
from yurt.api.times import parse_duration

SINKS: Final = {"statsd_address": 8125, "statsite_address": 8125, "datadog_address": 8125}
"""The keys that configure a sink, and its default port."""
BLOCK: Final = "telemetry"


def telemetry_problems(block: Mapping[str, Any]) -> list[ConfigFinding]:
    """Problems of the block's values."""
    found: list[ConfigFinding] = []

    def add(key: str, text: str) -> None:
        found.append(ConfigFinding((BLOCK, key), f"{BLOCK}.{text}"))

    for number, rule in enumerate(map(str, block.get("prefix_filter", ()))):
        if rule[:1] not in ("+", "-") or len(rule) < 2:
            add("prefix_filter", f'prefix_filter[{number}]: "{rule}" must begin with + (publish) or - (leave out), '
                'for example "-nomad.raft".')  # fmt: skip
    for key in SINKS:
        if (address := block.get(key)) and host_and_port(address, SINKS[key]) is None:
            add(key, f'{key}: "{address}" is not an address; write host:port, for example "127.0.0.1:8125".')
    interval = block.get("collection_interval")
    if interval is not None and parse_duration(interval) <= 0:
        add("collection_interval", f'collection_interval is "{interval}"; it must be above 0, for example "1s".')
    return found


def host_and_port(address: str, port: int) -> tuple[str, int] | None:
    """`host:port`, `host`, `[::1]:port`; None for anything else."""
    try:
        parts = urlsplit(f"//{address.removeprefix('udp://').removeprefix('tcp://')}")
        found = parts.hostname, parts.port or port
    except ValueError:
        return None
    return (found[0], found[1]) if found[0] and not parts.path and not parts.username else None
