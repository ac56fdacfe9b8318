"""Prepares a run of a task: builds its directories, calls its hooks, and assembles the driver's request.

A failed preparation raises SetupProblem, whose event the user reads; after a recoverable one the task's restart policy
applies.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection

from yurt.client.context import ClientContext
from yurt.client.files import alloc_dir
from yurt.client.hooks.configuration import ConfigurationHook
from yurt.client.hooks.task_api import Bound, TaskApiHook, close_bound
from yurt.client.hooks.task_hook_calls import TaskHookCalls
from yurt.client.requirements import notice, unavailable
from yurt.client.tasks.client_task import ClientTask, SetupProblem, TaskSpec, spec_as_user, task_spec
from yurt.lifecycle import events
from yurt.sdk.driver import TaskRequest
from yurt.sdk.dynamic_users import dynamic_uid, dynamic_user_name
from yurt.sdk.errors import Invalid, RecoverableError
from yurt.structs.alloc import Allocation


class TaskSetup:
    """Prepares the runs of a node's tasks."""

    def __init__(
        self,
        context: ClientContext,
        hooks: TaskHookCalls,
        configuration: ConfigurationHook,
        *,
        task_api: TaskApiHook,
        providers: Collection[str],
    ) -> None:
        """`providers`: the service providers to register with."""
        self._context = context
        self.hooks = hooks
        self._configuration = configuration
        self._task_api = task_api
        self._providers = providers

    async def prepare(
        self, task: ClientTask, alloc: Allocation, run: int, *, saved: Callable[[], Awaitable[None]]
    ) -> TaskRequest:
        """Prepare a run and return the driver's request; raises SetupProblem."""
        task.begin(alloc, run)
        self._check_driver(task.spec)
        await self._assign_user(task, alloc, is_first=run == 0)
        unheard = notice(task.spec.group, task.spec.task, self._providers) if run == 0 else ""
        if unheard:
            task.note(events.task_setup(unheard))
        self._task_api.keep(task, await self._make_dirs(task, saved))
        await self.hooks.prepare(task)
        return self._configuration.completed(task)

    def _check_driver(self, spec: TaskSpec) -> None:
        reason = unavailable(spec.group, spec.task)
        if not reason and spec.task.driver not in self._context.drivers:
            reason = f"driver {spec.task.driver!r} is not on this node; install its plugin or constrain the job"
        if reason:
            raise SetupProblem(events.setup_failure(reason))

    async def _assign_user(self, task: ClientTask, alloc: Allocation, *, is_first: bool) -> None:
        """Assign a dynamic user to a task without a user, if its driver supports that and the agent runs as root.

        The id is stored with the task's record before the driver starts anything, like the intent of the run.
        """
        asked = task_spec(alloc, task.name).task
        if dynamic_uid(asked.user) is not None:
            reason = f"user {asked.user!r} has the form of a dynamic user; leave `user` out to get one"
            raise SetupProblem(events.setup_failure(reason))
        if asked.user or not task.driver.capabilities.dynamic_users or os.geteuid() != 0:
            return
        is_new = not self._context.users.uid_of(*task.key)
        try:
            uid = await self._context.env.in_thread(self._context.users.take, alloc.id, task.name)
        except RecoverableError as error:
            raise SetupProblem(events.setup_failure(str(error)), is_recoverable=True) from None
        task.spec = spec_as_user(alloc, task.name, self._context.users)
        if is_new:
            self._context.metrics.count("dynamic_users.assigned")
            task.note(events.task_setup(f"runs as the dynamic user {dynamic_user_name(uid)}"))
        disk = task.spec.group.ephemeral_disk
        if is_first and alloc.previous_allocation and (disk.sticky or disk.migrate):
            await self._give_inherited_files(task, alloc, uid)

    async def _give_inherited_files(self, task: ClientTask, alloc: Allocation, uid: int) -> None:
        """Change the owner of files inherited from a predecessor's dynamic user to the task's own user."""
        from yurt.client.files.inherited_files import Inheritance, give_inherited_files

        inheritance = Inheritance(
            uid=uid,
            old=self._context.users.uid_of(alloc.previous_allocation, task.name),
            pool=self._context.config.users,
            is_alone=len(task.spec.group.tasks) == 1,
        )
        root = self._context.config.alloc_dir
        try:
            await self._context.env.in_thread(give_inherited_files, root, *task.key, inheritance)
        except OSError as error:
            failure = events.setup_failure(f"cannot give the task the files of its predecessor: {error}")
            raise SetupProblem(failure, is_recoverable=True) from None

    async def _make_dirs(self, task: ClientTask, saved: Callable[[], Awaitable[None]]) -> Bound | None:
        """Create the task's directories, while the intent to start this run and earlier changes are stored; returns
        its API socket in them."""
        saving = asyncio.ensure_future(saved())  # noqa: TID251 - awaited or cancelled below
        try:
            bound = await asyncio.to_thread(self._build_dirs, task.spec)
            try:
                await saving
            except BaseException:  # an error's traceback would keep the socket open for as long as somebody has it
                close_bound(bound)
                raise
        except (OSError, Invalid) as error:
            failure = events.setup_failure(f"cannot build the task's directory: {error}")
            raise SetupProblem(failure, is_recoverable=isinstance(error, OSError)) from None
        else:
            return bound
        finally:
            saving.cancel()

    def _build_dirs(self, spec: TaskSpec) -> Bound | None:
        """Create the task's directories, write its dispatch payload, and bind its API socket. Blocking."""
        config, task = self._context.config, spec.task
        secrets_mb = alloc_dir.NO_MOUNT if config.dev else task.resources.secrets_mb
        dirs = alloc_dir.build_task_dir(
            config.alloc_dir, spec.alloc.id, task.name, user=task.user, secrets_mb=secrets_mb
        )
        payload = task.dispatch_payload
        if payload is not None and payload.file and spec.job.payload:
            alloc_dir.write_dispatch_payload(dirs, payload.file, spec.job.payload)
        return self._task_api.bind(dirs, task.user)
