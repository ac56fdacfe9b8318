"""What a task asks for that this version of the client cannot give: said before anything starts, never ignored."""

from __future__ import annotations

from collections.abc import Iterator

from yurt.lifecycle.services import PROVIDER
from yurt.structs.job import TaskGroup
from yurt.structs.task import Task

TOKEN_IDENTITIES = ("consul_", "vault_")
"""Identities of these names ask for a token of another product."""


def unavailable(group: TaskGroup, task: Task) -> str:
    """Why the task cannot be prepared here, or nothing."""
    asked = tuple(_asked(group, task))
    if not asked:
        return ""
    verb = "is" if len(asked) == 1 else "are"
    return f"{', '.join(asked)} {verb} not available in this version; remove it from task {task.name!r} to run it"


def notice(group: TaskGroup, task: Task) -> str:
    """What the task may run without, but its user should know; said once, by the task that has it or the first one."""
    is_first = group.tasks[0].name == task.name
    services = (*task.services, *(group.services if is_first else ()))
    foreign = next((service for service in services if service.provider != PROVIDER), None)
    if foreign is not None:
        return (
            f"Service {foreign.name!r} is not registered: its provider is {foreign.provider or 'consul'}, "
            f'and this version registers those with provider = "{PROVIDER}"; the task runs without it'
        )
    return ""


def _asked(group: TaskGroup, task: Task) -> Iterator[str]:
    blocks = (
        ("vault", task.vault),
        ("consul", task.consul),
        ("secret", task.secrets),
        ("schedule", task.schedule),
    )
    yield from (name for name, value in blocks if value)
    identities = (*task.identities, *((task.identity,) if task.identity else ()))
    if any(identity.extra_claims for identity in identities):
        yield "identity with extra_claims"
    yield from (f"identity {each.name!r}" for each in identities if each.name.startswith(TOKEN_IDENTITIES))
    if any(service.connect for service in (*group.services, *task.services)):
        yield "connect"
