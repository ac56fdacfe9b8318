"""Scheduler: what to do for a job, as a plan with reasons; pure.

`attempt` answers one evaluation on one snapshot. The worker submits its plan; when parts of it are refused it
attempts again on a newer snapshot, up to `max_attempts` times without progress, and then ends the evaluation with
`exhausted`. The same snapshot, evaluation, `now`, seed and attempt give the same plan to the byte: ids come from the
seed, equal scores are told apart by it.
"""

from __future__ import annotations

from yurt.scheduler.attempts import Attempt, attempt, dry_run
from yurt.scheduler.blocked import exhausted, max_attempts

__all__ = ["Attempt", "attempt", "dry_run", "exhausted", "max_attempts"]
