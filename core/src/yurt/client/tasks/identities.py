"""Workload identities of one task: tokens in its environment and its files, renewed before they expire.

A token with a time to live is renewed after half of that time. Files are replaced atomically, and the identity's
`change_mode` says how the task is notified. While no server can be reached the old token remains.
"""

from __future__ import annotations

import asyncio

from yurt.client.context import ClientContext
from yurt.client.files.users import ids_of
from yurt.client.templates import files
from yurt.client.templates.task_control import Spawn, TaskControl
from yurt.lifecycle import events
from yurt.sdk.driver import TaskDirs
from yurt.sdk.errors import Invalid, PermissionDenied, YurtError
from yurt.sdk.value import NANOSECONDS
from yurt.structs.alloc import Allocation
from yurt.structs.rpc import IdentityQuery, SignedIdentity
from yurt.structs.service import WorkloadIdentity
from yurt.structs.task import Task

DEFAULT = "default"
OWNED_MODE, OPEN_MODE = 0o600, 0o644
"""The mode of a file that the task's user owns, and of one whose reader is unknown because an image may set the user.

The second is safe because only the allocation's tasks can enter its directory.
"""
RETRY_S, RETRY_MAX_S = 5.0, 60.0
RENEW_AT = 0.5
JITTER = 0.1
"""The fraction of the renewal interval by which renewals vary, so that those of many tasks do not coincide."""


def handed_out(task: Task) -> tuple[WorkloadIdentity, ...]:
    """The identities whose tokens the task gets, in its environment or a file."""
    named = (*((task.identity,) if task.identity is not None else ()), *task.identities)
    return tuple(each for each in named if each.env or each.file)


def variable_of(identity: WorkloadIdentity) -> str:
    """The name of the environment variable with the token."""
    name = identity.name or DEFAULT
    return "NOMAD_TOKEN" if name == DEFAULT else f"NOMAD_TOKEN_{name}"


def file_of(identity: WorkloadIdentity) -> str:
    """The path of the file with the token, relative to the task's directory."""
    name = identity.name or DEFAULT
    return identity.filepath or ("secrets/nomad_token" if name == DEFAULT else f"secrets/nomad_{name}.jwt")


class TaskIdentities:
    """The tokens of one task."""

    def __init__(self, task: str, context: ClientContext, *, control: TaskControl, spawn: Spawn) -> None:
        self._task = task
        self._context = context
        self._control = control
        self._spawn = spawn
        self._tokens: dict[str, SignedIdentity] = {}
        self._renewals: list[asyncio.Task[None]] = []

    async def env_for_start(self, alloc: Allocation, task: Task, dirs: TaskDirs) -> dict[str, str]:
        """Get and write the tokens for a run; returns its environment variables. Raises YurtError."""
        identities = handed_out(task)
        for identity in identities:
            await self._renew(alloc, identity, dirs, user=task.user)
        self._follow(alloc, task, dirs)
        return {variable_of(each): self._tokens[each.name or DEFAULT].token for each in identities if each.env}

    async def env_again(self, alloc: Allocation, task: Task, dirs: TaskDirs) -> dict[str, str]:
        """Like `env_for_start`, for a task of an earlier agent: waits until the servers can be reached."""
        while True:
            try:
                return await self.env_for_start(alloc, task, dirs)
            except YurtError as error:
                self._control.note(events.task_setup(f"Identities could not be renewed: {error}"))
                await self._context.env.sleep(RETRY_S)

    def _follow(self, alloc: Allocation, task: Task, dirs: TaskDirs) -> None:
        """Renew tokens before they expire, until `stop`."""
        self.stop()
        self._renewals = [
            self._spawn(self._keep(alloc, identity, dirs, task.user), lambda _: None)
            for identity in handed_out(task)
            if identity.ttl > 0
        ]

    def stop(self) -> None:
        """Stop renewing tokens."""
        for renewal in self._renewals:
            renewal.cancel()
        self._renewals = []

    async def _keep(self, alloc: Allocation, identity: WorkloadIdentity, dirs: TaskDirs, user: str) -> None:
        name, env = identity.name or DEFAULT, self._context.env
        failures = 0
        while True:
            if failures:
                await env.sleep(min(RETRY_S * 2.0 ** min(failures - 1, 10), RETRY_MAX_S))
            else:
                left_s = (self._tokens[name].expires_at - env.now()) / NANOSECONDS
                wait_s = left_s - identity.ttl * RENEW_AT / NANOSECONDS
                await env.sleep(max(wait_s * (1 - JITTER * env.random()), 0.5))
            try:
                await self._renew(alloc, identity, dirs, user=user)
            except YurtError as error:
                failures += 1
                self._control.note(events.task_setup(f"Identity {name} could not be renewed: {error}"))
            else:
                failures = 0
                await self._notify_task(identity)

    async def _notify_task(self, identity: WorkloadIdentity) -> None:
        name = identity.name or DEFAULT
        if identity.change_mode == "restart":
            self._control.restart(f"Identity {name} was renewed, its change_mode is restart")
        elif identity.change_mode == "signal":
            try:
                await self._control.signal(identity.change_signal.upper() or "SIGHUP", f"Identity {name} was renewed")
            except YurtError as error:
                self._control.note(events.task_setup(f"Identity {name} was renewed, but the signal failed: {error}"))

    async def _renew(self, alloc: Allocation, identity: WorkloadIdentity, dirs: TaskDirs, *, user: str) -> None:
        name = identity.name or DEFAULT
        query = IdentityQuery(node_id=self._context.node().id, alloc_id=alloc.id, task=self._task, name=name)
        signed = await self._context.server.sign_identity(query)
        if identity.file:
            root, path = files.place(file_of(identity), dirs)
            owner = await asyncio.to_thread(ids_of, user)
            mode = OPEN_MODE if owner is None else OWNED_MODE
            await asyncio.to_thread(files.write, root, path, signed.token.encode(), mode=mode, owner=owner or (-1, -1))
        self._tokens[name] = signed


def is_final(error: YurtError) -> bool:
    """Whether the error is permanent, so that a retry would not help."""
    return isinstance(error, Invalid | PermissionDenied)
