"""Rules for constraints, affinities, spreads and the policies of a group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from yurt.rules.problems import DELAY_FUNCTIONS, duplicates, is_open, near_hint, one_of
from yurt.scheduler.constraints.versions import is_constraint
from yurt.sdk.value import NANOSECONDS, duration_text
from yurt.structs import status
from yurt.structs.constraint import Affinity, Constraint, Spread
from yurt.structs.job import Job, TaskGroup
from yurt.structs.policies import ReschedulePolicy, RestartPolicy

_COMPARISONS = frozenset({"=", "==", "is", "!=", "not", "<", "<=", ">", ">="})
_SETS = frozenset({"set_contains", "set_contains_all", "set_contains_any"})
_VERSIONS = frozenset({"version", "semver"})
OPERATORS = ("regexp", "version", "semver", "set_contains", "set_contains_any", "is_set", "is_not_set")
_RECONCILE = frozenset({"", "best_score", "longest_running", "keep_original", "keep_replacement"})
_HEALTH_CHECKS = ("checks", "task_states", "manual")
RESTART_MODES = ("fail", "delay")
RESTART_INTERVAL_MIN = 5 * NANOSECONDS
RESCHEDULE_DELAY_MIN = 5 * NANOSECONDS
RESCHEDULE_INTERVAL_MIN = 15 * NANOSECONDS


def constraint_problems(constraints: Iterable[Constraint], what: str) -> Iterator[str]:
    """Problems of constraints, each with its number."""
    for number, constraint in enumerate(constraints, start=1):
        for text in _one_constraint(constraint):
            yield f"{what} {number} validation failed: {text}"


def _one_constraint(constraint: Constraint) -> Iterator[str]:
    operand, target, value = constraint.operand, constraint.l_target, constraint.r_target
    if not operand:
        yield "Missing constraint operand"
        return
    if operand == "distinct_property" and value and not (value.isascii() and value.isdigit() and int(value) >= 1):
        yield f"Distinct Property must have an allowed count of 1 or greater; got {value[:64]}"
    if operand in ("is_set", "is_not_set") and value:
        yield f'Operator "{operand}" does not support an RTarget'
    if operand == "distinct_hosts":
        return
    yield from _operand_problems(operand, value, "constraint")
    if not target:
        yield f"No LTarget provided but is required by constraint: give the attribute that {operand!r} looks at"


def _operand_problems(operand: str, value: str, what: str) -> Iterator[str]:
    if operand == "regexp":
        from yurt.regexps import problem as pattern_problem  # Few jobs have regular expressions.

        problem = pattern_problem(value)
        if problem:
            yield f"Regular expression failed to compile: {problem}"
    elif operand in _VERSIONS:
        if not is_open(value) and not is_constraint(value, strict=operand == "semver"):
            yield f"{operand.capitalize()} {what} is invalid: Malformed constraint: {value[:64]}"
    elif operand in _SETS:
        if not value:
            yield "Set contains constraint requires an RTarget"
    elif operand not in _COMPARISONS | {"distinct_property", "is_set", "is_not_set"}:
        comparisons, hint = "a comparison (=, !=, <, <=, >, >=)", near_hint(operand, OPERATORS)
        yield f'Unknown {what} type "{operand[:64]}": use {comparisons}, {one_of(OPERATORS)}{hint}'


def affinity_problems(affinities: tuple[Affinity, ...], what: str, job_type: str) -> Iterator[str]:
    """Problems of affinities."""
    if affinities and job_type in (status.JOB_SYSTEM, status.JOB_SYSBATCH):
        yield f"{job_type.capitalize()} jobs may not have an affinity block"
        return
    for number, affinity in enumerate(affinities, start=1):
        for text in _one_affinity(affinity):
            yield f"{what} {number} validation failed: {text}"


def _one_affinity(affinity: Affinity) -> Iterator[str]:
    if not affinity.operand:
        yield "Missing affinity operand"
    elif affinity.operand in ("distinct_hosts", "distinct_property", "is_set", "is_not_set"):
        yield f'Unknown affinity operator "{affinity.operand}"'
    else:
        yield from _operand_problems(affinity.operand, affinity.r_target, "affinity")
    if not affinity.l_target:
        yield "No LTarget provided but is required by affinity: give the attribute it looks at"
    if not -100 <= affinity.weight <= 100:
        yield "Affinity weight must be within the range [-100,100]"
    elif affinity.weight == 0:
        yield "Affinity weight cannot be zero"


def spread_problems(spreads: tuple[Spread, ...], what: str, job_type: str) -> Iterator[str]:
    """Problems of spreads."""
    if spreads and job_type in (status.JOB_SYSTEM, status.JOB_SYSBATCH):
        yield f"{job_type.capitalize()} jobs may not have a spread block"
        return
    for number, spread in enumerate(spreads, start=1):
        for text in _one_spread(spread):
            yield f"{what} {number} validation failed: {text}"


def _one_spread(spread: Spread) -> Iterator[str]:
    if not spread.attribute:
        yield "Missing spread attribute"
    if not 1 <= spread.weight <= 100:
        yield "Spread block must have a positive weight from 0 to 100"
    for name in duplicates(target.value for target in spread.spread_target):
        yield f'Spread target value "{name}" already defined'
    for target in spread.spread_target:
        if not 0 <= target.percent <= 100:
            yield f'Spread target percentage for value "{target.value[:64]}" must be between 0 and 100'
    total = sum(target.percent for target in spread.spread_target)
    if total > 100:
        yield f"Sum of spread target percentages must not be greater than 100%; got {total}%"


def policy_problems(job: Job, group: TaskGroup) -> Iterator[str]:
    """Problems of a group's restart, reschedule, update, migrate and disconnect blocks."""
    yield from restart_problems(group.restart_policy)
    yield from _reschedule_problems(job.type, group)
    yield from _update_problems(job.type, group)
    yield from _migrate_problems(job.type, group)
    yield from _disconnect_problems(job.type, group)


def restart_problems(policy: RestartPolicy) -> Iterator[str]:
    """Problems of a restart policy."""
    if policy.mode not in RESTART_MODES:
        hint = near_hint(policy.mode, RESTART_MODES)
        yield f'Unsupported restart mode: "{policy.mode[:64]}"; use {one_of(RESTART_MODES)}{hint}'
    if policy.attempts < 0 or policy.delay < 0:
        yield "Restart attempts and delay can't be negative"
    if policy.attempts == 0 and policy.mode != "fail":
        yield f'Restart policy "{policy.mode[:64]}" with 0 attempts is ambiguous: use mode "fail" or more attempts'
    if policy.interval < RESTART_INTERVAL_MIN:
        least, interval = duration_text(RESTART_INTERVAL_MIN), duration_text(policy.interval)
        yield f"Interval can not be less than {least} (got {interval})"
    elif policy.attempts * policy.delay > policy.interval:
        yield (
            f"Nomad can't restart the TaskGroup {policy.attempts} times in an interval of "
            f"{duration_text(policy.interval)} with a delay of {duration_text(policy.delay)}"
        )


def _reschedule_problems(job_type: str, group: TaskGroup) -> Iterator[str]:
    policy = group.reschedule_policy
    if policy is None or (
        policy.attempts == 0 and not policy.unlimited and policy.delay == 0 and not policy.delay_function
    ):
        return
    if job_type in (status.JOB_SYSTEM, status.JOB_SYSBATCH):
        if policy.attempts or policy.unlimited:
            yield f"{job_type.capitalize()} jobs should not have a reschedule policy"
        return
    if policy.attempts == 0 and not policy.unlimited:
        return
    if policy.attempts and policy.unlimited:
        yield "Reschedule Policy with unlimited = true and attempts > 0 is ambiguous: set one of them"
    if policy.delay_function not in DELAY_FUNCTIONS:
        name = policy.delay_function
        hint = near_hint(name, DELAY_FUNCTIONS)
        yield f'Invalid delay function "{name[:64]}", must be one of [{" ".join(DELAY_FUNCTIONS)}]{hint}'
    if policy.delay < RESCHEDULE_DELAY_MIN:
        yield f"Delay cannot be less than {duration_text(RESCHEDULE_DELAY_MIN)} (got {duration_text(policy.delay)})"
    if policy.delay_function in ("exponential", "fibonacci") and policy.max_delay < policy.delay:
        yield "Max Delay cannot be less than Delay"
    if not policy.unlimited:
        yield from _reschedule_interval_problems(policy)


def _reschedule_interval_problems(policy: ReschedulePolicy) -> Iterator[str]:
    if policy.interval < RESCHEDULE_INTERVAL_MIN:
        least, interval = duration_text(RESCHEDULE_INTERVAL_MIN), duration_text(policy.interval)
        yield f"Interval cannot be less than {least} (got {interval})"
        return
    needed = _reschedule_time(policy)
    if needed > policy.interval:
        yield (
            f"Nomad can only make fewer than {policy.attempts} attempts in {duration_text(policy.interval)} with "
            f'initial delay {duration_text(policy.delay)} and delay function "{policy.delay_function}": they need '
            f"{duration_text(needed)}"
        )


def _reschedule_time(policy: ReschedulePolicy) -> int:
    """The total duration of all attempts of a limited policy, in nanoseconds."""
    if policy.delay_function not in ("exponential", "fibonacci"):
        return policy.attempts * policy.delay
    total, delay, before, done = 0, int(policy.delay), 0, 0
    while done < policy.attempts and 0 < delay < policy.max_delay:
        total, done = total + delay, done + 1
        before, delay = delay, delay * 2 if policy.delay_function == "exponential" else delay + before
    return total + (policy.attempts - done) * min(delay, policy.max_delay)


def _update_problems(job_type: str, group: TaskGroup) -> Iterator[str]:
    update = group.update
    if update is None:
        return
    if job_type not in (status.JOB_SERVICE, status.JOB_SYSTEM):
        yield f'Job type "{job_type[:64]}" does not allow update block'
        return
    if update.max_parallel == 0:
        return
    if update.health_check not in _HEALTH_CHECKS:
        hint = near_hint(update.health_check, _HEALTH_CHECKS)
        choices = one_of(_HEALTH_CHECKS)
        yield f'Invalid health check given: "{update.health_check[:64]}"; use {choices}{hint}'
    if update.max_parallel < 0:
        yield f"Max parallel can not be less than zero: {update.max_parallel} < 0"
    if update.canary < 0:
        yield f"Canary count can not be less than zero: {update.canary} < 0"
    if update.canary > 100 and job_type == status.JOB_SYSTEM:
        yield f"Canary of a system job is the percentage of its nodes, at most 100: {update.canary}"
    if update.canary == 0 and update.auto_promote:
        yield "Auto Promote requires a Canary count greater than zero"
    if update.min_healthy_time < 0:
        yield f"Minimum healthy time may not be less than zero: {update.min_healthy_time}"
    if update.healthy_deadline <= 0:
        yield f"Healthy deadline must be greater than zero: {update.healthy_deadline}"
    if update.progress_deadline < 0:
        yield f"Progress deadline must be zero or greater: {update.progress_deadline}"
    if update.min_healthy_time >= update.healthy_deadline:
        yield "Minimum healthy time must be less than healthy deadline"
    if update.progress_deadline and update.healthy_deadline >= update.progress_deadline:
        yield "Healthy deadline must be less than progress deadline"
    if update.stagger <= 0:
        yield f"Stagger must be greater than zero: {update.stagger}"


def _migrate_problems(job_type: str, group: TaskGroup) -> Iterator[str]:
    migrate = group.migrate
    if migrate is None:
        return
    if job_type != status.JOB_SERVICE:
        yield f'Job type "{job_type[:64]}" does not allow migrate block'
        return
    if migrate.max_parallel < 0:
        yield f"MaxParallel must be >= 0 but found {migrate.max_parallel}"
    checks = ("checks", "task_states")
    if migrate.health_check not in checks:
        hint = near_hint(migrate.health_check, checks)
        yield f'HealthCheck must be "checks" or "task_states" but found "{migrate.health_check[:64]}"{hint}'
    if migrate.min_healthy_time < 0:
        yield f"MinHealthyTime is {migrate.min_healthy_time} and must be >= 0"
    if migrate.healthy_deadline < 0:
        yield f"HealthyDeadline is {migrate.healthy_deadline} and must be >= 0"
    if migrate.min_healthy_time > migrate.healthy_deadline:
        yield "MinHealthyTime must be less than HealthyDeadline"


def _disconnect_problems(job_type: str, group: TaskGroup) -> Iterator[str]:
    block = group.disconnect
    if block is None:
        return
    if block.lost_after < 0:
        yield "lost_after cannot be a negative duration"
    if block.stop_on_client_after < 0:
        yield "stop_on_client_after cannot be a negative duration"
    if block.stop_on_client_after and job_type not in (status.JOB_SERVICE, status.JOB_BATCH):
        yield "stop_on_client_after can only be used in service or batch jobs"
    if block.lost_after and block.stop_on_client_after:
        yield "stop_on_client_after and lost_after cannot be used together"
    if block.reconcile not in _RECONCILE:
        choices = ", ".join(sorted(_RECONCILE - {""}))
        hint = near_hint(block.reconcile, _RECONCILE)
        yield f'reconcile "{block.reconcile[:64]}" is not one of: {choices}{hint}'
