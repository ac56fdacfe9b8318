"""JSON to structs and back, canonical defaults, validation, the HTTP client."""

from yurt.api.canonical import canonicalize_job

__all__ = ["canonicalize_job"]
