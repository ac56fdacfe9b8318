"""Rules for the block `gang` of a group, and for its rendezvous."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from yurt.rules.problems import near_hint, one_of
from yurt.sdk.value import NANOSECONDS, duration_text
from yurt.structs import status
from yurt.structs.job import Job, TaskGroup
from yurt.structs.policies import Gang, Rendezvous

FRAMEWORKS: Final = ("none", "torch", "mpi", "jax", "ray")
BARRIER_MIN: Final = NANOSECONDS
BARRIER_MAX: Final = 7 * 24 * 3600 * NANOSECONDS
INTERFACE: Final = re.compile(r"[^\s/\x00-\x1f]{1,15}(,[^\s/\x00-\x1f]{1,15})*")
"""Names or prefixes of network interfaces, as NCCL and Gloo read them."""


def gang_problems(job: Job, group: TaskGroup, gang: Gang) -> Iterator[str]:
    """Problems of the block, each with its key."""
    if job.type in (status.JOB_SYSTEM, status.JOB_SYSBATCH):
        yield f"gang can only be used with service and batch jobs: a {job.type} job runs on every node that fits"
    if gang.min < 0:
        yield "gang min can't be negative"
    elif gang.min > group.count:
        yield f"gang min is {gang.min} and the group's count {group.count}: at most the count can run together"
    if gang.rendezvous is not None:
        yield from _rendezvous_problems(group, gang.rendezvous)
        yield from _update_problems(group)
    else:
        if gang.elastic:
            yield "gang elastic needs a rendezvous block: without one no member learns of the others"
        if group.update is not None and 0 < group.update.canary < group.least:
            yield (
                f"update canary is {group.update.canary}, fewer than the {group.least} that must run together: "
                f"set canary = {group.least}, or 0 for none"
            )


def _rendezvous_problems(group: TaskGroup, rendezvous: Rendezvous) -> Iterator[str]:
    if rendezvous.framework not in FRAMEWORKS:
        hint = near_hint(rendezvous.framework, FRAMEWORKS)
        yield f'rendezvous framework "{rendezvous.framework[:64]}" is not valid: use {one_of(FRAMEWORKS)}{hint}'
    if not BARRIER_MIN <= rendezvous.barrier <= BARRIER_MAX:
        shown = duration_text(rendezvous.barrier)
        yield f"rendezvous barrier must be from 1s to {duration_text(BARRIER_MAX)} (got {shown})"
    if rendezvous.interface and not INTERFACE.fullmatch(rendezvous.interface):
        yield f'rendezvous interface "{rendezvous.interface[:64]}" is not the name of a network interface, such as ib0'
    yield from _port_problems(group, rendezvous.port)
    main = [task.name for task in group.tasks if task.lifecycle is None]
    if len(main) > 1:
        yield (
            f"a group with a rendezvous has one main task, this one has {len(main)} ({', '.join(main)[:128]}): "
            "give the others a lifecycle block"
        )


def _update_problems(group: TaskGroup) -> Iterator[str]:
    """Problems of the update block: members updated in parts never meet, since each part waits for the others."""
    update = group.update
    if update is not None and update.canary:
        yield "a group with a rendezvous can have no canaries: they would wait for the other members"
    if update is not None and 0 < update.max_parallel < group.count:
        yield (
            f"update max_parallel is {update.max_parallel} and the group's count {group.count}: members of a new "
            f"version wait for each other, so all come at once; set max_parallel = {group.count}"
        )


def _port_problems(group: TaskGroup, label: str) -> Iterator[str]:
    ports = {port.label for network in group.networks for port in (*network.dynamic_ports, *network.reserved_ports)}
    if not label:
        yield 'rendezvous needs a port: name one of the group\'s network block, such as port = "rendezvous"'
    elif label not in ports:
        hint = f"; there are: {', '.join(sorted(ports))[:128]}" if ports else ""
        yield f'rendezvous port "{label[:64]}" is not a port of the group\'s network block{hint}'
    elif modes := sorted({network.mode for network in group.networks} - {"", "host"}):
        yield (
            f'a rendezvous needs a network with mode = "host", not "{modes[0][:64]}": '
            "members reach each other at the addresses and ports of their nodes"
        )
