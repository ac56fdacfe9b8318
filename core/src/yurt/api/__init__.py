"""JSON to structs and back, filters, pages of lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["canonicalize_job"]


def canonicalize_job(job: Mapping[str, Any]) -> dict[str, Any]:
    """The job with the API's defaults where it says nothing."""
    from yurt.rules import canonical

    return canonical.canonicalize_job(job)
