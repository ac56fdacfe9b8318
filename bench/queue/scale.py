"""A full pool with 10,000 waiting jobs of 1,000 namespaces: memory, a restart, and the placement rate as it drains.

The state, the queue's gate and the scheduler are the server's. Not included: the log, the network and the plan check.
Running allocations end in batches, oldest first, until no job waits.
"""

from __future__ import annotations

import gc
import time
from collections import deque
from typing import Final, NamedTuple

import psutil
from yurt import scheduler
from yurt.fsm import snapshot
from yurt.sdk.value import UnixNano
from yurt.server.queueing.gate import QueueGate
from yurt.structs.commands import ApplyPlan
from yurt.structs.evaluation import Evaluation

from bench.queue.look import BATCH, Size, World

PARTS: Final = 5
"""The number of parts of the drain whose rates are printed."""
ROUNDS_MAX: Final = 100_000
MIB: Final = 1 << 20


class Part(NamedTuple):
    """A part of the drain: jobs and allocations placed, attempts that placed nothing, and processor seconds."""

    jobs: int
    allocs: int
    without: int
    spent_s: float


class Figures(NamedTuple):
    """What the queue costs at this size; memory in MiB, times in processor seconds."""

    running_mb: float
    waiting_mb: float
    gate_mb: float
    snapshot_mb: float
    decode_s: float
    columns_s: float
    gate_s: float
    first_look_s: float
    drain: list[Part]


def measure(size: Size, drained: int) -> Figures:
    """Fill the pool, let jobs wait, restart, and drain `drained` jobs."""
    empty = _memory_mb()
    world = World(size)
    world.fill(size)
    running = _memory_mb()
    waiting = list(world.arrivals(size))
    stored = _memory_mb()
    for each in waiting:
        world.gate.takes(world.state, each)
    world.gate.look(world.state, world.now)
    gated = _memory_mb()
    chunks, decode_s, columns_s, gate_s, first_look_s = _restart(world, waiting)
    size_mb = sum(map(len, chunks)) / MIB
    del chunks
    return Figures(
        running_mb=running - empty,
        waiting_mb=stored - running,
        gate_mb=gated - stored,
        snapshot_mb=size_mb,
        decode_s=decode_s,
        columns_s=columns_s,
        gate_s=gate_s,
        first_look_s=first_look_s,
        drain=_drain(world, min(drained, size.waiting)),
    )


def _restart(world: World, waiting: list[Evaluation]) -> tuple[list[bytes], float, float, float, float]:
    """What a server does with its snapshot, and a new leader with the jobs that wait."""
    chunks = list(snapshot.encode(world.state))
    began = time.process_time()
    restored = snapshot.decode(chunks)
    decoded = time.process_time()
    assert restored.columns is not None
    columned = time.process_time()
    gate = QueueGate("global")
    for each in waiting:
        assert gate.takes(restored, each)
    entered = time.process_time()
    gate.look(restored, world.now)
    return chunks, decoded - began, columned - decoded, entered - columned, time.process_time() - entered


def _drain(world: World, jobs: int) -> list[Part]:
    running = deque(alloc.id for alloc in world.state.allocs.values())
    found: list[Part] = []
    placed_jobs = placed = without = seed = 0
    began, goal = time.process_time(), jobs // PARTS
    before = len(world.gate)
    for _ in range(ROUNDS_MAX):
        if len(found) == PARTS or not len(world.gate):
            break
        ended = [running.popleft() for _ in range(min(BATCH, len(running)))]
        if ended:
            world.gate.follow(world.end(ended))
        while released := world.gate.look(world.state, world.now):
            for evaluation in released:
                seed += 1
                number = _place(world, evaluation, running, seed)
                placed += number
                without += not number
        if before - len(world.gate) >= goal or not len(world.gate):
            now = time.process_time()
            found.append(Part(before - len(world.gate), placed, without, now - began))
            placed_jobs += before - len(world.gate)
            before, placed, without, began = len(world.gate), 0, 0, now
    assert placed_jobs, "nothing was placed"
    return found


def _place(world: World, evaluation: Evaluation, running: deque[str], seed: int) -> int:
    """One attempt at a released job; the number of allocations placed. What lacks capacity waits on."""
    world.now = UnixNano(world.now + 1_000_000)
    plan = scheduler.attempt(world.state, evaluation, now=world.now, seed=seed).plan
    world.gate.done(evaluation.id)
    if not plan.placements and not plan.blocks:
        world.gate.note_blocked(world.state, evaluation)
        return 0
    world.gate.forget(evaluation)
    known = {row.id for row in world.state.allocs.each_where("job", (evaluation.namespace, evaluation.job_id))}
    world.gate.follow(world.apply(ApplyPlan(plan=plan)))
    rows = world.state.allocs.each_where("job", (evaluation.namespace, evaluation.job_id))
    new = [row.id for row in rows if row.id not in known]
    running.extend(new)
    return len(new)


def _memory_mb() -> float:
    gc.collect()
    return psutil.Process().memory_info().rss / MIB


def show(size: Size, drained: int) -> None:
    """Print the figures."""
    found = measure(size, drained)
    print(f"{size.waiting} jobs of {size.namespaces} namespaces wait for {size.nodes} nodes")
    print(
        f"memory in MiB: {found.running_mb:.0f} nodes and running jobs, {found.waiting_mb:.0f} waiting jobs in the "
        f"state, {found.gate_mb:.0f} in the gate; snapshot {found.snapshot_mb:.1f}"
    )
    print(
        f"restart in processor seconds: {found.decode_s:.2f} snapshot, {found.columns_s:.2f} columns, "
        f"{found.gate_s:.2f} jobs enter the gate, {found.first_look_s:.2f} first decision"
    )
    print(f"{'drain':10}{'jobs':>8}{'allocs':>8}{'no room':>9}{'jobs/s':>9}{'allocs/s':>10}")
    for number, part in enumerate(found.drain):
        rate = part.spent_s or 1e-9
        print(
            f"{number + 1:<10}{part.jobs:8}{part.allocs:8}{part.without:9}{part.jobs / rate:9.0f}"
            f"{part.allocs / rate:10.0f}"
        )
