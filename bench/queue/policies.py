"""Queue policies to compare: Yurt's, and short models of other systems after their documentation."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Final

from yurt.queue.amounts import Amounts
from yurt.queue.backfill import BackfillRules, CapacityReservation, boosted, decide, with_boosted
from yurt.queue.decay import DecayedUsage, lifetime, no_usage, used, with_rates
from yurt.queue.fair_order import Delays, Shares, delays_of, fair_order
from yurt.queue.job_queue import JobQueue
from yurt.queue.profile import NEVER
from yurt.queue.turns import TurnRules, boost_time, turn_of
from yurt.queue.waiting_job import Waiting
from yurt.sdk.value import Duration, UnixNano

from bench.queue.engine import DAY, HOUR, Pool
from bench.queue.trace import SECOND, Job

HALF_LIFE: Final = DAY
EASY: Final = BackfillRules(reservations=1, depth=500)
SLURM: Final = BackfillRules(reservations=1, depth=100)
CARD: Final = 1000
TICKS: Final = 256
USAGE_DELAY: Final = 72 * HOUR
TURNS: Final = TurnRules(stretch=2000, reach=96 * HOUR, boost_after=48 * HOUR)


def waiting_of(job: Job) -> Waiting:
    """A job of a trace as the queue sees it."""
    return Waiting(
        key=(job.tenant, str(job.id)),
        tenant=(job.tenant,),
        priority=50,
        create_index=job.id,
        since=UnixNano(job.submit),
        asked=Amounts(gpu=job.gpus * CARD),
        limit=Duration(job.limit),
    )


def gpus_of(job: Waiting) -> tuple[int, ...]:
    """What it asks of the simulated pool."""
    return (job.asked.gpu // CARD,)


class Usages:
    """Decayed usage of tenants, exact."""

    def __init__(self) -> None:
        self._rows: dict[str, DecayedUsage] = {}
        self.version = 0
        """Rises with each change of what tenants hold."""

    def change(self, tenant: str, gpus: int, now: int) -> None:
        """A tenant holds more or fewer GPUs from now on."""
        self.version += 1
        row = self._rows.get(tenant) or no_usage(1, now=now)
        self._rows[tenant] = with_rates(row, (row.rates[0] + gpus * CARD,), now=now, half_life=HALF_LIFE)

    def now(self, now: int) -> dict[tuple[str, ...], Amounts]:
        """What counts of it, by tenant."""
        return {(name,): Amounts(gpu=used(row, now, HALF_LIFE)[0]) for name, row in self._rows.items()}


class FairShare:
    """Yurt: parts of the pool, turns by declared limits and usage, reservations, boost, backfill."""

    cycle = 0

    def __init__(
        self, rules: BackfillRules, name: str = "fair share, backfill (Yurt)", *, turns: TurnRules = TURNS,
        delay: int = USAGE_DELAY,
    ) -> None:  # fmt: skip
        self.turns, self.delay = turns, delay
        self.name = name
        self.rules = rules
        self.line = JobQueue()
        self.usages = Usages()
        self.promises: dict[int, int] = {}
        """The latest start that was first promised, by job."""
        self._jobs: dict[int, Job] = {}
        self._gpus: dict[int, int] = {}
        self._delayed_at = (-1, -1)

    def submit(self, job: Job, now: int) -> None:
        """Enter the line."""
        self._jobs[job.id] = job
        self._gpus[job.gpus] = self._gpus.get(job.gpus, 0) + 1
        turn, boost = turn_of(job.submit, job.limit, job.gpus, self.turns), boost_time(job.submit, self.turns)
        self.line.put(waiting_of(job)._replace(turn=turn, boost_at=boost))

    def ended(self, job: Job, now: int) -> None:
        """Its tenant uses less."""
        self.usages.change(job.tenant, -job.gpus, now)

    def order(self, pool: Pool, now: int) -> Iterator[Waiting]:
        """The whole order, lazily."""
        capacity = Amounts(gpu=pool.gpus * CARD)
        delayed_at = (now - now % (HALF_LIFE // TICKS), self.usages.version)
        if delayed_at != self._delayed_at:
            # As the leader: once per tick, and when what tenants hold changes, always by the usage up to the tick.
            self._delayed_at = delayed_at
            delays = Delays(capacity.times(lifetime(HALF_LIFE)), self.delay)
            self.line.delay(delays_of(self.usages.now(delayed_at[0]), delays, {}))
        part = self.boosted_gpus(pool) / pool.gpus
        first = boosted(self.line.next_boost(), self.rules, now=now, part_in_use=part)
        held = {name: Amounts(gpu=count * CARD) for name, count in pool.held.items() if count}
        return with_boosted(first, fair_order(self.line, Shares(capacity, {}, held)))

    def boosted_gpus(self, pool: Pool) -> int:
        """The GPUs of jobs that were boosted when they started."""
        return sum(job.gpus for job, start in pool.running.values() if start >= self._boost_of(job))

    def _boost_of(self, job: Job) -> int:
        return boost_time(job.submit, self.turns) or NEVER

    def choose(self, pool: Pool, now: int) -> Sequence[Job]:
        """What starts."""
        least = min((size for size, count in self._gpus.items() if count), default=0)
        if not least or least > pool.free:
            return ()
        decision = decide(self.order(pool, now), pool.profile(now), self.rules, vector=gpus_of, least=(least,))
        self._note(decision.reservations)
        started = [self._jobs[job.create_index] for job in decision.starts]
        for job in started:
            self.line.remove((job.tenant, str(job.id)))
            self._gpus[job.gpus] -= 1
            self.usages.change(job.tenant, job.gpus, now)
        return started

    def _note(self, reservations: Iterable[CapacityReservation]) -> None:
        for job, start in islice(reservations, 1):
            self.promises.setdefault(job.create_index, start)


class Fifo:
    """First come, first served; with reservations, backfill behind the head (EASY)."""

    cycle = 0

    def __init__(self, name: str = "FIFO", rules: BackfillRules | None = None) -> None:
        self.name, self.rules = name, rules
        self._queue: list[Job] = []

    def submit(self, job: Job, now: int) -> None:
        """Stand at the end, or at the old place after an eviction."""
        insort(self._queue, job, key=lambda one: one.id)

    def ended(self, job: Job, now: int) -> None:
        """Nothing is remembered."""

    def choose(self, pool: Pool, now: int) -> Sequence[Job]:
        """The head, and what does not delay it."""
        started: list[Job] = []
        free = pool.free
        if self.rules is not None and free:
            started = backfilled(self._queue, pool, self.rules, now)
        elif self.rules is None:
            for job in self._queue:
                if job.gpus > free:
                    break
                free -= job.gpus
                started.append(job)
        gone = {job.id for job in started}
        self._queue = [job for job in self._queue if job.id not in gone] if gone else self._queue
        return started


def backfilled(order: Iterable[Job], pool: Pool, rules: BackfillRules, now: int) -> list[Job]:
    """EASY backfill of jobs in an order."""
    known: dict[int, Job] = {}

    def as_waiting() -> Iterator[Waiting]:
        for job in order:
            known[job.id] = job
            yield waiting_of(job)

    decision = decide(as_waiting(), pool.profile(now), rules, vector=gpus_of, least=(1,))
    return [known[job.create_index] for job in decision.starts]


class _ByTenant:
    """Queues by tenant, with usage; the base of what follows."""

    cycle = 30 * SECOND

    def __init__(self) -> None:
        self.queues: dict[str, list[Job]] = {}
        self.usages = Usages()

    def submit(self, job: Job, now: int) -> None:
        """Stand in the tenant's queue."""
        insort(self.queues.setdefault(job.tenant, []), job, key=lambda one: one.id)

    def ended(self, job: Job, now: int) -> None:
        """The tenant uses less."""
        self.usages.change(job.tenant, -job.gpus, now)

    def take(self, started: Iterable[Job], now: int) -> None:
        """Jobs leave their queues."""
        for job in started:
            self.queues[job.tenant].remove(job)
            self.usages.change(job.tenant, job.gpus, now)


class FairTree(_ByTenant):
    """Slurm's fair tree with backfill: all jobs of the account that has used least, then of the next."""

    name = "fair tree, backfill (Slurm)"

    def choose(self, pool: Pool, now: int) -> Sequence[Job]:
        """In the order of usage."""
        if not pool.free:
            return ()
        used_now = self.usages.now(now)
        tenants = sorted(self.queues, key=lambda name: (used_now.get((name,), Amounts()).gpu, name))
        started = backfilled(chain.from_iterable(self.queues[name] for name in tenants), pool, SLURM, now)
        self.take(started, now)
        return started


class Multifactor(_ByTenant):
    """Slurm's multifactor priority with backfill: fair share 2^(-U/S), age up to 7 days, size."""

    name = "multifactor, backfill (Slurm)"
    fairshare, age, size = 10_000, 1_000, 500

    def choose(self, pool: Pool, now: int) -> Sequence[Job]:
        """In the order of the sum of factors; candidates are the first of each tenant."""
        if not pool.free:
            return ()
        used_now = self.usages.now(now)
        total = sum(amounts.gpu for amounts in used_now.values()) or 1
        count = max(1, len(self.queues))
        factors = {
            name: self.fairshare * 2 ** -(used_now.get((name,), Amounts()).gpu / total * count) for name in self.queues
        }
        candidates = chain.from_iterable(islice(queue, SLURM.depth) for queue in self.queues.values())
        ranked = sorted(candidates, key=lambda job: (-self._priority(job, factors[job.tenant], pool, now), job.id))
        started = backfilled(ranked, pool, SLURM, now)
        self.take(started, now)
        return started

    def _priority(self, job: Job, fairshare: float, pool: Pool, now: int) -> float:
        age = min(1.0, (now - job.submit) / (7 * DAY))
        return fairshare + self.age * age + self.size * job.gpus / pool.gpus


class DynamicPriority:
    """Nomad 2.1: one job at a time, the head blocks; share of present allocations, age up to an hour, size."""

    name = "dynamic_priority (Nomad 2.1)"
    cycle = 0
    fairshare, age, size, max_size = 50, 10, 10, 8

    def __init__(self) -> None:
        self._queues: dict[tuple[str, int], deque[Job]] = {}
        self._head: Job | None = None

    def submit(self, job: Job, now: int) -> None:
        """Wait among the jobs of the same tenant and size, whose order is that of their age."""
        self._queues.setdefault((job.tenant, job.gpus), deque()).append(job)

    def ended(self, job: Job, now: int) -> None:
        """Shares are those of the present."""

    def choose(self, pool: Pool, now: int) -> Sequence[Job]:
        """The head while it fits."""
        started: list[Job] = []
        free = pool.free
        held = dict(pool.held)
        while (head := self._head or self._next(held, now)) is not None:
            self._head = head
            if head.gpus > free:
                break
            free -= head.gpus
            held[head.tenant] = held.get(head.tenant, 0) + head.gpus
            started.append(head)
            self._head = None
        return started

    def _next(self, held: dict[str, int], now: int) -> Job | None:
        heads = [queue[0] for queue in self._queues.values() if queue]
        if not heads:
            return None
        total = sum(held.values()) or 1
        best = min(heads, key=lambda job: (-self._adjusted(job, held.get(job.tenant, 0) / total, now), job.id))
        return self._queues[(best.tenant, best.gpus)].popleft()

    def _adjusted(self, job: Job, share: float, now: int) -> int:
        age = min(1.0, (now - job.submit) / HOUR)
        size = 1 - min(1.0, job.gpus / self.max_size)
        return int((1 - share) * self.fairshare) + int(age * self.age) + int(size * self.size)


class Cohorts(_ByTenant):
    """Kueue-like: equal nominal quotas in one cohort, fair sharing of what is borrowed, reclaim within nominal."""

    cycle = SECOND

    def __init__(self, tenants: int, *, is_strict: bool) -> None:
        super().__init__()
        self.name = f"cohorts, {'strict' if is_strict else 'best effort'} FIFO (Kueue)"
        self._tenants, self._is_strict = tenants, is_strict
        self._starts: dict[int, int] = {}

    def choose(self, pool: Pool, now: int) -> Sequence[Job]:
        """Heads by their share after admission; a head within nominal evicts borrowers."""
        nominal = pool.gpus // self._tenants
        held = dict(pool.held)
        free, started = pool.free, []
        at = {name: 0 for name, queue in self.queues.items() if queue}
        while at:
            name = min(at, key=lambda one: (held.get(one, 0) + self.queues[one][at[one]].gpus - nominal, one))
            job = self.queues[name][at[name]]
            if job.gpus > free and held.get(name, 0) + job.gpus <= nominal:
                free += self._reclaim(pool, held, nominal, job.gpus - free)
            if job.gpus <= free:
                free -= job.gpus
                held[name] = held.get(name, 0) + job.gpus
                started.append(job)
                at[name] += 1
            elif self._is_strict or not free:
                del at[name]
                continue
            else:
                at[name] += 1
            if at[name] >= len(self.queues[name]):
                del at[name]
        self.take(started, now)
        self._starts.update((job.id, now) for job in started)
        return started

    def _reclaim(self, pool: Pool, held: dict[str, int], nominal: int, lacking: int) -> int:
        """Evict the youngest jobs of borrowers until enough is free; nothing when that is not possible."""
        victims: list[Job] = []
        left = dict(held)
        for job, _ in sorted(pool.running.values(), key=lambda run: (-run[1], run[0].id)):
            if lacking <= 0:
                break
            if left.get(job.tenant, 0) > nominal:
                victims.append(job)
                left[job.tenant] -= job.gpus
                lacking -= job.gpus
        if lacking > 0:
            return 0
        for job in victims:
            pool.evict(job)
        held.update(left)
        return sum(job.gpus for job in victims)
