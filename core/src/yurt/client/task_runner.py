"""The shell around one task's machine: it carries out the machine's actions and feeds back what came of them.

The machine decides (`yurt.lifecycle.task`); here are only the driver, the task's directory and its environment. Every
action runs as supervised work of the client, so a driver that fails unexpectedly ends as an event of its own task.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, assert_never

from yurt.client import alloc_dir
from yurt.client.artifacts import hook as artifacts
from yurt.client.context import ClientContext
from yurt.client.requirements import notice, unavailable
from yurt.client.task_env import EnvInputs, build_env, lookup_in, ports_given, replace_in, visible_dirs
from yurt.client.volumes import absent_paths, mounts_of
from yurt.client.waiting import finish_unless, wait_or_sleep
from yurt.lifecycle import events
from yurt.lifecycle import task as machine
from yurt.lifecycle.allocation import restarts_on_success
from yurt.runtime.supervise import supervised
from yurt.sdk.driver import Driver, ExitResult, LogRotation, TaskDirs, TaskHandle, TaskRequest, TaskResources
from yurt.sdk.errors import Invalid, NotFound, RecoverableError, YurtError
from yurt.sdk.schema import decode_config
from yurt.sdk.value import NANOSECONDS, Duration, replace
from yurt.storage.client_db import TaskRecord
from yurt.structs.alloc import AllocatedTaskResources, Allocation, TaskEvent
from yurt.structs.job import Job, TaskGroup
from yurt.structs.status import TASK_RUNNING
from yurt.structs.task import Task

KILL_RETRY_FIRST_S = 5.0
KILL_RETRY_MAX_S = 120.0
KILL_ATTEMPTS = 5
RECOVER_WAITS_S = (1.0, 2.0, 4.0, 8.0)
MIB = 1024 * 1024


class TaskOwner(Protocol):
    """The allocation runner as its task runners see it."""

    def on_change(self) -> None:
        """The task has changed."""
        ...

    async def save(self) -> None:
        """Write down how all tasks of the allocation fare."""
        ...

    async def wait_saved(self) -> None:
        """Wait until everything that has happened so far is written down."""
        ...


class SetupProblem(Exception):
    """A run cannot be prepared; `event` says why."""

    def __init__(self, event: TaskEvent, *, is_recoverable: bool = False) -> None:
        super().__init__(event.display_message)
        self.event = event
        self.is_recoverable = is_recoverable


class TaskRunner:
    """One task of an allocation on this node."""

    def __init__(
        self,
        alloc: Allocation,
        task_name: str,
        context: ClientContext,
        *,
        group: asyncio.TaskGroup,
        owner: TaskOwner,
    ) -> None:
        self.name = task_name
        self.alloc = alloc
        self.handle: TaskHandle | None = None
        self._context = context
        self._group = group
        self.cleaning: set[asyncio.Task[None]] = set()
        self._owner = owner
        self._request: TaskRequest | None = None
        self._ended = asyncio.Event()
        self._wake = asyncio.Event()
        self._killed = asyncio.Event()
        self._fetched: set[str] = set()
        self.machine = machine.new_task(self._policy(), context.env.now())

    @property
    def job(self) -> Job:
        """The job at the version that the allocation runs."""
        assert self.alloc.job is not None, self.alloc.id
        return self.alloc.job

    @property
    def task_group(self) -> TaskGroup:
        """The task's group."""
        group = self.job.group(self.alloc.task_group)
        assert group is not None, self.alloc.task_group
        return group

    @property
    def task(self) -> Task:
        """The task as the job says."""
        task = self.task_group.task(self.name)
        assert task is not None, self.name
        return task

    @property
    def driver(self) -> Driver | None:
        """The driver of the task, when this node has it."""
        return self._context.drivers.get(self.task.driver)

    @property
    def record(self) -> TaskRecord:
        """What has to be remembered of the task; a handle of an earlier run would mislead."""
        now = self.machine
        is_present = self.handle is not None and self.handle.task_id == self.task_id(now.run)
        return TaskRecord(
            state=now.state,
            run=now.run,
            window=now.window,
            handle=self.handle if is_present else None,
            fetched=tuple(sorted(self._fetched)),
        )

    def task_id(self, run: int) -> str:
        """The name of one run of the task for its driver."""
        return f"{self.alloc.id}/{self.name}/{run}"

    def update(self, alloc: Allocation) -> None:
        """Take over an allocation that the servers changed in place."""
        self.alloc = alloc
        self.machine = replace(self.machine, policy=self._policy())

    def _policy(self) -> machine.TaskPolicy:
        task = self.task
        return machine.TaskPolicy(
            restart=task.restart_policy,
            restart_on_success=restarts_on_success(task, self.job.type),
            kill_timeout=self._kill_timeout(),
        )

    def _kill_timeout(self) -> Duration:
        return Duration(min(self.task.kill_timeout, round(self._context.config.max_kill_timeout_s * NANOSECONDS)))

    async def restore(self, record: TaskRecord) -> None:
        """Continue a task that an earlier agent ran: find its run again, or learn that it is gone."""
        self.machine = machine.restored_task(self._policy(), record.state, record.run, record.window)
        self.handle = record.handle
        self._fetched = set(record.fetched)
        driver = self.driver
        if driver is not None:
            self._spawn("clearing", self._clear_earlier(driver, record), None)
        if self.machine.phase == machine.DEAD or record.handle is None:
            if self.machine.phase == machine.WAITING and record.state.state == TASK_RUNNING:
                self.post(machine.Lost())
            return
        if driver is None:
            reason = f"driver {self.task.driver!r}, which started the task, is not on this node any more"
            self.post(machine.Note(event=events.driver_failure(reason)))
            self.post(machine.Lost())
            return
        if record.handle.is_intent:
            await self._restore_intent(driver, record.handle)
        elif await self._recover(driver, record.handle):
            self.post(machine.Recovered())
        else:
            self.post(machine.Lost())

    async def _restore_intent(self, driver: Driver, handle: TaskHandle) -> None:
        """The agent ended between its wish to start a run and its knowledge of it: it may run, or was never started."""
        for wait_s in RECOVER_WAITS_S:
            try:
                await driver.recover_task(handle)
            except NotFound:
                self.handle = None
                return
            except YurtError as error:
                self.post(machine.Note(event=events.driver_message(f"looking for a started task failed: {error}")))
                await self._context.env.sleep(wait_s)
            else:
                self.post(machine.Recovered())
                return
        self.post(machine.Lost())

    async def _clear_earlier(self, driver: Driver, record: TaskRecord) -> None:
        """Free what the driver still holds for a run that had ended, when the agent ended before it could."""
        ended = [record.handle] if self.machine.phase == machine.DEAD and record.handle is not None else []
        if record.run > 0 and driver.capabilities.finds_by_id:
            ended.append(self._intent(record.run - 1))
        for handle in ended:
            with contextlib.suppress(NotFound):
                await driver.recover_task(handle)
                await driver.destroy_task(handle.task_id)

    def _intent(self, run: int) -> TaskHandle:
        """What is known of a run before it starts."""
        return TaskHandle(driver=self.task.driver, task_id=self.task_id(run), version=0)

    async def _recover(self, driver: Driver, handle: TaskHandle) -> bool:
        """Let the driver find the run; one that cannot look at present is asked again before the run is given up."""
        for wait_s in RECOVER_WAITS_S:
            try:
                await driver.recover_task(handle)
            except NotFound as error:
                self.post(machine.Note(event=events.driver_message(str(error))))
                return False
            except YurtError as error:
                self.post(machine.Note(event=events.driver_message(f"finding the task again failed: {error}")))
                await self._context.env.sleep(wait_s)
            else:
                return True
        return False

    def post(self, event: machine.AnyTaskEvent) -> None:
        """Tell the machine what happened and begin what it wants done."""
        env = self._context.env
        step = machine.advance(self.machine, event, now=env.now(), chance=env.random())
        has_changed = step.machine is not self.machine
        self.machine = step.machine
        if self.machine.phase != machine.BACKOFF:
            self._wake.set()
        if self.machine.is_killed:
            self._killed.set()
        for action in step.actions:
            self._perform(action)
        if has_changed:
            self._owner.on_change()

    def _perform(self, action: machine.AnyAction) -> None:
        match action:
            case machine.RunSetup(run=run):
                is_findable = self.driver is not None and self.driver.capabilities.finds_by_id
                self.handle = self._intent(run) if is_findable else None
                self._spawn("setup", self._setup(), self._setup_broke)
            case machine.StartTask():
                self._spawn("start", self._start(), self._start_broke)
            case machine.WatchTask(run=run):
                self._ended.clear()
                self._spawn("watch", self._watch(run), lambda error: self._watch_broke(run, error))
            case machine.StopTask(run=run):
                self._spawn("stop", self._stop(run), lambda error: self._stop_broke(run, error))
            case machine.DestroyTask(run=run):
                cleaning = self._spawn("destroy", self._destroy(run), None)
                self.cleaning.add(cleaning)
                cleaning.add_done_callback(self.cleaning.discard)
            case machine.SetTimer(run=run, delay=delay):
                self._wake.clear()
                self._spawn("restart delay", self._backoff(run, delay / NANOSECONDS), None)
            case _:
                assert_never(action)

    def _spawn(
        self, what: str, work: Coroutine[Any, Any, None], on_error: Callable[[Exception], None] | None
    ) -> asyncio.Task[None]:
        return supervised(self._group, f"{what} of task {self.name} of {self.alloc.id[:8]}", work, on_error=on_error)

    def _setup_broke(self, error: Exception) -> None:
        self.post(machine.SetupFailed(event=events.setup_failure(_unexpected("preparing the task", error))))

    def _start_broke(self, error: Exception) -> None:
        self.post(machine.StartFailed(reason=_unexpected(f"driver {self.task.driver!r} starting the task", error)))

    def _watch_broke(self, run: int, error: Exception) -> None:
        lost = _unexpected(f"driver {self.task.driver!r} watching the task", error)
        self.post(machine.Exited(run=run, result=ExitResult(error=lost)))

    def _stop_broke(self, run: int, error: Exception) -> None:
        self.post(machine.Stopped(run=run, error=_unexpected("stopping the task", error)))

    async def _setup(self) -> None:
        """Prepare the next run."""
        try:
            self._request = await self._prepared()
        except SetupProblem as problem:
            self.post(machine.SetupFailed(event=problem.event, is_recoverable=problem.is_recoverable))
        else:
            self.post(machine.SetupDone())

    async def _prepared(self) -> TaskRequest:
        """Directory, environment, configuration, volumes and artifacts of the next run; raises SetupProblem."""
        driver = self.driver
        reason = unavailable(self.task_group, self.task)
        if not reason and driver is None:
            reason = f"driver {self.task.driver!r} is not on this node; install its plugin or constrain the job"
        if reason or driver is None:
            raise SetupProblem(events.setup_failure(reason))
        unheard = notice(self.task_group, self.task) if self.machine.run == 0 else ""
        if unheard:
            self.post(machine.Note(event=events.task_setup(unheard)))
        try:
            dirs = await self._prepare_dir()
        except (OSError, Invalid) as error:
            failure = events.setup_failure(f"cannot build the task's directory: {error}")
            raise SetupProblem(failure, is_recoverable=isinstance(error, OSError)) from None
        try:
            request = self._build_request(driver, dirs)
        except Invalid as error:
            raise SetupProblem(events.failed_validation(str(error))) from None
        await self._check_volumes(request)
        try:
            await self._fetch_artifacts(request)
        except (Invalid, RecoverableError) as error:
            failure = events.failed_artifact_download(str(error))
            raise SetupProblem(failure, is_recoverable=isinstance(error, RecoverableError)) from None
        return request

    async def _check_volumes(self, request: TaskRequest) -> None:
        absent = await asyncio.to_thread(absent_paths, request.mounts) if request.mounts else ()
        if absent:
            text = f"the folder {absent[0]} of a host volume is not on this node; make it, or mount what holds it"
            raise SetupProblem(events.setup_failure(text), is_recoverable=True)

    async def _fetch_artifacts(self, request: TaskRequest) -> None:
        """Download what the task has not got yet; its kill ends that at once."""
        if not self.task.artifacts:
            return
        context = self._context
        wanted = artifacts.plan(
            self.task.artifacts,
            artifacts.TaskPlace(task_name=self.name, dirs=request.dirs, user=self.task.user),
            lookup=lookup_in(context.node(), context.config.region, request.env),
            limits=context.config.artifact,
        )
        missing = {digest: fetch for digest, fetch in wanted.items() if digest not in self._fetched}
        if missing:
            self.post(machine.Note(event=events.downloading_artifacts()))
            await finish_unless(self._killed, artifacts.fetch_all(missing, on_done=self._fetched.add))

    async def _prepare_dir(self) -> TaskDirs:
        """The task's tree; meanwhile the intent to start this run, and all before it, is written down."""
        saving = asyncio.ensure_future(self._owner.wait_saved())  # noqa: TID251 - awaited or cancelled below
        try:
            dirs = await asyncio.to_thread(self._build_dir)
            await saving
        finally:
            saving.cancel()
        return dirs

    def _build_dir(self) -> TaskDirs:
        """The task's tree and its dispatch payload; blocking."""
        root = self._context.config.alloc_dir
        secrets_mb = alloc_dir.NO_MOUNT if self._context.config.dev else self.task.resources.secrets_mb
        dirs = alloc_dir.build_task_dir(root, self.alloc.id, self.name, user=self.task.user, secrets_mb=secrets_mb)
        wanted = self.task.dispatch_payload
        if wanted is not None and wanted.file and self.job.payload:
            alloc_dir.write_dispatch_payload(dirs, wanted.file, self.job.payload)
        return dirs

    def _build_request(self, driver: Driver, dirs: TaskDirs) -> TaskRequest:
        context, task, alloc = self._context, self.task, self.alloc
        isolation = driver.capabilities.fs_isolation
        shared, local, secrets = visible_dirs(dirs, isolation)
        inputs = EnvInputs(
            node=context.node(),
            region=context.config.region,
            alloc=alloc,
            job=self.job,
            group=self.task_group,
            task=task,
            alloc_dir=shared,
            task_dir=local,
            secrets_dir=secrets,
            host_env=context.host_env if isolation != "image" else {},
        )
        env = build_env(inputs)
        lookup = lookup_in(inputs.node, inputs.region, env)
        given = alloc.allocated_resources.tasks.get(task.name, AllocatedTaskResources())
        return TaskRequest(
            task_id=self.task_id(self.machine.run),
            alloc_id=alloc.id,
            task_name=task.name,
            job_id=alloc.job_id,
            group_name=alloc.task_group,
            namespace=alloc.namespace,
            config=decode_config(driver.task_config, replace_in(task.config, lookup)),
            env=env,
            dirs=dirs,
            resources=TaskResources(
                cpu_shares=given.cpu.cpu_shares or task.resources.cpu,
                reserved_cores=given.cpu.reserved_cores,
                memory_mb=given.memory.memory_mb or task.resources.memory_mb,
                memory_max_mb=given.memory.memory_max_mb,
            ),
            logs=LogRotation(
                max_files=task.log_config.max_files,
                max_bytes=task.log_config.max_file_size_mb * MIB,
                disabled=task.log_config.disabled,
            ),
            user=task.user,
            ports=ports_given(alloc),
            mounts=mounts_of(
                task, self.task_group, alloc=alloc, driver=driver, offered=inputs.node.host_volumes, lookup=lookup
            ),
            hostname=next((network.hostname for network in self.task_group.networks), ""),
        )

    async def _start(self) -> None:
        """Start by the driver, the intent being on disk; the handle follows it, before anybody hears of it."""
        driver = self.driver
        assert driver is not None and self._request is not None, self.name
        try:
            self.handle = await self._start_whole(driver, self._request)
        except YurtError as error:
            is_recoverable = isinstance(error, RecoverableError)
            self.post(machine.StartFailed(reason=str(error), is_recoverable=is_recoverable))
            return
        self.post(machine.Started())

    async def _start_whole(self, driver: Driver, request: TaskRequest) -> TaskHandle:
        """Start the task; an agent that ends meanwhile first remembers what it has started, or nobody would find it."""
        starting = asyncio.ensure_future(driver.start_task(request))  # noqa: TID251 - awaited on every path below
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            self.handle = await starting
            self.machine = machine.advance(
                self.machine, machine.Started(), now=self._context.env.now(), chance=0.0
            ).machine
            await self._owner.save()
            raise

    async def _watch(self, run: int) -> None:
        driver = self.driver
        assert driver is not None, self.name
        try:
            result = await driver.wait_task(self.task_id(run))
        except YurtError as error:
            result = ExitResult(error=str(error))
        self._ended.set()
        self.post(machine.Exited(run=run, result=result))

    async def _stop(self, run: int) -> None:
        """Wait the shutdown delay, unless the task ends by itself, then stop it, trying again when the driver fails."""
        driver = self.driver
        assert driver is not None, self.name
        if not self.alloc.desired_transition.no_shutdown_delay and self.task.shutdown_delay > 0:
            await wait_or_sleep(self._context.env, self._ended, self.task.shutdown_delay / NANOSECONDS)
        signal = self.task.kill_signal or ("SIGTERM" if driver.capabilities.fs_isolation == "image" else "SIGINT")
        retry_s, failure = KILL_RETRY_FIRST_S, ""
        for _ in range(KILL_ATTEMPTS):
            try:
                await driver.stop_task(self.task_id(run), signal=signal, timeout=self._kill_timeout())
            except NotFound:
                failure = ""
            except YurtError as error:
                failure = str(error)
                await wait_or_sleep(self._context.env, self._ended, retry_s)
                retry_s = min(retry_s * 2, KILL_RETRY_MAX_S)
                continue
            else:
                failure = ""
            break
        self.post(machine.Stopped(run=run, error=failure))

    async def _destroy(self, run: int) -> None:
        """Free the run once its end is remembered, so that a crash in between loses no exit code."""
        driver = self.driver
        assert driver is not None, self.name
        await self._owner.wait_saved()
        try:
            await driver.destroy_task(self.task_id(run))
        except NotFound:
            return

    async def _backoff(self, run: int, delay_s: float) -> None:
        if not await wait_or_sleep(self._context.env, self._wake, delay_s):
            self.post(machine.RestartDue(run=run))

    async def signal(self, signal: str) -> None:
        """Send a signal to the running task."""
        driver = self.driver
        if self.machine.phase != machine.RUNNING or driver is None:
            raise Invalid(f"task {self.name!r} is not running; only a running task can be sent a signal")
        self.post(machine.Note(event=events.signaling(signal)))
        await driver.signal_task(self.task_id(self.machine.run), signal)


def _unexpected(doing: str, error: Exception) -> str:
    """A failure that the code did not foresee, as one line."""
    return f"{doing} failed unexpectedly: {type(error).__name__}: {error}"
