"""The type of the JSON objects that agents answer with."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]
"""A decoded JSON object, by field name in the API's spelling."""
