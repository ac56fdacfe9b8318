"""The `telemetry` block: which metrics are published, and the sinks to which they are pushed."""
