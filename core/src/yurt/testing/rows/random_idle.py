"""Random commands on allocations that do not use their devices."""

from __future__ import annotations

from random import Random
from typing import Final

from yurt.sdk.value import UnixNano, seconds
from yurt.state import Snapshot
from yurt.structs import commands as c
from yurt.structs.alloc import Allocation
from yurt.structs.commands.base import EvalSeed
from yurt.structs.policies import Gang, IdlePolicy, Rendezvous
from yurt.structs.predicates import is_terminal
from yurt.structs.queueing.idle import ALWAYS, CONTENDED, REQUEUE, SHRINK, STOP, idle_policy_of
from yurt.structs.resources import RequestedDevice, Resources
from yurt.structs.task import Task
from yurt.testing import factories

GANG: Final = Gang(min=1, elastic=True, rendezvous=Rendezvous(framework="none", port="meet"))


def idle_task(random: Random) -> Task:
    """A task of a group with a policy."""
    action = random.choice((REQUEUE, STOP, SHRINK))
    policy = IdlePolicy(window=seconds(60), action=action, when=random.choice((ALWAYS, CONTENDED)))
    return factories.task(resources=Resources(devices=(RequestedDevice(name="gpu", idle=policy),)))


def idle_command(state: Snapshot, random: Random, now: UnixNano) -> c.AnyCommand:
    """The next step of an allocation with a policy, or one that does not fit it."""
    live = [alloc for _, alloc in sorted(state.allocs.items()) if idle_policy_of(alloc) and not is_terminal(alloc)]
    if not live or random.randrange(8) == 0:
        return c.KeepAlloc(alloc_id=factories.number_id(99, kind=9), duration=seconds(5), now=now)
    alloc = random.choice(live)
    idle = alloc.idle
    if idle is None or idle.idle_for <= 0:
        return _report(alloc, random, now)
    reports = {
        each.id: each.idle.report_index + (random.randrange(8) == 0)
        for each in _named(live, alloc, random)
        if each.idle is not None
    }
    if random.randrange(6) == 0:
        return c.KeepAlloc(alloc_id=alloc.id, duration=seconds(random.choice((0, 1, 30))), now=now)
    if not idle.ends_at:
        return c.AnnounceIdleEnd(reports=reports, ends_at=now, reason="idle", now=now)
    policy = idle_policy_of(alloc)
    waiting = next(iter(sorted(state.evals.keys())), "")
    return c.EndIdleAllocs(
        reports=reports,
        action=policy.action if policy is not None else STOP,
        reason="idle",
        waiting_eval=waiting,
        seed=EvalSeed(seed=f"idle-{now}", now=now),
        now=now,
    )


def _named(live: list[Allocation], alloc: Allocation, random: Random) -> list[Allocation]:
    """One allocation, with those of its group, or rarely with any others, which the command may not name together."""
    if random.randrange(8) == 0:
        return random.sample(live, random.randint(1, len(live)))
    key = (alloc.namespace, alloc.job_id, alloc.task_group)
    of_group = [each for each in live if (each.namespace, each.job_id, each.task_group) == key]
    return random.choice(([alloc], of_group))


def _report(alloc: Allocation, random: Random, now: UnixNano) -> c.UpdateAllocsFromClient:
    report = c.IdleReport(
        idle_for=seconds(random.choice((0, 30, 60))), text="busy 0 %", job_version=random.choice((None, 0, 9))
    )
    update = c.AllocUpdate(id=alloc.id, node_id=alloc.node_id, client_status="running", idle=report)
    return c.UpdateAllocsFromClient(updates=(update,), now=now)
