"""Converts HCL2 job files to jobs in the API's shape, with diagnostics that name positions in the file.

Names are loaded when they are first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .diagnostics import Diagnostic, JobspecError, Severity, SourceRange
    from .format import format_source
    from .generic import parse_body, parse_body_with_positions
    from .job import parse_job, parse_job_with_findings, parse_job_with_positions
    from .plain_data import with_unset_fields
    from .positions import IncompleteJob, ParsedJob, PartialJob, Positions
    from .report import render, to_json, to_sarif
    from .syntax.json_source_map import json_positions
    from .variables import Inputs
    from .write import WrittenJob, write_job

__all__ = [
    "Diagnostic",
    "IncompleteJob",
    "Inputs",
    "JobspecError",
    "ParsedJob",
    "PartialJob",
    "Positions",
    "Severity",
    "SourceRange",
    "WrittenJob",
    "format_source",
    "json_positions",
    "parse_body",
    "parse_body_with_positions",
    "parse_job",
    "parse_job_with_findings",
    "parse_job_with_positions",
    "render",
    "to_json",
    "to_sarif",
    "with_unset_fields",
    "write_job",
]

_HOMES = {
    "Diagnostic": "diagnostics",
    "IncompleteJob": "positions",
    "Inputs": "variables",
    "JobspecError": "diagnostics",
    "ParsedJob": "positions",
    "PartialJob": "positions",
    "Positions": "positions",
    "Severity": "diagnostics",
    "SourceRange": "diagnostics",
    "WrittenJob": "write",
    "format_source": "format",
    "json_positions": "syntax.json_source_map",
    "parse_body": "generic",
    "parse_body_with_positions": "generic",
    "parse_job": "job",
    "parse_job_with_findings": "job",
    "parse_job_with_positions": "job",
    "render": "report",
    "to_json": "report",
    "to_sarif": "report",
    "with_unset_fields": "plain_data",
    "write_job": "write",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
