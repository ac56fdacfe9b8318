"""The composition root: constructs every part, runs them until a signal, and stops them in order.

Order up: data directory, listening sockets (so that a port in use is reported before anything else happens), plugins,
server and client, HTTP, then the first screen. Order down: tasks (dev mode, or where a leave setting says so),
client, HTTP, server, plugins, files. Log lines are held back until the first screen stands.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from yurt import __version__
from yurt.agent import banner
from yurt.agent.blocks.cluster import ALONE, MEMORY
from yurt.agent.blocks.without_effect import warn_of_no_effect, with_effect
from yurt.agent.certificates import read_late
from yurt.agent.config import AgentConfig, seconds_of
from yurt.agent.data_dir import AgentDataDir, open_data_dir
from yurt.agent.heap import give_back, keep_giving_back, keep_large_blocks_apart
from yurt.agent.limits import raise_file_limit
from yurt.agent.process.end_limit import EndLimit
from yurt.agent.process.logs import AgentLogs, LogSettings
from yurt.agent.process.notify import Notifier
from yurt.agent.process.reloading import reload_of
from yurt.agent.tls import log_certificate, reload_http, tls_settings
from yurt.runtime.env import RealEnv, Timer
from yurt.runtime.supervise import supervised
from yurt.sdk.errors import Invalid, YurtError
from yurt.sdk.value import replace

if TYPE_CHECKING:
    from yurt.agent.node import Parts
    from yurt.audit.trail import AuditTrail
    from yurt.server.resources.acl_tokens import AclTokens

log = logging.getLogger(__name__)

STOP_TASKS_LIMIT_S = 60.0
"""The longest wait for tasks to stop, where the agent stops them."""
STOP_PARTS_LIMIT_S = 75.0
"""The longest wait for the parts to stop, before the end limit begins: their calls in threads wait for a free one, and
those of a package may occupy all. The unit of the Debian package kills the agent after 150 s: later than both
limits and the end limit of the process together."""
READY_LIMIT_S = 30.0
FAR_READY_LIMIT_S = 4.0
"""After this time, an agent that waits for other agents shows what it waits for."""
SAME_SIGNAL_S = 1.0
"""A signal this soon after the first one counts as the same. To take it for a second one would leave tasks behind that
a dev agent is about to stop; a loaded machine's runner passes a signal on late."""

STILL_STOPPING = "==> Still stopping; send another signal to exit without waiting"

Reload = Callable[[], AgentConfig]
Thresholds = tuple[int, int, int]
"""Those of Python's cyclic collector."""


def run_agent(config: AgentConfig, *, collector: Thresholds, reload: Reload | None = None) -> int:
    """Run until a signal; the exit code. Raises YurtError when it cannot start.

    `collector`: the thresholds of the interpreter, which the command `agent` raises while modules are imported.
    """
    if config.is_server and not config.is_client:
        raise_file_limit()  # A client leaves it to its tasks as it is.
    keep_large_blocks_apart()
    say(banner.loaded_line(config.files))
    say("==> Starting Yurt agent...")
    data = open_data_dir(config.data_dir)
    agent = None
    try:
        sockets, config = bind_http(_with_recorded_port(config, data))
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            agent = _Agent(config, data, sockets=sockets, collector=collector, reload=reload)
            return runner.run(agent.main())
    except BaseExceptionGroup as group:
        raise _cause(group) from None
    except asyncio.CancelledError:
        return 1
    finally:
        if agent is not None:
            agent.end_limit.failure = ""  # the caller prints it
            agent.buffered_lines.release()
        data.close()
        gc.freeze()  # The process ends: to look for garbage in all that goes with it takes longer than the rest.


def _with_recorded_port(config: AgentConfig, data: AgentDataDir) -> AgentConfig:
    """The configuration with the recorded port of this server's etcd member."""
    if not config.is_server or config.is_dev:
        return config
    from yurt.agent.cluster.cluster_files import etcd_port

    return replace(config, cluster=replace(config.cluster, etcd_port=etcd_port(config.cluster, data.server)))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def _collect_again(thresholds: Thresholds) -> None:
    """Collect new objects as the interpreter does; imported ones are frozen. A server decides by itself."""
    gc.freeze()
    gc.set_threshold(*thresholds)


def _cause(group: BaseException) -> BaseException:
    """The first failure inside a group, or the failure itself."""
    found = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


def import_parts() -> None:
    """Import what every agent needs; the system's certificates are not read for it."""
    with read_late():
        import_module("aiohttp")
    import_module("yurt.agent.node")


def bind_http(config: AgentConfig) -> tuple[list[socket.socket], AgentConfig]:
    """Listening sockets for the HTTP addresses; port 0 becomes the port that the system gave."""
    sockets: list[socket.socket] = []
    try:
        for address in config.http_addresses:
            sockets.append(_listen(address, config.http_port))
    except OSError as error:
        for opened in sockets:
            opened.close()
        raise Invalid(_bind_problem(address, config.http_port, error)) from None
    port = int(sockets[0].getsockname()[1])
    if port == config.http_port:
        return sockets, config
    advertised = config.advertise_http.rsplit(":", 1)[0] + f":{port}"
    return sockets, replace(config, http_port=port, advertise_http=advertised)


def _listen(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(1024)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def _bind_problem(address: str, port: int, error: OSError) -> str:
    import errno

    if error.errno == errno.EADDRINUSE:
        return (
            f"Port {port} on {address} is in use by another process, perhaps another agent. "
            f"Stop it, or choose another port: a file with `ports {{ http = {port + 1000} }}` given by -config."
        )
    if error.errno == errno.EACCES:
        return f"Port {port} may only be opened by root; choose one above 1023 with `ports {{ http = ... }}`."
    if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        return f'This machine has no address "{address}"; choose one that it has with bind_addr or -bind.'
    return f"Cannot listen on {address}:{port}: {error.strerror or error}."


def ready_limit_s(config: AgentConfig) -> float:
    """How long a start waits for leader and node: `server.start_timeout`."""
    is_alone = config.is_server and config.cluster.engine in (MEMORY, *ALONE)
    return seconds_of(config.server.get("start_timeout"), READY_LIMIT_S if is_alone else FAR_READY_LIMIT_S)


class _StopSignal(NamedTuple):
    """The signal that asked the agent to stop, and when it came on the loop's clock."""

    number: int = 0
    at_s: float = 0.0
    hint: Timer | None = None
    """Tells that a second signal counts now."""


class _Agent:
    """One run of an agent."""

    def __init__(
        self,
        config: AgentConfig,
        data: AgentDataDir,
        *,
        sockets: list[socket.socket],
        collector: Thresholds,
        reload: Reload | None,
    ) -> None:
        self.config = config
        self.data = data
        self.sockets = sockets
        self.collector = collector
        self.reload = reload
        self.env = RealEnv()
        self.buffered_lines = BufferedLines()
        self.logs = AgentLogs(log_settings(config), stream=self.buffered_lines, now=self.env.now)
        self.systemd = Notifier(os.environ, self.env)
        self.stop_asked = asyncio.Event()
        self.first_signal = _StopSignal()
        self.end_limit = EndLimit(self._close_files)
        self.task: asyncio.Task[Any] | None = None
        self.http_tls: ssl.SSLContext | None = None
        self.audit: AuditTrail | None = None

    def _close_files(self) -> None:
        self.buffered_lines.release()
        self.data.close()

    async def main(self) -> int:
        """Start, wait for a signal, stop; from its end on the process ends within a limit."""
        try:
            return await self._run()
        except BaseException as error:
            cause = _cause(error)
            self.end_limit.begin(code=1, failure=str(cause) if isinstance(cause, YurtError) else repr(cause))
            raise

    async def _run(self) -> int:
        self.task = asyncio.current_task()
        self._handle_signals()
        import_parts()
        from yurt.agent.node import make_parts
        from yurt.agent.plugin_context import check_cgroup_parent

        warn_of_no_effect(self.config.raw)
        if self.config.is_client:
            check_cgroup_parent(self.config)
        parts = await make_parts(self.config, self.data, env=self.env)
        self.http_tls = parts.http.tls
        self.audit = parts.http.audit
        parts.http.set_reload(self.read_again)
        if not self.config.is_server:
            _collect_again(self.collector)
        async with asyncio.TaskGroup() as group:
            token_lines = banner.access_lines() if self.config.has_acl else []
            if self.config.makes_token and parts.server is not None:
                # Who is answered before that could make the first management token.
                make_token = partial(self._make_token, parts.server.resources.acl_tokens, token_lines)
                await parts.start(group, self.sockets, before_serving=make_token)
            else:
                await parts.start(group, self.sockets)
            await self._until_ready(parts, group)
            if not self.stop_asked.is_set():
                self._print_first_screen(parts, token_lines)
            self.buffered_lines.release()
            watchdog = supervised(group, "watchdog of systemd", self.systemd.run_watchdog())
            self.systemd.ready(_status(parts.missing()))
            after_start = partial(_after_start, runs_jobs=parts.server is not None)
            supervised(group, "load the scheduler", self.env.in_thread(after_start))
            giving_back = supervised(group, "return free memory", keep_giving_back())
            await self.stop_asked.wait()
            say(f"==> Caught signal: {_signal_word(self.first_signal.number)}")
            giving_back.cancel()
            self.systemd.stopping(f"stopping: {_signal_word(self.first_signal.number)}")
            await self._stop(parts)
            watchdog.cancel()
        return 0

    async def _until_ready(self, parts: Parts, group: asyncio.TaskGroup) -> None:
        """Wait for leader and node, or for a signal, whichever comes first; late parts do not delay the screen."""
        ready = group.create_task(parts.wait_ready(), name="ready")
        stopped = group.create_task(_wait(self.stop_asked), name="stopped")
        limit_s = ready_limit_s(self.config)
        await asyncio.wait({ready, stopped}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done() and not stopped.done():
            log.warning("not ready after %g s; going on: %s", limit_s, "; ".join(parts.missing()))
        ready.cancel()
        stopped.cancel()

    async def _make_token(self, tokens: AclTokens, lines: list[str]) -> None:
        """Make the management token of a dev agent; `lines` then show it."""
        from yurt.agent.dev_token import bootstrap_dev

        lines[:] = banner.token_lines(await bootstrap_dev(tokens, self.data, self.env))

    def _print_first_screen(self, parts: Parts, token: Sequence[str]) -> None:
        config = self.config
        lines = banner.configuration_lines(
            config, version=__version__, data_dir=str(self.data.root), node_id=parts.node_id
        )
        lines += banner.exposure_lines(config, tls_settings(config))
        lines += banner.hidden_lines(config)
        if config.is_client:
            lines += banner.driver_lines(parts.driver_lines())
            lines += banner.device_lines(parts.device_lines())
        command = banner.command_name(Path.cwd(), os.environ)
        scheme = "http" if parts.http.tls is None else "https"
        lines += token
        lines += banner.tls_lines(tls_settings(config), config.region)
        lines += banner.next_lines(f"{scheme}://{config.advertise_http}", command, parts.missing())
        say("\n".join(lines))

    async def _stop(self, parts: Parts) -> None:
        config = self.config
        leaves = config.leave_on_interrupt if self.first_signal.number == signal.SIGINT else config.leave_on_terminate
        if leaves and await self._drained(parts):
            log.info("what the drain leaves alone runs on")
        elif config.is_dev or leaves:
            try:
                await asyncio.wait_for(parts.stop_tasks(), STOP_TASKS_LIMIT_S)
            except TimeoutError:
                log.error("tasks did not stop within %d s", STOP_TASKS_LIMIT_S)
        late = self.env.call_later(STOP_PARTS_LIMIT_S, partial(self.end_limit.begin, code=1))
        await parts.stop(leaves=leaves)
        late.cancel()
        await _in_own_thread(self.data.remove_if_temporary)  # what tasks have left may be a million files
        if self.first_signal.hint is not None:
            self.first_signal.hint.cancel()
        self.end_limit.begin(code=0)

    async def _drained(self, parts: Parts) -> bool:
        """Drain the node where that is configured; systemd is asked to wait meanwhile."""
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(self.systemd.keep_waiting(), name="systemd waits")
            is_drained = await parts.drain(self.env)
            waiting.cancel()
        return is_drained

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_stop, int(number))
        loop.add_signal_handler(signal.SIGHUP, self._on_reload)

    def _on_stop(self, number: int) -> None:
        """The first signal asks for an orderly stop, a later one ends the agent at once.

        One Ctrl-C may arrive twice, from the terminal and from a runner such as `uv run` that passes it on.
        """
        now = asyncio.get_running_loop().time()
        if not self.stop_asked.is_set():
            hint = self.env.call_later(SAME_SIGNAL_S, partial(say, STILL_STOPPING))
            self.first_signal = _StopSignal(number, now, hint)
        elif now - self.first_signal.at_s > SAME_SIGNAL_S and self.task is not None:
            say("==> Caught another signal: leaving without waiting for parts that are still stopping")
            self.end_limit.begin(code=1)
            self.task.cancel()
        self.stop_asked.set()

    def _on_reload(self) -> None:
        try:
            self.read_again()
        except YurtError as error:
            log.error("reload: %s", error)

    def read_again(self) -> None:
        """Read the configuration again and apply what may change; raises YurtError, and the old one stays in use."""
        if self.audit is not None:
            self.audit.reopen()  # Whatever the configuration says now: the file may have got another name.
        self.logs.reopen()
        if self.reload is None:
            return
        self.systemd.reloading()
        status = "the last reload failed: see the log"
        try:
            self._apply_again(self.reload())
            status = "running"
        finally:
            self.systemd.ready(status)

    def _apply_again(self, config: AgentConfig) -> None:
        settings = tls_settings(config)
        reload_http(self.http_tls, settings)
        changed = reload_of(with_effect(self.config.raw), with_effect(config.raw))
        warn_of_no_effect(config.raw, known=self.config.raw)
        self.logs.set_level(config.terminal_log_level)
        log.info(
            "configuration reloaded: log_level=%s changed=%s",
            config.terminal_log_level,
            ",".join(changed.taken) or "none",
        )
        log_certificate(settings)
        if changed.waiting:
            log.warning("changes take effect at the next start of the agent: keys=%s", ",".join(changed.waiting))


def log_settings(config: AgentConfig) -> LogSettings:
    """The log of the agent."""
    return LogSettings(
        level=config.terminal_log_level,
        as_json=config.log_json,
        has_location=config.has_log_location,
        file=config.log_file,
        rotate_bytes=config.log_rotate_bytes,
        rotate_s=config.log_rotate_s,
        rotate_max_files=config.log_rotate_max_files,
        has_syslog=config.has_syslog,
        syslog_facility=config.syslog_facility,
    )


def _status(missing: Sequence[str]) -> str:
    """The text that `systemctl status` shows for a ready agent."""
    return "; ".join(missing) or "running"


async def _in_own_thread(function: Callable[[], None]) -> None:
    """Call a function in a thread of its own: those of the loop may be occupied by calls that do not end."""
    pool = ThreadPoolExecutor(1)
    try:
        await asyncio.get_running_loop().run_in_executor(pool, function)
    finally:
        pool.shutdown(wait=False)


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


def _after_start(*, runs_jobs: bool) -> None:
    """Prepare what the first requests to a server need, then return free memory."""
    if runs_jobs:
        from yurt.http.resources.first_requests import prepare_first_requests

        prepare_first_requests()
    give_back()


def _signal_word(number: int) -> str:
    return signal.Signals(number).name.removeprefix("SIG").lower()


class BufferedLines:
    """A stream that buffers its output until it is released."""

    def __init__(self) -> None:
        self._lines: list[str] | None = []

    def write(self, text: str) -> int:
        """Buffer or print the text."""
        if self._lines is None:
            return sys.stdout.write(text)
        self._lines.append(text)
        return len(text)

    def flush(self) -> None:
        """Flush the buffer of standard output."""
        if self._lines is None:
            sys.stdout.flush()

    def release(self) -> None:
        """Print the buffered text, and print directly from now on."""
        buffered, self._lines = self._lines or [], None
        if buffered:
            sys.stdout.write("".join(buffered))
            sys.stdout.flush()


def say(line: str) -> None:
    """Print a line for the operator, outside the log."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
