"""An asyncio event loop in virtual time: instead of waiting, it advances its clock to the next timer.

Callbacks run in the order in which they became due, timers of one time in the order in which they were set. What runs
in threads elsewhere runs here on the loop, at times drawn from the seed: it begins later and its result is delivered
later still, as if the operating system had scheduled a thread.

Each task belongs to a `Process`, which it inherits from its creator. Callbacks of a paused process wait until it
goes on. A process that was killed has no effects any more: the edges refuse it, and its tasks are cancelled.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import itertools
import random
import traceback
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import msgspec

TICK_S = 1e-6
STILL_TURNS = 1_000
"""Turns take no time: how many of them a wait takes differs between versions of Python, and the virtual time must not.
After this many without a timer each takes `TICK_S`, so that no loop of turns stops the clock."""
TASKS_MIN = 64
"""How many tasks a process has at least before ended ones are dropped."""
TURNS_MAX = 2_000_000
"""Turns without any timer in between: more mean a loop that never waits."""


TRACE_LETTERS = 2_000
"""The size of a traceback in a report."""


class Stuck(AssertionError):
    """A deadlock: every task waits and no timer is due."""


class Process:
    """One run of an agent, from start to end."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.is_paused = False
        self.clock_skew_s = 0.0
        self._tasks: list[asyncio.Task[Any]] = []
        """Its tasks in the order of their creation, with ended ones that were not dropped yet."""
        self._tasks_max = TASKS_MIN
        self.held: list[SimHandle] = []
        """What became due while it was paused."""

    def __repr__(self) -> str:
        return f"Process({self.name})"

    @property
    def tasks(self) -> tuple[asyncio.Task[Any], ...]:
        """The tasks that have not ended, in the order of their creation."""
        self.drop_ended()
        return tuple(self._tasks)

    def drop_ended(self) -> None:
        """Forget the tasks that have ended; the loop then learns of exceptions that nobody looked at."""
        self._tasks = [task for task in self._tasks if not task.done()]

    def cancel(self) -> None:
        """Cancel all tasks."""
        for task in self.tasks:
            task.cancel()

    def has_begun(self, task: asyncio.Task[Any]) -> None:
        """Keep a new task.

        Ended ones are dropped each time their number may have doubled: a callback at the end of each task, of which
        there are hundreds in a second, would cost more.
        """
        self._tasks.append(task)
        if len(self._tasks) > self._tasks_max:
            self.drop_ended()
            self._tasks_max = max(TASKS_MIN, 2 * len(self._tasks))


PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("simulated process", default=None)


class SimTask(asyncio.Task[Any]):
    """A task whose hash is its number instead of its address, so that sets of tasks iterate reproducibly."""

    def __init__(self, coro: Coroutine[Any, Any, Any], *, loop: SimLoop, **options: Any) -> None:
        self.number = next(loop.numbers)
        super().__init__(coro, loop=loop, **options)

    def __hash__(self) -> int:
        return self.number


class SimHandle(msgspec.Struct, gc=False):
    """A callback, None when it is cancelled. It has no debug mode, only the fields that the loop reads, and is made by
    C code: a run makes millions of handles."""

    _callback: Any
    _args: tuple[Any, ...]
    _context: contextvars.Context

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._callback})"

    def cancel(self) -> None:
        """Never run the callback; the loop drops a timer when it is due."""
        self._callback = None
        self._args = ()

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self._callback is None


class SimTimer(SimHandle, gc=False, kw_only=True):
    """A timer, as `SimHandle`."""

    _when: float

    def when(self) -> float:
        """The virtual time at which it is due."""
        return self._when


class Threads:
    """The virtual durations of work in threads."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.slow_until: dict[str, float] = {}
        """Until when the threads of a process are slow, as on a disk that hardly answers."""

    def delay_s(self, process: Process | None, now_s: float) -> float:
        """The delay until work begins, or until its result is delivered."""
        draw = self._chance.random()
        if process is not None and self.slow_until.get(process.name, 0.0) > now_s:
            return 0.05 + draw * 1.5
        return draw * 0.002 if draw < 0.95 else draw * 0.05


class SimLoop(asyncio.BaseEventLoop):
    """The event loop; `failures` collects unhandled exceptions."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.numbers = itertools.count(1)
        self.failures: list[str] = []
        self.network: Any = None
        """What connects and listens; set by the cluster."""
        self.threads = Threads(random.Random(f"threads {seed}"))
        self.paused = 0
        """How many processes are paused."""
        self._now_s = 0.0
        self._timers: list[tuple[float, int, SimTimer]] = []
        self._order = itertools.count()
        # Each task and future asks for the mode, hundreds in a virtual second: no Python code runs for it.
        self.get_debug = bool  # type: ignore[method-assign]
        self.create_future = partial(asyncio.Future, loop=self)  # type: ignore[method-assign]

    # The clock.

    def time(self) -> float:
        """Virtual seconds since the run began."""
        return self._now_s

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> SimTimer:
        """Call a function at a virtual time."""
        if self._closed:  # type: ignore[attr-defined]
            self._check_closed()  # type: ignore[attr-defined]
        timer = SimTimer(callback, args, contextvars.copy_context() if context is None else context, _when=when)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: Any = None
    ) -> SimTimer:
        """Call a function after virtual seconds."""
        if self._closed:  # type: ignore[attr-defined]
            self._check_closed()  # type: ignore[attr-defined]
        when = self._now_s + delay
        timer = SimTimer(callback, args, contextvars.copy_context() if context is None else context, _when=when)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> SimHandle:  # type: ignore[override]
        """Call a function in the next turn."""
        if self._closed:  # type: ignore[attr-defined]
            self._check_closed()  # type: ignore[attr-defined]
        handle = SimHandle(callback, args, contextvars.copy_context() if context is None else context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def _run_once(self) -> None:
        """Run turns until the loop is to stop: a turn is the callbacks that are ready, or else the next timer's."""
        ready, timers, pop = self._ready, self._timers, heapq.heappop  # type: ignore[attr-defined]
        turns = 0
        while True:
            while timers and timers[0][2]._callback is None:
                pop(timers)
            if ready:
                turns += 1
                if turns > STILL_TURNS:
                    self._now_s += TICK_S
                if turns > TURNS_MAX:
                    raise Stuck(f"{TURNS_MAX} turns of the loop without a wait")
            elif timers:
                turns = 0
                self._now_s = max(self._now_s, timers[0][0])
            elif not self._stopping:  # type: ignore[attr-defined]
                raise Stuck("no timer is set and nothing is ready")
            while timers and timers[0][0] <= self._now_s:
                timer = pop(timers)[2]
                if timer._callback is not None:
                    ready.append(timer)
            for _ in range(len(ready)):
                handle = ready.popleft()
                callback = handle._callback
                if callback is None or (self.paused and self._hold(handle)):
                    continue
                try:
                    handle._context.run(callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self.call_exception_handler({"message": f"exception in {handle!r}", "exception": error})
            if self._stopping:  # type: ignore[attr-defined]
                return

    def _write_to_self(self) -> None:
        """Do nothing: no other thread has to wake the loop."""

    # Processes.

    def _hold(self, handle: SimHandle) -> bool:
        """Whether the callback is held back because its process is paused."""
        process = handle._context.get(PROCESS)
        if process is None or not process.is_paused:
            return False
        process.held.append(handle)
        return True

    def pause(self, process: Process) -> None:
        """Pause a process, as SIGSTOP does."""
        if not process.is_paused:
            process.is_paused = True
            self.paused += 1

    def resume(self, process: Process) -> None:
        """Resume a paused process; callbacks held back meanwhile run first."""
        if process.is_paused:
            process.is_paused = False
            self.paused -= 1
            self._ready.extend(process.held)  # type: ignore[attr-defined]
            process.held.clear()

    async def kill(self, process: Process) -> None:
        """End a process as SIGKILL does: nothing that it does has an effect any more."""
        process.drop_ended()  # an exception that nobody looked at until now fails the run
        process.is_dead = True
        self.resume(process)
        within = contextvars.copy_context()
        within.run(PROCESS.set, process)  # from now on it does not
        for _ in range(20):
            within.run(process.cancel)
            await asyncio.sleep(0.001)
            within.run(process.drop_ended)
            if not process.tasks:
                return

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None, **options: Any) -> Any:
        """Create a task of the current process."""
        task = SimTask(coro, loop=self, name=name, **options) if context is None else SimTask(
            coro, loop=self, name=name, context=context, **options
        )  # fmt: skip
        process = PROCESS.get() if context is None else context.get(PROCESS)
        if process is not None:
            process.has_begun(task)
        return task

    def spawn(self, process: Process | None, coro: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Create a task of another process."""
        context = contextvars.copy_context()
        context.run(PROCESS.set, process)
        task: asyncio.Task[Any] = self.create_task(coro, name=name, context=context)
        return task

    def run_process(self, process: Process, coro: Coroutine[Any, Any, Any], name: str) -> None:
        """Run the main task of a process; its unexpected failure fails the run."""

        def look(task: asyncio.Task[Any]) -> None:
            if not task.cancelled() and task.exception() is not None and not process.is_dead:
                trace = "".join(traceback.format_exception(task.exception()))
                self.failures.append(f"{self._now_s:.6f} {name} ended: {task.exception()!r}\n{trace[-TRACE_LETTERS:]}")

        self.spawn(process, coro, name).add_done_callback(look)

    # Threads.

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> Any:
        """Run a blocking function after a delay, and deliver its result after another."""
        process, future = PROCESS.get(), self.create_future()

        def deliver(result: Any, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        def begin() -> None:
            if process is not None and process.is_dead:
                return
            result, error = None, None
            try:
                result = func(*args)
            except Exception as failure:
                error = failure
            self.call_later(self.threads.delay_s(process, self._now_s), deliver, result, error)

        self.call_later(self.threads.delay_s(process, self._now_s), begin)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Do nothing: there are no threads."""

    # Sockets.

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        """Connect over the simulated network."""
        return await self.network.connect(protocol_factory, str(host), int(port))

    async def sock_accept(self, sock: Any) -> Any:
        """Accept the next connection of a simulated listening socket."""
        return await sock.accept()

    async def connect_accepted_socket(self, protocol_factory: Any, sock: Any, **_: Any) -> Any:
        """Attach a protocol to an accepted connection."""
        return sock.carry(protocol_factory)

    # Failures.

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Record an unhandled exception, which fails the run."""
        process, error = PROCESS.get(), context.get("exception")
        if process is None or not process.is_dead:
            self.failures.append(f"{self._now_s:.6f} {context.get('message')}: {error!r}")


def run_on(loop: SimLoop, main: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end on a new loop, and close the loop."""
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(main)
    finally:
        try:
            left = [task for task in asyncio.all_tasks(loop) if not task.done()]
            for task in sorted(left, key=lambda each: getattr(each, "number", 0)):
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.wait(left, timeout=60))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            loop.close()
