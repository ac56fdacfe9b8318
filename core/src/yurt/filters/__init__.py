"""The filter language (go-bexpr): the filters of lists, and the selectors of binding rules."""

from __future__ import annotations

from yurt.filters.evaluation import MATCHED_TEXT_MAX, Predicate, Row
from yurt.filters.parsing import DEPTH_MAX, EXPRESSION_MAX, PATTERNS_MAX, TERMS_MAX, compile_filter

__all__ = [
    "DEPTH_MAX", "EXPRESSION_MAX", "MATCHED_TEXT_MAX", "PATTERNS_MAX", "TERMS_MAX", "Predicate", "Row",
    "compile_filter",
]  # fmt: skip
