"""The reconciler's results for one group: requests, and the counts they contribute to."""

from __future__ import annotations

from yurt.scheduler.reconcile.followups import followups
from yurt.scheduler.reconcile.group_context import GroupContext
from yurt.scheduler.reconcile.results import Results, StopRequest
from yurt.sdk.value import replace
from yurt.structs.alloc import Allocation
from yurt.structs.evaluation import DesiredUpdates
from yurt.structs.plan import AttributeUpdate
from yurt.structs.status import ClientStatus, NotGiven, Trigger


class GroupResults:
    """Records the results of one group among those of its job; `counts` are those of `DesiredUpdates`."""

    __slots__ = ("_context", "counts", "of_job")

    def __init__(self, context: GroupContext, of_job: Results) -> None:
        self._context = context
        self.of_job = of_job
        self.counts = dict.fromkeys(DesiredUpdates.__struct_fields__, 0)

    def stop(
        self,
        alloc: Allocation,
        description: str,
        client_status: ClientStatus | NotGiven = "",
        followup_eval_id: str = "",
    ) -> None:
        """Stop an allocation."""
        self.counts["stop"] += 1
        self.of_job.stops.append(StopRequest(alloc, description, client_status, followup_eval_id))

    def change(self, alloc: Allocation, **changes: object) -> None:
        """Change attributes of a running allocation."""
        update = self.of_job.attributes.get(alloc.id) or AttributeUpdate(id=alloc.id, node_id=alloc.node_id)
        self.of_job.attributes[alloc.id] = replace(update, **changes)

    def follow_up(self, due_at: list[tuple[Allocation, int]], trigger: Trigger) -> dict[str, str]:
        """Schedule evaluations at these times; returns the evaluation of each allocation."""
        context = self._context
        made, eval_of = followups(
            context.job, due_at, trigger, ids=context.ids, parent=context.evaluation, now=context.now
        )
        self.of_job.followups.extend(made)
        return eval_of

    def follow_up_and_note(self, due_at: list[tuple[Allocation, int]], trigger: Trigger) -> None:
        """Schedule evaluations at these times and record them in the allocations."""
        eval_of = self.follow_up(due_at, trigger)
        for alloc, _ in due_at:
            self.change(alloc, followup_eval_id=eval_of[alloc.id])

    def end(self) -> None:
        """Complete the results."""
        assert min(self.counts.values()) >= 0, self.counts
        self.of_job.desired[self._context.group.name] = DesiredUpdates(**self.counts)
