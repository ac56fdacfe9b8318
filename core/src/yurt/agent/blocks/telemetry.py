"""Validates a `telemetry` block."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Final
from urllib.parse import urlsplit

from yurt.agent.config_check import ConfigFinding
from yurt.sdk.value import parse_duration

SINKS: Final = {"statsd_address": 8125, "statsite_address": 8125, "datadog_address": 8125}
"""The keys that configure a sink, and its default port."""
BLOCK: Final = "telemetry"
OTLP: Final = "otlp"
"""The block of the collector of traces."""
EXPORTER: Final = "opentelemetry.exporter.otlp.proto.http"


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
    if OTLP in block:
        found += _otlp_problems(block[OTLP])
    return found


def _otlp_problems(block: Mapping[str, Any]) -> list[ConfigFinding]:
    """Problems of the `otlp` block's values, and whether its package is installed."""
    found: list[ConfigFinding] = []

    def add(key: str, text: str) -> None:
        found.append(ConfigFinding((BLOCK, OTLP, key) if key else (BLOCK, OTLP), f"{BLOCK}.{OTLP}{text}"))

    endpoint = str(block.get("endpoint", ""))
    if not _is_url(endpoint):
        shown = f'.endpoint: "{endpoint}" is not a URL' if endpoint else " needs an endpoint"
        add("endpoint" if endpoint else "", f"{shown}; write the collector's URL for OTLP over HTTP with its path, "
            'for example "http://127.0.0.1:4318/v1/traces".')  # fmt: skip
    ratio = block.get("sample_ratio", 1.0)
    if not 0 <= float(ratio) <= 1:
        add("sample_ratio", f".sample_ratio is {ratio:g}; it must be from 0 to 1, for example 0.1 for a tenth.")
    ca_file = block.get("ca_file", "")
    if ca_file and not os.access(ca_file, os.R_OK):
        add("ca_file", f'.ca_file: "{ca_file}" cannot be read; name a file of certificates in PEM form.')
    if not _is_installed(EXPORTER):
        add("", " needs OpenTelemetry's exporter, which is not installed: pip install 'yurt[otlp]'")
    return found


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def host_and_port(address: str, port: int) -> tuple[str, int] | None:
    """`host:port`, `host`, `[::1]:port`; None for anything else."""
    try:
        parts = urlsplit(f"//{address.removeprefix('udp://').removeprefix('tcp://')}")
        found = parts.hostname, parts.port or port
    except ValueError:
        return None
    return (found[0], found[1]) if found[0] and not parts.path and not parts.username else None
