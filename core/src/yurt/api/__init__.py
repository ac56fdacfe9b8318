"""Converts structs to the HTTP API's JSON and back; pages of lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["canonicalize_job"]


def canonicalize_job(job: Mapping[str, Any]) -> dict[str, Any]:
    """The job with the API's defaults for unset fields."""
    from yurt.rules import canonical

    return canonical.canonicalize_job(job)
