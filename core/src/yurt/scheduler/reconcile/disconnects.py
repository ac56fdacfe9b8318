"""Allocations of disconnected and returning clients: those that wait, those to replace, and the choice between two.

An unknown allocation with a replacement counts for nothing until its client returns. Then one of both stays (`decide`
of `reconnect`), and the other is stopped (invariant D3 of docs/explanation/invariants.md).
"""

from __future__ import annotations

from collections.abc import Collection

from yurt.scheduler.reconcile import results as why
from yurt.scheduler.reconcile.classify import Classified, is_unplaced, strategy_of
from yurt.scheduler.reconcile.client_stop import client_stops_by
from yurt.scheduler.reconcile.group_context import GroupContext
from yurt.scheduler.reconcile.group_results import GroupResults
from yurt.scheduler.reconcile.reconnect import decide
from yurt.scheduler.reconcile.replacements import Replacements
from yurt.structs.alloc import Allocation
from yurt.structs.status import (
    CLIENT_FAILED,
    CLIENT_LOST,
    CLIENT_TERMINAL,
    CLIENT_UNKNOWN,
    SERVER_TERMINAL,
    TRIGGER_MAX_DISCONNECT,
    TRIGGER_RETRY_FAILED_ALLOC,
)


class Disconnects:
    """The disconnected allocations of one group."""

    def __init__(self, context: GroupContext, results: GroupResults) -> None:
        self._context = context
        self._results = results
        self.waiting: dict[str, str] = {}
        """Lost allocations that their clients will stop, and the evaluations at those times."""

    def take_out_replaced(self, untainted: list[Allocation]) -> list[Allocation]:
        """Take out the unknown allocations with replacements: they wait until their client returns.

        They never count, whether their replacement runs, failed or found no room yet; with `replace = false` they do.
        """
        away = [a for a in untainted if a.client_status == CLIENT_UNKNOWN and strategy_of(a).replace]
        replaced_ids = {alloc.id for alloc in away}
        untainted[:] = [alloc for alloc in untainted if alloc.id not in replaced_ids]
        self._results.counts["ignore"] += len(away)
        return away

    def reconnect(
        self, classes: Classified, present: Replacements, away: list[Allocation], *, canary_ids: Collection[str]
    ) -> None:
        """Choose between each returning allocation and its replacements; the others leave all sets.

        A canary that is not promoted yet (`canary_ids`) has the name of a group member, which does not replace it.

        A replacement that has failed takes part: when the original stays, it is not replaced any more. An original
        that is stopped leaves a place to fill when nobody stands in for it.
        """
        for original in classes.reconnecting:
            everyone = (*present.present, *present.now, *classes.migrate)
            rivals = [
                alloc
                for alloc in everyone
                if alloc.name == original.name
                and alloc.id != original.id
                and (alloc.id in canary_ids) == (original.id in canary_ids)
                and _may_replace(alloc)
            ]
            keeps, stopped = decide(original, rivals, self._context.job)
            stopped_ids = {loser.id for loser in stopped}
            assert keeps != (original.id in stopped_ids), (
                original.id,
                "of an original and its replacement one stays (D3)",
            )
            assert stopped_ids <= {original.id, *(rival.id for rival in rivals)}, (original.id, stopped_ids)
            for loser in stopped:
                self._results.stop(loser, why.NOT_NEEDED_RECONNECT)
            # At once, before the next original: a replacement that has lost does not compete any more.
            for allocs in (present.present, present.now, classes.migrate):
                allocs[:] = [alloc for alloc in allocs if alloc.id not in stopped_ids]
            present.later[:] = [pair for pair in present.later if pair[0].id not in stopped_ids]
            if keeps:
                self._results.counts["reconnect"] += 1
                present.present.append(original)
                # Without its time limit: a failure later needs a follow-up of its own.
                state = (original.client_status, self._context.now)
                self._results.change(original, append_state=state, followup_eval_id="")
            else:
                away.append(original)

    def disconnect(self, disconnecting: list[Allocation]) -> list[Allocation]:
        """Mark allocations unknown and schedule their time limits; returns those to replace meanwhile."""
        due_at = []
        for alloc in disconnecting:
            strategy = strategy_of(alloc)
            if strategy.lost_after > 0:
                due_at.append((alloc, self._context.now + strategy.lost_after))
            self._results.counts["disconnect"] += 1
            self._results.change(
                alloc,
                client_status=CLIENT_UNKNOWN,
                client_description=why.UNKNOWN,
                append_state=(CLIENT_UNKNOWN, self._context.now),
            )
        self._results.follow_up_and_note(due_at, TRIGGER_MAX_DISCONNECT)
        return [alloc for alloc in disconnecting if strategy_of(alloc).replace]

    def wait_for_clients(self, lost: list[Allocation], allocs: list[Allocation]) -> bool:
        """Delay the replacement of lost allocations until their clients have stopped them.

        The evaluation that was made for that moment has waited, whatever this server's clock says: no other one comes.
        """
        now = self._context.now
        due_at = [(alloc, at) for alloc in lost if (at := client_stops_by(alloc, now)) > now]
        self.waiting = self._results.follow_up(due_at, TRIGGER_RETRY_FAILED_ALLOC)
        return bool(due_at) or any(
            alloc.client_status == CLIENT_LOST
            and alloc.followup_eval_id not in ("", self._context.evaluation.id)
            and not alloc.next_allocation
            and client_stops_by(alloc, now) > now
            for alloc in allocs
        )

    def awaited(self, allocs: list[Allocation]) -> list[Allocation]:
        """The lost allocations that their clients have stopped by now, and that nothing has replaced.

        Their replacements are linked, like those of others that are lost: whatever the deployment, they are permitted.
        """
        now, job = self._context.now, self._context.job
        return [
            alloc
            for alloc in allocs
            if alloc.client_status == CLIENT_LOST
            and alloc.followup_eval_id
            and not alloc.next_allocation
            and not is_unplaced(alloc)
            and client_stops_by(alloc, now)
            and alloc.job is not None
            and alloc.job.create_index == job.create_index
        ]


def _may_replace(alloc: Allocation) -> bool:
    """Whether the allocation is still desired: live, or failed and reschedulable."""
    return alloc.desired_status not in SERVER_TERMINAL and (
        alloc.client_status not in CLIENT_TERMINAL or alloc.client_status == CLIENT_FAILED
    )
