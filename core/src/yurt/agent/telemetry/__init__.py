"""The `telemetry` block: what is published, and the sinks to which it is pushed (imported where one is configured)."""
