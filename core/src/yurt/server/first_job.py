"""Imports what the first job of a server needs, in a thread and ahead of that job.

Validation and the scheduler with numpy take 100 to 300 ms to import. A server that imported them before it says that it
is ready would start later, and one that imports them with the first registration stops its event loop meanwhile.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

MODULES: Final = (
    "rules.references",
    "rules.validation.job",
    "scheduler.attempts",
    "scheduler.job_types.blocked_evals",
    "scheduler.plan_check",
)
"""Modules that the first registration and its evaluation import, without what handles its request."""


def import_first_job() -> None:
    """Import them."""
    for name in MODULES:
        import_module(f"yurt.{name}")
