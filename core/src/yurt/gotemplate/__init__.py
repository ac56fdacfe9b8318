"""Go's text/template language for values without methods: `parse` once, `render` with data.

Pure: no clock, no files, no randomness; what reaches the outside comes in as functions. Work, output and depth are
bounded, so that a template from a stranger costs no more than its limits.
"""

from __future__ import annotations

from yurt.gotemplate.errors import EvaluationFailure, TemplateError
from yurt.gotemplate.functions import TemplateFunction
from yurt.gotemplate.limits import Limits
from yurt.gotemplate.template import ParsedTemplate, check_syntax, parse

__all__ = [
    "EvaluationFailure",
    "Limits",
    "ParsedTemplate",
    "TemplateError",
    "TemplateFunction",
    "check_syntax",
    "parse",
]
