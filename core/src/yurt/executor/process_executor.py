"""Starts commands as tasks that outlive the agent; recovers, watches, signals, stops and forgets them.

A task is identified by its handle. A pidfd (or polling, without pidfds) detects its end, and the exit file that its
shim writes holds the result. The file appears a moment after the end of the process; when the shim has died too, the
result is lost, and the exit result says so.

States of a task here: starting -> running -> ended -> (forgotten). `recover` enters at running or ended; where the
agent that started a task was killed before it had the handle, `recover_by_id` finds what its shim wrote.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from yurt.executor import cgroups, process_identity, start_recovery, zygote_client
from yurt.executor.cpu_partitions import CpuPartitions
from yurt.executor.exec_session import ExecContext, ProcessSession, run_to_end, start_session
from yurt.executor.polling import until
from yurt.executor.process_context import (
    check_spec,
    env_and_folder_of,
    ids_of,
    is_locked,
    let_through,
    look_up_user,
    other_network_of,
    read_exit_file,
    remove_file,
    summed,
    user_to_become,
)
from yurt.executor.spec import (
    CgroupPlan,
    Failed,
    ProcessHandle,
    ProcessSpec,
    ShimFiles,
    UserIds,
    encode_start,
    file_name,
    start_failure,
)
from yurt.executor.start_files import StartFiles, is_alive
from yurt.executor.task_kill import close_all, kill
from yurt.executor.task_watch import WatchedTask, WatchedTasks
from yurt.runtime.env import Env, RealEnv
from yurt.sdk.core_partitions import partitions_of
from yurt.sdk.driver import ExecResult, ExitResult, PluginContext, TaskStats, unknown_signal
from yurt.sdk.errors import DriverError, NotFound
from yurt.sdk.value import NANOSECONDS, Duration, UnixNano, replace

LOCK_LIMIT_S = 15.0
CGROUP_PARENT = "yurt.slice"
"""The parent cgroup shared by all agents of the machine except dev agents, so that none of them removes it."""


class ProcessExecutor:
    """Uses zygote and shims, for drivers whose tasks are processes of this machine."""

    def __init__(self, *, state_dir: str, dev: bool = False, cgroup_parent: str = "", env: Env | None = None) -> None:
        self._folder = Path(state_dir) / "executor"
        self._starts = StartFiles(self._folder)
        self._env = env or RealEnv()
        run = f"{cgroups.DEV_PREFIX}{os.getpid()}.slice" if dev else ""
        self._parent = "/".join(filter(None, (cgroup_parent, run))) or CGROUP_PARENT
        self._hierarchies, parents = cgroups.prepare(self._parent)
        self._partitions = CpuPartitions.below(self._hierarchies, self._parent, partitions_of(cgroup_parent, dev=dev))
        if dev:
            cgroups.remove_left_behind(self._hierarchies, cgroup_parent)
        self._parents = parents
        self._cleared = (*parents, *(f"{mount}/{self._parent}" for mount in self._hierarchies.others))
        self._boot_id = process_identity.boot_id()
        self._dev = dev
        self._zygote = zygote_client.ZygoteLease(dev=dev, cgroup_parents=self._cleared, folder=str(self._folder))
        self._tasks = WatchedTasks(self._env)
        self._starting: set[str] = set()
        self._closed = asyncio.Event()
        for handle in self._starts.all():
            if is_alive(handle, self._boot_id):
                self._partitions.recovered(handle)

    @classmethod
    def from_context(cls, context: PluginContext) -> ProcessExecutor:
        """The executor for a plugin; all executors of an agent share one zygote."""
        parent = context.cgroup_parent
        return cls(state_dir=context.paths.state_dir, dev=context.dev, cgroup_parent=parent)

    @staticmethod
    def ids_of_user(user: str) -> UserIds:
        """The ids of a user by name or number, the agent's own without one; raises DriverError for an unknown user."""
        return look_up_user(user)

    @property
    def zygote_pid(self) -> int:
        """The zygote's pid; 0 before its start."""
        return self._zygote.pid

    @property
    def cgroup_mode(self) -> str:
        """v2, v1, hybrid, or none where tasks get no cgroup."""
        return self._hierarchies.mode

    @property
    def cgroup_parents(self) -> tuple[str, ...]:
        """The folders with the cgroups of this run."""
        return self._parents

    async def open(self) -> None:
        """Start the zygote ahead of the first task."""
        self._partitions.write()
        self._folder.mkdir(parents=True, exist_ok=True)
        await self._zygote.acquire().start()

    async def start(self, spec: ProcessSpec) -> ProcessHandle:
        """Start a task; raises DriverError with the command and the reason."""
        self.check_new(spec.task_id)
        check_spec(spec)
        user = user_to_become(spec.user)
        let_through(spec, user)
        # An earlier run may be about to be destroyed.
        await until(lambda: not is_locked(spec.lock_folder), LOCK_LIMIT_S)
        self._folder.mkdir(parents=True, exist_ok=True)
        zygote = self._zygote.acquire()  # from now on no other executor removes the folders of the run
        cgroups.restore(self._parent, self._parents)
        cgroup = self._partitions.plan(spec.cgroup)
        planned = cgroups.plan(self._hierarchies, self._parent, task_id=spec.task_id, spec=cgroup)
        handle = self._planned_handle(spec.task_id, planned, cores=spec.cgroup.cores)
        remove_file(handle.exit_file)
        request_id = zygote.next_id()
        files = ShimFiles(self._starts.ask(handle, self._env.uuid()), self._starts.path(spec.task_id), handle.exit_file)
        message = encode_start(spec, request_id=request_id, files=files, cgroup=planned, user=user)
        self._starting.add(spec.task_id)
        self._partitions.reserve(handle)
        try:
            answer = await zygote.request(request_id, message)
        except BaseException:
            self._partitions.release(handle)
            raise
        finally:
            remove_file(files.request)
            self._starting.discard(spec.task_id)
        if isinstance(answer, Failed):
            self._partitions.release(handle)
            raise start_failure(spec, stage=answer.stage, code=answer.errno)
        handle = replace(
            handle,
            pid=answer.pid,
            start_time=answer.start_time or process_identity.start_time(answer.pid),
            shim_pid=answer.shim_pid,
            shim_start_time=answer.shim_start_time or process_identity.start_time(answer.shim_pid),
            started_at=answer.at,
        )
        self._partitions.started(handle, cgroup.cores)
        self._tasks.add(WatchedTask(handle, spec, asyncio.get_running_loop()))
        return handle

    def _planned_handle(self, task_id: str, planned: CgroupPlan, *, cores: tuple[int, ...]) -> ProcessHandle:
        """The handle of a task before its start."""
        return ProcessHandle(
            task_id=task_id,
            pid=0,
            start_time=0,
            shim_pid=0,
            shim_start_time=0,
            boot_id=self._boot_id,
            exit_file=str(self._folder / f"{file_name(task_id)}.exit"),
            started_at=UnixNano(0),
            cgroups=tuple(folder for folder, _ in planned.folders),
            cores=cores,
        )

    def check_new(self, task_id: str) -> None:
        """Raise DriverError when the task exists already."""
        if task_id in self._tasks or task_id in self._starting:
            raise DriverError(f"task {task_id} runs already; destroy it first")

    def cgroup_path(self, task_id: str) -> str:
        """The path of a task's cgroup in every hierarchy."""
        return f"/{self._parent}/{cgroups.task_folder(task_id)}"

    def pid_of(self, task_id: str) -> int:
        """The pid of a task's main process."""
        return self._tasks.get(task_id).handle.pid

    def check_alive(self, task_id: str) -> None:
        """Raise DriverError for an ended task, NotFound for an unknown one."""
        handle = self._tasks.get(task_id).handle
        if not process_identity.is_alive(handle.pid, handle.start_time):
            raise DriverError(f"task {task_id} has ended; no command can be run in it")

    async def recover(self, handle: ProcessHandle) -> None:
        """Recover a task of an earlier agent; raises NotFound when it is gone without a trace.

        A shim that lives is about to write how its task ended, so it is asked for before the file is.
        """
        if handle.task_id in self._tasks:
            return
        if self._dev:
            self._zygote.acquire()  # the tasks of a dev run live as long as somebody holds it
        lives = is_alive(handle, self._boot_id)
        if not lives and read_exit_file(handle.exit_file) is None:
            self._starts.remove(handle.task_id)
            self._partitions.release(handle)
            reason = "its process is gone" if handle.boot_id == self._boot_id else "the machine was restarted"
            raise NotFound(f"task {handle.task_id} cannot be found again: {reason} and left no exit file")
        if lives:
            self._partitions.recovered(handle)
            self._partitions.write()
        self._tasks.add(WatchedTask(handle, None, asyncio.get_running_loop()))

    async def recover_by_id(self, task_id: str) -> None:
        """Recover a task whose agent was killed during its start; raises NotFound when it never started nor will."""
        if task_id in self._tasks:
            return
        self._starts.withdraw(task_id)
        handle = self._starts.read(task_id)
        if handle is not None and handle.boot_id == self._boot_id:
            handle = await start_recovery.outcome(self._starts, handle)
        if handle is None or not handle.pid:
            self._starts.remove(task_id)
            raise NotFound(f"task {task_id} had not been started when the agent ended")
        await self.recover(handle)

    async def wait(self, task_id: str) -> ExitResult:
        """Wait for the end; may be called after it."""
        return await asyncio.shield(self._tasks.get(task_id).ended)

    async def signal(self, task_id: str, name: str) -> None:
        """Signal the task's main process by name."""
        handle = self._tasks.get(task_id).handle
        number = process_identity.signal_number(name)
        if not number:
            raise DriverError(unknown_signal(name))
        if not process_identity.send_signal(handle.pid, handle.start_time, number):
            raise DriverError(f"task {task_id} has ended; it cannot be sent {name}")

    async def stop(self, task_id: str, *, signal_name: str, timeout: Duration) -> None:
        """Signal the main process, wait up to `timeout`, then kill; returns when no process is left."""
        task = self._tasks.get(task_id)
        if not task.ended.done():
            number = process_identity.signal_number(signal_name) or signal.SIGTERM
            process_identity.send_signal(task.handle.pid, task.handle.start_time, number)
            await asyncio.wait([task.ended], timeout=timeout / NANOSECONDS)
        await kill(task, boot_id=self._boot_id, env=self._env)

    async def destroy(self, task_id: str) -> None:
        """Kill remaining processes of a task, remove its files and cgroups, and forget it."""
        task = self._tasks.get(task_id)
        await kill(task, boot_id=self._boot_id, env=self._env)
        remove_file(task.handle.exit_file)
        self._starts.remove(task_id)
        cgroups.remove(task.handle.cgroups)
        self._partitions.release(task.handle)
        self._tasks.remove(task)

    async def stats(self, task_id: str) -> TaskStats:
        """Resource usage: counters of the cgroups, and sums over the processes for the rest.

        The kernel counts memory in strides: a small process that has just started is seen as nothing.
        """
        handle = self._tasks.get(task_id).handle
        counted = cgroups.usage(handle.cgroups)
        at = self._env.now()
        if counted.rss_bytes and None not in (counted.cpu_user_ns, counted.cpu_system_ns, counted.pids):
            return TaskStats(
                at=at,
                rss_bytes=counted.rss_bytes,
                swap_bytes=counted.swap_bytes or 0,
                cpu_user_ns=counted.cpu_user_ns or 0,
                cpu_system_ns=counted.cpu_system_ns or 0,
                pids=counted.pids or 0,
                memory_stall_ns=counted.memory_stall_ns,
                memory_charged_bytes=counted.memory_charged_bytes,
            )
        found = summed(process_identity.relatives(handle.pid, handle.start_time, handle.shim_pid), at=at)
        stall_ns, charged = counted.memory_stall_ns, counted.memory_charged_bytes
        return replace(found, memory_stall_ns=stall_ns, memory_charged_bytes=charged)

    async def exec(self, task_id: str, command: tuple[str, ...], *, timeout: Duration) -> ExecResult:
        """Run a command alongside a task, in its context; raises DriverError when it fails or takes too long."""
        return await run_to_end(await self.exec_stream(task_id, command, tty=False), command, timeout=timeout)

    async def exec_stream(self, task_id: str, command: tuple[str, ...], *, tty: bool) -> ProcessSession:
        """Start a command with the environment, folder, user, network and cgroups of a task."""
        self.check_alive(task_id)
        task = self._tasks.get(task_id)
        spec, pid = task.spec, task.handle.pid
        env, cwd = (spec.env, spec.cwd) if spec else env_and_folder_of(pid)
        context = ExecContext(
            env=env,
            cwd=cwd,
            user=user_to_become(spec.user) if spec else ids_of(pid),
            cgroups=task.handle.cgroups,
            network_namespace=other_network_of(pid),
            search=spec.search if spec else (),
        )
        session = await start_session(command, context, tty=tty)
        self.keep_session(task_id, session)
        return session

    def keep_session(self, task_id: str, session: ProcessSession) -> None:
        """End the session with its task at the latest."""
        sessions = self._tasks.get(task_id).sessions
        sessions.add(session)
        session.on_close.append(lambda: sessions.discard(session))

    async def close(self) -> None:
        """Stop watching and end the zygote: tasks continue, those of a dev agent are killed."""
        self._closed.set()
        self._zygote.end()
        for task in self._tasks:
            await close_all(task.sessions)
            self._tasks.remove(task)
        await self._zygote.release()
        if self._parent == CGROUP_PARENT or zygote_client.is_used(dev=self._dev, cgroup_parents=self._cleared):
            return
        for parent in self._cleared:
            # A configured parent is the operator's.
            cgroups.remove((*((parent,) if self._dev else ()), f"{parent}/{cgroups.SHIMS}"))

    async def wait_closed(self) -> None:
        """Wait until the executor is closed."""
        await self._closed.wait()
