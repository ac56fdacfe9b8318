"""The health hook: decides an allocation's health for its deployment with the machine of `yurt.lifecycle.health`."""

from __future__ import annotations

import msgspec

from yurt.client.allocations.client_alloc import ClientAlloc
from yurt.client.hooks.services import ServicesHook
from yurt.lifecycle import allocation, events, health
from yurt.lifecycle import task as machine
from yurt.runtime.env import Env
from yurt.sdk.hooks import AllocHookOf
from yurt.sdk.value import UnixNano, replace
from yurt.structs.alloc import AllocDeploymentStatus


class _Watch(msgspec.Struct, frozen=True):
    """The watch of an allocation for one deployment; `machine` is None once health is decided, or not needed."""

    deployment_id: str
    machine: health.HealthMachine | None


class HealthHook(AllocHookOf[ClientAlloc]):
    """Watches an allocation's health for its deployment, or for its migration when it belongs to none."""

    name = "health"

    def __init__(self, env: Env, services: ServicesHook) -> None:
        self._env = env
        self._services = services
        self._watches: dict[str, _Watch] = {}

    def update(self, alloc: ClientAlloc) -> UnixNano | None:
        """Advance the machine; returns the time of the next call."""
        watched = self._watch(alloc)
        if watched.machine is None or alloc.stopping.is_set():
            return None
        now, roles = self._env.now(), allocation.roles(alloc.group)
        passes = self._services.checks_pass(alloc)
        step = health.advance(watched.machine, roles, alloc.states, checks_pass=passes, now=now)
        is_decided = step.machine.is_healthy is not None
        self._watches[alloc.id] = replace(watched, machine=None if is_decided else step.machine)
        if is_decided:
            _decide(alloc, step.machine, now)
        return step.wake_at

    def finish(self, alloc: ClientAlloc) -> None:
        """Stop watching."""
        self._watches.pop(alloc.id, None)

    def _watch(self, alloc: ClientAlloc) -> _Watch:
        watch = self._watches.get(alloc.id)
        if watch is None or watch.deployment_id != alloc.alloc.deployment_id:
            started = alloc.turn_at if watch is None else self._env.now()
            watch = self._watches[alloc.id] = _Watch(alloc.alloc.deployment_id, _machine(alloc, started))
        return watch


def _machine(alloc: ClientAlloc, started: UnixNano) -> health.HealthMachine | None:
    policy = alloc.group.update if alloc.alloc.deployment_id else alloc.group.migrate
    is_decided = alloc.health_status is not None and alloc.health_status.healthy is not None
    if policy is None or is_decided:
        return None
    return health.watch(
        policy.health_check,
        min_healthy_time=policy.min_healthy_time,
        healthy_deadline=policy.healthy_deadline,
        started=started,
    )


def _decide(alloc: ClientAlloc, decided: health.HealthMachine, now: UnixNano) -> None:
    old = alloc.health_status or AllocDeploymentStatus()
    alloc.health_status = replace(old, healthy=decided.is_healthy, timestamp=now)
    for name, reason in decided.reasons.items():
        if alloc.tasks[name].machine.phase != machine.DEAD:
            alloc.tasks[name].post(machine.Note(event=events.alloc_unhealthy(reason)))
