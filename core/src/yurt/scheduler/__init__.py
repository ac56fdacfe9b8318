"""The scheduler: plans for a job with explanations; pure.

`attempt` answers one evaluation on one snapshot, a `Series` some of them, one after another. The worker submits a
plan; when parts of it are refused it attempts again on a newer snapshot, up to `max_attempts` times without progress,
and then ends the evaluation with `exhausted`. The same snapshot, evaluation, `now`, seed and attempt give the same plan
to the byte: ids come from the seed, it orders nodes of equal score.

Packages, each importing only from those after it: `explain`, `job_types`, `placing` and `reconcile`, `feasibility` and
`capacity`, `devices`, `constraints`. The entry points are the modules in this folder (`attempts`, `plan_check`,
`replay`) and `explain`.

The names below are loaded when first used: importing this package does not import numpy, which would be a fifth of an
agent's start-up.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from yurt.scheduler.attempts import Attempt, Series, attempt, dry_run, still_blocked
    from yurt.scheduler.capacity.in_flight import InFlightPlans, with_plans
    from yurt.scheduler.job_types.blocked_evals import exhausted, max_attempts
    from yurt.scheduler.plan_check import check_plan

__all__ = [
    "Attempt", "InFlightPlans", "Series", "attempt", "check_plan", "dry_run", "exhausted", "max_attempts",
    "still_blocked", "with_plans",
]  # fmt: skip

_HOMES = {
    "Attempt": "attempts", "Series": "attempts", "attempt": "attempts", "dry_run": "attempts",
    "still_blocked": "attempts",
    "exhausted": "job_types.blocked_evals", "max_attempts": "job_types.blocked_evals", "check_plan": "plan_check",
    "with_plans": "capacity.in_flight", "InFlightPlans": "capacity.in_flight",
}  # fmt: skip


def is_loaded() -> bool:
    """Whether all modules that an evaluation needs are loaded."""
    return all(name in globals() for name in _HOMES)


def load() -> None:
    """Load all modules; blocks for about 150 ms."""
    for name in _HOMES:
        getattr(import_module(__name__), name)


def __getattr__(name: str) -> Any:
    """Load a public name from its module (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
