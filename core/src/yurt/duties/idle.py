"""Decides which idle allocations end, and when. Pure.

Clients say how long allocations have been idle, by their own monotonic clocks; only that counts, so the clock of a
server makes nothing idle. The server's clock decides only whether interactive hours hold and for how long an end is put
off. An end is announced first. The announcement is withdrawn when its reason disappears: the devices are used again, a
user keeps the allocation, interactive hours begin, or nothing waits for the devices.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

from yurt.rules.task_schedule import window_at
from yurt.rules.validation.idle import idle_schedule
from yurt.sdk.errors import Invalid
from yurt.sdk.value import NANOSECONDS, UnixNano
from yurt.state import Snapshot
from yurt.structs import status
from yurt.structs.alloc import Allocation
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.policies import IdlePolicy
from yurt.structs.predicates import alloc_index, asks_devices, is_terminal
from yurt.structs.queueing.idle import ALWAYS, SHRINK, STOP, idle_policy_of, is_idle, is_kept, least_of

NEVER: Final = 2**62
WAITED_MIN: Final = 3 * NANOSECONDS
"""The age in nanoseconds from which a pending evaluation counts as waiting for capacity rather than for a worker."""
HOUR_S: Final = 3600.0


GroupKey = tuple[str, str, str]
"""(namespace, job id, task group)."""


class EndingTogether(NamedTuple):
    """Idle allocations that end together: one, or the members of a gang."""

    policy: IdlePolicy
    allocs: tuple[Allocation, ...]

    @property
    def first(self) -> str:
        """The id of the first allocation, which identifies all of them."""
        return self.allocs[0].id

    @property
    def group(self) -> GroupKey:
        """Their task group."""
        first = self.allocs[0]
        return (first.namespace, first.job_id, first.task_group)

    @property
    def waiting_eval(self) -> str:
        """The evaluation for which their end is announced."""
        return next((alloc.idle.waiting_eval for alloc in self.allocs if alloc.idle is not None), "")

    @property
    def reports(self) -> dict[str, int]:
        """The index of the last report of each allocation, by allocation id."""
        return {alloc.id: alloc.idle.report_index for alloc in self.allocs if alloc.idle is not None}

    @property
    def is_announced(self) -> bool:
        """Whether the end of all of them is announced."""
        return all(alloc.idle is not None and alloc.idle.ends_at for alloc in self.allocs)

    @property
    def ends_at(self) -> int:
        """The announced end, unix ns; 0 without an announcement."""
        return max((alloc.idle.ends_at for alloc in self.allocs if alloc.idle is not None), default=0)


def ending_together(state: Snapshot, alloc_ids: Iterable[str], now: UnixNano) -> list[EndingTogether]:
    """The idle allocations whose window has passed, in an order that does not depend on the order of the ids."""
    due = [
        alloc for alloc in map(state.allocs.get, sorted(alloc_ids)) if alloc is not None and is_due(state, alloc, now)
    ]
    found: list[EndingTogether] = []
    gangs: set[tuple[str, str, str]] = set()
    for alloc in due:
        policy = idle_policy_of(alloc)
        assert policy is not None and alloc.job is not None, alloc.id
        group, key = alloc.job.group(alloc.task_group), (alloc.namespace, alloc.job_id, alloc.task_group)
        if lowers_count(alloc) and not _may_stop(state, alloc):
            continue
        if group is None or group.gang is None:
            found.append(EndingTogether(policy, (alloc,)))
        elif key not in gangs:
            gangs.add(key)
            found += _members(state, key, policy, due)
    return _without_surplus(state, found)


def lowers_count(alloc: Allocation) -> bool:
    """Whether the end of an allocation lowers the count of its group: it is one of a service that is stopped."""
    policy = idle_policy_of(alloc)
    return policy is not None and policy.action == STOP and alloc.job is not None and alloc.job.type != status.JOB_BATCH


def as_one_step(state: Snapshot, endings: Iterable[EndingTogether]) -> list[EndingTogether]:
    """The ends with those of one service group together: one version of its job has the count without all of them.

    One by one, each would be a version of the job, and the deployment of the first would put off the others.
    """
    found: list[EndingTogether] = []
    at: dict[GroupKey, int] = {}
    for each in endings:
        first, key = each.allocs[0], each.group
        if key in at and len(found[at[key]].allocs) < _spare(state, first):
            found[at[key]] = found[at[key]]._replace(allocs=(*found[at[key]].allocs, *each.allocs))
        elif key not in at:
            if lowers_count(first) and each.policy.when == ALWAYS:
                at[key] = len(found)
            found.append(each)
    return found


def _without_surplus(state: Snapshot, found: list[EndingTogether]) -> list[EndingTogether]:
    """Without those of a service that its group cannot lose: an end is announced only if it can follow.

    Of those that end for a waiting job, it is not known yet which.
    """
    taken: dict[GroupKey, int] = {}
    surplus: set[str] = set()
    for each in sorted(found, key=lambda one: (not one.is_announced, one.first)):
        first, key = each.allocs[0], each.group
        if lowers_count(first) and each.policy.when == ALWAYS:
            taken[key] = taken.get(key, 0) + 1
            if taken[key] > _spare(state, first):
                surplus.add(each.first)
    return [each for each in found if each.first not in surplus]


def _members(
    state: Snapshot, key: tuple[str, str, str], policy: IdlePolicy, due: list[Allocation]
) -> Iterator[EndingTogether]:
    """The members of a gang that end: all if all are due, or, with the action "shrink", the due ones above its
    minimum."""
    idle = [alloc for alloc in due if (alloc.namespace, alloc.job_id, alloc.task_group) == key]
    if policy.action != SHRINK:
        live = [
            alloc for alloc in state.allocs_of_job(*key[:2]) if alloc.task_group == key[2] and not is_terminal(alloc)
        ]
        if len(live) == len(idle):
            yield EndingTogether(policy, tuple(idle))
        return
    job = state.jobs.get(key[:2])
    group = job.group(key[2]) if job is not None else None
    if group is None or group.gang is None:
        return
    # A gang may run with fewer members than its count, which is the number that it may grow to.
    present = sum(1 for alloc in state.allocs.each_where("live", key[:2]) if alloc.task_group == key[2])
    spare = min(group.count, present) - least_of(group, SHRINK)
    # Ranks follow the indexes in names: the members with the highest end, so that the others keep their ranks.
    last = sorted(idle, key=lambda alloc: (alloc_index(alloc.name), alloc.id), reverse=True)[: max(0, spare)]
    if last:
        yield EndingTogether(policy, tuple(last))


def _may_stop(state: Snapshot, alloc: Allocation) -> bool:
    """Whether the group of a service may lose one more allocation."""
    return _spare(state, alloc) > 0


def _spare(state: Snapshot, alloc: Allocation) -> int:
    """The number of allocations that the group of a service may lose."""
    job = state.jobs.get((alloc.namespace, alloc.job_id))
    group = job.group(alloc.task_group) if job is not None else None
    return 0 if group is None else group.count - least_of(group, STOP)


def is_due(state: Snapshot, alloc: Allocation, now: UnixNano) -> bool:
    """Whether an allocation has been idle for its whole window, its node is in contact and no user keeps it."""
    idle, policy, node = alloc.idle, idle_policy_of(alloc), state.nodes.get(alloc.node_id)
    if not is_idle(alloc) or idle is None or policy is None:
        return False
    if node is None or node.status in status.NODE_UNRESPONSIVE or is_kept(idle, policy, now):
        return False
    return idle.idle_for >= window_of(policy, now)


def window_of(policy: IdlePolicy, now: UnixNano) -> int:
    """The idle time in nanoseconds after which an allocation ends, by the policy in force at `now`."""
    block = policy.interactive
    if block is None:
        return policy.window
    if block.hours is None:
        return block.window or policy.window
    try:
        is_open = window_at(idle_schedule(block.hours), now, longest_s=HOUR_S).is_open
    except Invalid:  # a time zone that this server's machine does not have
        is_open = True
    return (block.window or NEVER) if is_open else policy.window


def ending_now(state: Snapshot) -> list[Allocation]:
    """Allocations that are ending because they were idle and whose clients have not reported the end yet."""
    stopping = (
        alloc for name in sorted(state.namespaces.keys()) for alloc in state.allocs.each_where("stopping", name)
    )
    return [alloc for alloc in stopping if alloc.idle is not None and alloc.idle.action]


def waiting_for_devices(state: Snapshot, pool: str, named: Collection[str], now: UnixNano) -> list[Evaluation]:
    """Evaluations of jobs in the pool that wait and ask for devices: `named` ones first, then by priority, then by age.

    A pending evaluation that is new or delayed does not wait, unless an announcement names it. A job that was itself
    requeued because it was idle does not count: two such jobs would evict each other in turns.
    """
    found: list[Evaluation] = []
    for name in (status.EVAL_BLOCKED, status.EVAL_PENDING):
        for evaluation in state.evals.where("status", name):
            is_new = evaluation.wait_until > now or evaluation.create_time + WAITED_MIN > now
            if name == status.EVAL_PENDING and is_new and evaluation.id not in named:
                continue
            job = state.jobs.get((evaluation.namespace, evaluation.job_id))
            if job is None or job.stop or job.node_pool != pool:
                continue
            if asks_devices(job) and not _was_put_back(state, job):
                found.append(evaluation)
    found.sort(key=lambda each: (each.id not in named, -each.priority, each.create_index, each.id))
    return found


def _was_put_back(state: Snapshot, job: Job) -> bool:
    """Whether an allocation of the job ended because it was idle and has not been replaced yet."""
    return any(
        alloc.idle is not None and alloc.idle.action and not alloc.next_allocation
        for alloc in state.allocs_of_job(*job.key)
    )


def reason_of(ending: EndingTogether, waiting: Evaluation | None) -> str:
    """The reason of an end as a text: the time since which the devices are idle, the measurement, and the waiting job
    as far as the owner may see it."""
    first = ending.allocs[0]
    idle = first.idle
    assert idle is not None, first.id
    since = datetime.fromtimestamp(idle.since / NANOSECONDS, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    text = f"Idle since {since} ({idle.text})"
    if len(ending.allocs) > 1:
        whole = "group" if lowers_count(first) else "gang"
        others = len(ending.allocs) - 1
        more = "is another member" if others == 1 else f"are {others} other members"
        text += f", as {more} of its {whole}"
    if ending.policy.source:
        text += f", by the policy of {ending.policy.source}"
    if waiting is None:
        return text
    who = f'job "{waiting.job_id}"' if waiting.namespace == first.namespace else "a job of another namespace"
    return f"{text}; {who} waits and fits on its devices"
