"""The settings of the `telemetry` block."""

from __future__ import annotations

import socket

from yurt.agent.blocks.telemetry import BLOCK, SINKS
from yurt.agent.config import AgentConfig, seconds_of
from yurt.http.telemetry import TelemetrySettings
from yurt.sdk.value import Value


def telemetry_settings(config: AgentConfig) -> TelemetrySettings:
    """The metrics that the agent publishes."""
    given = config.raw.get(BLOCK, {})
    host = config.name if given.get("use_node_name") else socket.gethostname()
    has_host = bool(given.get("use_node_name")) or not given.get("disable_hostname", False)
    return TelemetrySettings(
        prometheus=bool(given.get("prometheus_metrics")),
        host=host if has_host else "",
        publishes_allocations=bool(given.get("publish_allocation_metrics")),
        publishes_node=bool(given.get("publish_node_metrics")),
        includes_alloc_meta=bool(given.get("include_alloc_metadata_in_metrics")),
        meta_keys=tuple(map(str, given.get("allowed_metadata_keys_in_metrics", ()))),
        prefixes=tuple((rule[1:], rule[0] == "+") for rule in map(str, given.get("prefix_filter", ()))),
        is_published=bool(given.get("filter_default", True)),
        has_dispatched_summaries=not given.get("disable_dispatched_job_summary_metrics"),
        has_quota_utilization=not given.get("disable_quota_utilization_metrics"),
        has_hook_metrics=not given.get("disable_allocation_hook_metrics"),
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
    given = config.raw.get(BLOCK, {})
    return MetricSinkSettings(
        interval_s=seconds_of(given.get("collection_interval"), 1.0),
        datadog_tags=tuple(map(str, given.get("datadog_tags", ()))),
        **{key: given.get(key, "") for key in SINKS},
    )
