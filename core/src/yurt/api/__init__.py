"""JSON to structs and back, canonical defaults, validation."""

from yurt.api.canonical import canonicalize_job

__all__ = ["canonicalize_job"]
