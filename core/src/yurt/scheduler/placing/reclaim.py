"""Reclaims capacity: ends allocations of borrowers for a job within the guarantee of its quota.

Which allocations it may end, `scheduler.capacity.guarantees` says. Among the nodes, the one is taken whose victims lose
the least work: the run time since their last checkpoint, times what they hold; batch jobs go before services. A member
of a gang goes with its whole gang where that would have too few members without it.

Choosing the victims of a node costs far more than bounding what they lose at least, by its borrower with the least to
lose. So nodes are tried in the order of their bounds until none can be better than the best one found. While a plan
grows, borrowers lose their surplus and end, and nothing is lent: bounds stay bounds, and a node without sufficient
victims has none later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from yurt.scheduler.capacity.ask import GroupAsk, NodeGrant
from yurt.scheduler.capacity.guarantees import Guarantees
from yurt.scheduler.capacity.view import ClusterView
from yurt.scheduler.feasibility.masks import BoolArray
from yurt.scheduler.placing.preemption import fit, is_of_use, lost_work_of
from yurt.state.namespace_usage import counted
from yurt.structs.alloc import Allocation
from yurt.structs.status import JOB_SERVICE

Loss = tuple[int, int, int]
"""The loss in the order of comparison: services that end, lost work in MHz x seconds, allocations that end."""


class VictimBundle(NamedTuple):
    """Allocations that can only end together."""

    allocs: tuple[Allocation, ...]
    loss: Loss
    quota: str
    """The quota for whose guarantee they end."""


class ReclaimedNode(NamedTuple):
    """A node, its grant and the bundles that end, which the view has released."""

    row: int
    grant: NodeGrant
    bundles: tuple[VictimBundle, ...]

    @property
    def victims(self) -> tuple[Allocation, ...]:
        """All allocations that end."""
        return tuple(alloc for bundle in self.bundles for alloc in bundle.allocs)

    @property
    def reclaimed_for(self) -> Mapping[str, str]:
        """The quota for which each victim ends, by allocation id."""
        return {alloc.id: bundle.quota for bundle in self.bundles for alloc in bundle.allocs}

    @property
    def loss(self) -> Loss:
        """The total loss."""
        return _sum(self.bundles)


class ReclaimSearch:
    """The search for one group; `exceeds` decides whether a grant exceeds a limit after allocations have ended."""

    def __init__(
        self, view: ClusterView, ask: GroupAsk, *, exceeds: Callable[[NodeGrant, Sequence[Allocation]], bool]
    ) -> None:
        self._view = view
        self._ask = ask
        self._exceeds = exceeds
        self._salt = 0
        self._guarantees: Guarantees
        self._entitled: tuple[str, ...] = ()
        self._bounds: list[tuple[Loss, int, int]] = []
        """(minimum loss, tie, row) of the rows that may have victims, in order."""
        self._bounded_for: Guarantees | None = None
        self._bounded_rows: BoolArray | None = None

    def best(self, mask: BoolArray, *, salt: int) -> ReclaimedNode | None:
        """The placement with the least loss on some rows; None if the job is not entitled to any."""
        guarantees = self._view.guarantees
        self._salt = salt
        self._entitled = () if guarantees is None else guarantees.entitled(guarantees.amounts_of(self._ask))
        if guarantees is None or not self._entitled:
            return None
        self._guarantees = guarantees
        self._bound(mask)
        best: tuple[Loss, int, int] | None = None
        hopeless: set[int] = set()
        for bound, tie, row in self._bounds:
            if best is not None and (bound, tie) > best[:2]:
                break
            if not mask[row]:
                continue
            choice = self._on_row(row)
            if choice is None:
                hopeless.add(row)
                continue
            self._restore(choice.bundles)
            best = min(best or (choice.loss, tie, row), (choice.loss, tie, row))
        if hopeless:
            self._bounds = [each for each in self._bounds if each[2] not in hopeless]
        if best is None:
            return None
        chosen = self._on_row(best[2])
        assert chosen is not None, "the same choice is made again"
        # The caller counts the ends in the guarantees when it accepts the choice.
        for alloc in chosen.victims:
            self._guarantees.count_end(alloc, -1)
        return chosen

    def _bound(self, mask: BoolArray) -> None:
        """Compute a lower bound of each row's loss, once for all placements of a round."""
        bounded = self._bounded_rows
        if self._bounded_for is self._guarantees and bounded is not None and not bool((mask & ~bounded).any()):
            return
        self._bounded_for, self._bounded_rows = self._guarantees, mask.copy()
        view, ties = self._view, self._view.rows.ties
        against = cache(partial(self._guarantees.entitled_against, self._entitled))
        bounds: list[tuple[Loss, int, int]] = []
        for row in np.flatnonzero(mask).tolist():
            allocs = [
                alloc
                for alloc in view.snapshot.allocs_of_node(view.rows.ids[row])
                if against(alloc.namespace)
                and self._guarantees.is_lendable(alloc)
                and self._guarantees.keeps_guarantees(alloc)
            ]
            if allocs:
                bounds.append((min(self._loss((alloc,)) for alloc in allocs), int(ties[row]), row))
        self._bounds = sorted(bounds)

    def _on_row(self, row: int) -> ReclaimedNode | None:
        """A row's grant and victims, which are released and counted."""
        chosen: list[VictimBundle] = []
        grant = self._grant(row, chosen)
        while grant is None:
            useful = [bundle for bundle in self._bundles(row) if self._may_end(bundle)]
            if not useful:
                self._restore(chosen)
                return None
            first = min(useful, key=lambda bundle: (not self._is_of_use(bundle, row), bundle.loss, bundle.allocs[0].id))
            self._end(first)
            chosen = self._with_bundle(chosen, first)
            grant = self._grant(row, chosen)
        # The choice is greedy: needless bundles are spared, first those with the greatest loss.
        for bundle in sorted(chosen, key=lambda each: (each.loss, each.allocs[0].id), reverse=True):
            self._restore((bundle,))
            others = [each for each in chosen if each is not bundle]
            again = self._grant(row, others)
            if again is None:
                self._end(bundle)
            else:
                grant, chosen = again, others
        if not chosen or not self._is_entitled(grant, chosen):
            self._restore(chosen)
            return None
        return ReclaimedNode(row, grant, tuple(chosen))

    def _with_bundle(self, chosen: list[VictimBundle], added: VictimBundle) -> list[VictimBundle]:
        """The chosen bundles and one more; bundles of the same gang are merged, so that they end or stay together."""
        first = added.allocs[0]
        if len(added.allocs) == 1:
            return [*chosen, added]
        gang = _group_of(first)
        before = [each for each in chosen if _group_of(each.allocs[0]) == gang]
        allocs = tuple(alloc for each in (*before, added) for alloc in each.allocs)
        merged = added._replace(allocs=allocs, loss=self._loss(allocs))
        return [*(each for each in chosen if each not in before), merged]

    def _grant(self, row: int, chosen: Sequence[VictimBundle]) -> NodeGrant | None:
        grant = fit(self._view, self._ask, row, self._salt)
        if grant is None or self._exceeds(grant, [alloc for bundle in chosen for alloc in bundle.allocs]):
            return None
        return grant

    def _is_entitled(self, grant: NodeGrant, chosen: Sequence[VictimBundle]) -> bool:
        """Whether the guarantees also cover the grant, which may exceed the request."""
        entitled = self._guarantees.entitled(counted(grant.usage))
        return all(bundle.quota in entitled for bundle in chosen)

    def _bundles(self, row: int) -> list[VictimBundle]:
        """The bundles of allocations that may end on a row, each gang once."""
        snapshot, bundles, seen = self._view.snapshot, list[VictimBundle](), set[str]()
        for alloc in snapshot.allocs_of_node(self._view.rows.ids[row]):
            if alloc.id in seen or self._view.is_released(alloc.id):
                continue
            quota = self._guarantees.entitled_against(self._entitled, alloc.namespace)
            if not quota or not self._guarantees.is_reclaimable(alloc):
                continue
            allocs = self._guarantees.bundle_of(alloc)
            seen.update(each.id for each in allocs)
            bundles.append(VictimBundle(allocs, self._loss(allocs), quota))
        return bundles

    def _loss(self, allocs: Sequence[Allocation]) -> Loss:
        services = sum(1 for alloc in allocs if alloc.job is not None and alloc.job.type == JOB_SERVICE)
        return services, sum(lost_work_of(self._view, allocs).values()), len(allocs)

    def _may_end(self, bundle: VictimBundle) -> bool:
        """Whether all quotas keep their guarantees without the bundle."""
        ended: list[Allocation] = []
        for alloc in bundle.allocs:
            if not self._guarantees.keeps_guarantees(alloc):
                break
            self._guarantees.count_end(alloc)
            ended.append(alloc)
        for alloc in ended:
            self._guarantees.count_end(alloc, -1)
        return len(ended) == len(bundle.allocs)

    def _is_of_use(self, bundle: VictimBundle, row: int) -> bool:
        return any(is_of_use(self._view, self._ask, row, alloc) for alloc in bundle.allocs)

    def _end(self, bundle: VictimBundle) -> None:
        for alloc in bundle.allocs:
            self._view.release(alloc)
            self._guarantees.count_end(alloc)

    def _restore(self, bundles: Sequence[VictimBundle]) -> None:
        for bundle in bundles:
            for alloc in bundle.allocs:
                self._view.restore(alloc)
                self._guarantees.count_end(alloc, -1)


def _group_of(alloc: Allocation) -> tuple[str, str, str]:
    return alloc.namespace, alloc.job_id, alloc.task_group


def next_chance(view: ClusterView, ask: GroupAsk, guarantees: Guarantees, mask: BoolArray) -> int:
    """The time at which the first protection of reclaimable allocations on some rows ends; 0 if none is protected."""
    entitled = guarantees.entitled(guarantees.amounts_of(ask))
    if not entitled:
        return 0
    against = cache(partial(guarantees.entitled_against, entitled))
    ends = [
        end
        for row in np.flatnonzero(mask).tolist()
        for alloc in view.snapshot.allocs_of_node(view.rows.ids[row])
        if against(alloc.namespace)
        and guarantees.is_lendable(alloc)
        and guarantees.keeps_guarantees(alloc)
        and (end := guarantees.protected_until(alloc)) > view.now
    ]
    return min(ends, default=0)


def _sum(bundles: Sequence[VictimBundle]) -> Loss:
    services, lost, number = (sum(each) for each in zip(*(bundle.loss for bundle in bundles), strict=True))
    return services, lost, number
