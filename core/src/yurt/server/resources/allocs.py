"""Operations on allocations that need no client."""

from __future__ import annotations

from yurt.fsm.basis import expectation
from yurt.fsm.eval_triggers import evaluation_of
from yurt.sdk.errors import NotFound
from yurt.sdk.value import Duration, replace
from yurt.server.log.replica import Replica
from yurt.server.results import AllocStopped, IdleDeferral
from yurt.state import Snapshot
from yurt.structs import status
from yurt.structs.alloc import DesiredTransition, IdleState
from yurt.structs.commands import KeepAlloc, SetDesiredTransitions


class Allocs:
    """Operations on allocations."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    async def stop(self, alloc_id: str, *, no_shutdown_delay: bool = False, reschedule: bool = False) -> AllocStopped:
        """Stop an allocation; a service one is replaced, a batch one only with `reschedule`."""
        mint = self._replica.mint()
        eval_id = mint.new_id()

        async def decision(state: Snapshot) -> SetDesiredTransitions:
            alloc = state.allocs.get(alloc_id)
            job = None if alloc is None else state.jobs.get((alloc.namespace, alloc.job_id)) or alloc.job
            if alloc is None or job is None:
                raise NotFound("allocation not found")
            is_batch = job.type in (status.JOB_BATCH, status.JOB_SYSBATCH)
            transition = DesiredTransition(
                migrate=True,
                no_shutdown_delay=no_shutdown_delay,
                reschedule=reschedule,
                migrate_disable_placement=is_batch and not reschedule,
            )
            evaluation = replace(evaluation_of(job, status.TRIGGER_ALLOC_STOP, mint), id=eval_id)
            return SetDesiredTransitions(
                transitions={alloc_id: transition},
                evaluations=(evaluation,),
                now=mint.now,
                based_on=(expectation(state, "jobs", job.key),),
            )

        committed = await self._replica.decide(decision)
        return AllocStopped(eval_id=eval_id, index=committed.index)

    async def keep(self, alloc_id: str, duration: Duration) -> IdleDeferral:
        """Put off the end of an idle allocation; whether that is possible is decided in the log."""
        now = self._replica.env.now()
        committed = await self._replica.propose(KeepAlloc(alloc_id=alloc_id, duration=duration, now=now))
        alloc = committed.state.allocs.get(alloc_id)
        idle = alloc.idle if alloc is not None and alloc.idle is not None else IdleState()
        return IdleDeferral(kept_until=idle.kept_until, keeps=idle.keeps, index=committed.index)
