"""The settings of the `telemetry` block."""

from __future__ import annotations

import socket
from importlib.metadata import version

from yurt.agent.blocks.telemetry import BLOCK, OTLP, SINKS
from yurt.agent.config import AgentConfig, seconds_of
from yurt.http.telemetry import TelemetrySettings
from yurt.sdk.value import StrMap, Value


def telemetry_settings(config: AgentConfig) -> TelemetrySettings:
    """The metrics that the agent publishes."""
    block = config.raw.get(BLOCK, {})
    host = config.name if block.get("use_node_name") else socket.gethostname()
    has_host = bool(block.get("use_node_name")) or not block.get("disable_hostname", False)
    return TelemetrySettings(
        prometheus=bool(block.get("prometheus_metrics")),
        host=host if has_host else "",
        publishes_allocations=bool(block.get("publish_allocation_metrics")),
        publishes_node=bool(block.get("publish_node_metrics")),
        includes_alloc_meta=bool(block.get("include_alloc_metadata_in_metrics")),
        meta_keys=tuple(map(str, block.get("allowed_metadata_keys_in_metrics", ()))),
        prefixes=tuple((rule[1:], rule[0] == "+") for rule in map(str, block.get("prefix_filter", ()))),
        is_published=bool(block.get("filter_default", True)),
        has_dispatched_summaries=not block.get("disable_dispatched_job_summary_metrics"),
        has_quota_utilization=not block.get("disable_quota_utilization_metrics"),
        has_hook_metrics=not block.get("disable_allocation_hook_metrics"),
    )


class MetricSinkSettings(Value):
    """The destinations to which metrics are pushed."""

    interval_s: float = 1.0
    statsd_address: str = ""
    statsite_address: str = ""
    datadog_address: str = ""
    datadog_tags: tuple[str, ...] = ()

    @property
    def is_used(self) -> bool:
        """Whether metrics are pushed anywhere."""
        return bool(self.statsd_address or self.statsite_address or self.datadog_address)


def sink_settings(config: AgentConfig) -> MetricSinkSettings:
    """The sinks of the block."""
    block = config.raw.get(BLOCK, {})
    return MetricSinkSettings(
        interval_s=seconds_of(block.get("collection_interval"), 1.0),
        datadog_tags=tuple(map(str, block.get("datadog_tags", ()))),
        **{key: block.get(key, "") for key in SINKS},
    )


class TraceSettings(Value):
    """The collector to which traces are exported."""

    endpoint: str
    """The URL that takes spans over OTLP/HTTP, with its path: `http://127.0.0.1:4318/v1/traces`."""
    resource: StrMap
    """OpenTelemetry's attributes of this agent."""
    ca_file: str = ""
    sample_ratio: float = 1.0
    """The share of traces that is exported, 0 to 1."""


def trace_settings(config: AgentConfig) -> TraceSettings | None:
    """The block's `otlp` block; None without one, and for an agent without a server, where no log is."""
    block = config.raw.get(BLOCK, {}).get(OTLP)
    if not block or not config.is_server:
        return None
    return TraceSettings(
        endpoint=block["endpoint"],
        resource={
            "service.name": "yurt",
            "service.version": version("yurt"),
            "service.instance.id": config.name,
            "host.name": socket.gethostname(),
            "yurt.region": config.region,
            "yurt.datacenter": config.datacenter,
        },
        ca_file=block.get("ca_file", ""),
        sample_ratio=float(block.get("sample_ratio", 1.0)),
    )
