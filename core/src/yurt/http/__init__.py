"""The HTTP API: one module per resource, blocking queries, streams, errors mapped once."""
