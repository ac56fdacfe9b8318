"""The plan of a seed: cluster size, user actions and faults, with their rates (swarm testing).

Each seed leaves some features and faults out: bugs hide where everything happens at once, as much as where little
does. A plan can be made smaller by hand or by `shrink` and run again with the same seed.
"""

from __future__ import annotations

import random
from typing import Final

from yurt.sdk.value import Value, replace

FEATURES: Final = (
    "service", "batch", "system", "sysbatch", "dispatch", "update", "scale", "stop", "purge", "drain", "eligibility",
    "alloc-stop", "evaluate", "gc", "canary", "promote", "variables", "lists", "quota", "gang", "histories",
)  # fmt: skip
FAULTS: Final = (
    "kill-server", "power-server", "pause-server", "cut-server", "cut-one-way", "slow-host", "lose-packets",
    "reset-connections", "etcd-lost-answers", "etcd-leader", "etcd-slow", "resign", "kill-client", "power-client",
    "pause-client", "cut-client", "slow-disk", "slow-threads", "clock-jump", "driver-fails", "driver-slow",
    "snapshot", "damage-snapshot",
)  # fmt: skip


LATER_FEATURES: Final = ("checkpoint",)
"""Features that came after the first plans, drawn apart from them."""
NEWEST_FEATURES: Final = ("disconnect",)
"""Those that came after these; `disconnect`: each service tolerates that its client disconnects."""
RARE_FEATURES: Final = ("client-stop", "periodic", "preemption")
"""Those drawn after `disconnect`. `client-stop`: groups that their client stops by itself when it loses contact;
`periodic`: a job that is launched each minute; `preemption`: urgent jobs end others."""
VOLUME_FEATURES: Final = ("volumes",)
"""Those drawn after these. `volumes`: nodes make host volumes, and jobs ask for them."""
CSI_FEATURES: Final = ("csi",)
"""Those drawn after these. `csi`: a CSI plugin runs on each node, and jobs ask for its volumes."""
LATE_FAULTS: Final = ("late-client", "late-server", "lag-server")
"""Faults drawn apart, too: an agent is back just when the others have given it up, and a server lags behind its
clients, which still reach it."""
OF_DEVICES: Final = ("device-breaks", "device-fails")
"""Additional faults of nodes with devices."""
OF_CSI: Final = ("csi-fails",)
"""The additional fault of nodes with a CSI plugin: it fails, is slow, or ends."""


class Plan(Value, rename=None):
    """The plan of a run. Seconds are virtual; `fault_pause_s` is the mean time between two faults."""

    seed: int
    servers: int = 3
    clients: int = 5
    users: int = 3
    active_s: float = 240.0
    calm_s: float = 900.0
    user_pause_s: float = 4.0
    fault_pause_s: float = 12.0
    features: tuple[str, ...] = FEATURES
    faults: tuple[str, ...] = FAULTS
    has_acl: bool = False
    """Whether access control is on; users show a management token then."""
    histories: tuple[str, ...] = ()
    """The kinds of objects that concurrent requests are sent to; empty for all."""
    history_pause_s: float = 12.0
    """The mean time between two such objects: a burst of requests costs as much as many seconds of an idle cluster."""
    has_devices: bool = False
    """Whether nodes have devices, for which jobs ask; they break, and their plugin fails, when anything does."""
    rest_actions: int = 4
    """Requests at the end, each on a cluster at rest: under load, another event soon does what one leaves undone."""
    rest_together: int = 1
    """The number of such requests that are sent at one time: what two of them undo, a third one soon hides."""
    schedulers: int = 1
    """The scheduler workers of each server: only plans of several workers are made at one time."""
    rest_slow_s: float = 0.0
    """Additional seconds of each write of etcd during the requests at the end."""
    failover_ttl_s: float = 300.0
    """How long a new leader waits for the first heartbeat of each node; most runs are shorter than Nomad's default."""
    turn_s: float = 0.0
    """Virtual seconds for which a slice of long work lasts; with more than 0, each command of a batch is a slice."""
    has_own_etcd: bool = True
    """Whether servers prefer the one whose etcd member leads, as with members of their own."""
    splits_job_types: bool = False
    """Whether each server schedules two job types only, so that leaders hand evaluations to the workers of others."""


def draw(seed: int, **fixed: object) -> Plan:
    """Draw the plan of a seed; `fixed` replaces drawn fields."""
    chance = random.Random(f"plan {seed}")
    features = _some(chance, FEATURES, at_least=5)
    if not {"service", "batch", "system", "sysbatch"} & set(features):
        features = ("service", *features)
    plan = Plan(
        seed=seed,
        servers=chance.choice((3, 3, 3, 5)),
        clients=chance.choice((2, 4, 6, 9)),
        users=chance.choice((1, 3, 6)),
        user_pause_s=chance.choice((0.3, 2.0, 6.0)),
        fault_pause_s=chance.choice((3.0, 10.0, 30.0)),
        features=features,
        faults=_some(chance, FAULTS, at_least=2),
        has_own_etcd=chance.random() < 0.5,
        has_acl=chance.random() < 0.25,
    )
    later = random.Random(f"plan {seed} 2")  # what came later is drawn apart: the rest of a seed's plan stays as it was
    if later.random() < 0.25:
        plan = replace(plan, has_devices=True, faults=(*plan.faults, *OF_DEVICES))
    newest = random.Random(f"plan {seed} 3")
    plan = replace(plan, schedulers=newest.choice((1, 1, 2, 4)), rest_together=newest.choice((1, 1, 2, 3)))
    if newest.random() < 0.25:
        plan = replace(plan, features=(*plan.features, *LATER_FEATURES))
    late = random.Random(f"plan {seed} 4")
    if late.random() < 0.4:
        plan = replace(plan, faults=(*plan.faults, *_some(late, LATE_FAULTS, at_least=1)))
    if late.random() < 0.25:
        plan = replace(plan, features=(*plan.features, *NEWEST_FEATURES))
    plan = replace(plan, failover_ttl_s=late.choice((300.0, 20.0)))
    plan = replace(plan, turn_s=late.choice((0.0, 0.0, 0.002)), rest_slow_s=late.choice((0.0, 0.0, 0.5)))
    rare = random.Random(f"plan {seed} 5")
    if rare.random() < 0.4:
        plan = replace(plan, features=(*plan.features, *_some(rare, RARE_FEATURES, at_least=1)))
    if random.Random(f"plan {seed} 6").random() < 0.3:
        plan = replace(plan, features=(*plan.features, *VOLUME_FEATURES))
    if random.Random(f"plan {seed} 7").random() < 0.2:
        plan = replace(plan, splits_job_types=True)
    if random.Random(f"plan {seed} 8").random() < 0.2:
        plan = replace(plan, features=(*plan.features, *CSI_FEATURES), faults=(*plan.faults, *OF_CSI))
    return replace(plan, **fixed)


def _some(chance: random.Random, names: tuple[str, ...], *, at_least: int) -> tuple[str, ...]:
    """A random subset of the names, in order."""
    share = chance.choice((0.25, 0.5, 0.8, 1.0))
    found = {name for name in names if chance.random() < share}
    found |= set(chance.sample(names, at_least))
    return tuple(name for name in names if name in found)
