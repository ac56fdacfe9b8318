"""Debug data of an agent: its machine, threads, asyncio tasks and log lines.

The machine and the stacks are shown only where the operator allows it (`enable_debug`), and without secrets: only
variables of the environment that cannot hold one keep their values, and flags that are named for one lose theirs.
Everything is bounded. The profiles have the names and routes of Go's `pprof`, but hold text: in place of goroutines
they show Python's threads and asyncio's tasks, and in place of the heap the objects by type.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import platform
import re
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping
from types import FrameType
from typing import Any, Final

import psutil

from yurt.sdk.errors import Invalid, NotFound, PermissionDenied, Unavailable

HOST, PROFILE, JOURNAL, LOG_FILE = "host", "profile", "journal", "log_file"
REFUSED: Final = "Permission denied: an agent shows this only with enable_debug = true in its configuration"
FILE_BYTES_MAX: Final = 64 * 1024
SECONDS_MAX: Final = 60
SAMPLE_S: Final = 0.01
DEPTH_MAX: Final = 64
TASKS_MAX: Final = 20_000
OF_GO: Final = ("mutex", "symbol")
"""Profiles of Go programs that do not exist for a Python program."""
PROFILES: Final = ("allocs", "block", "cmdline", "goroutine", "heap", "profile", "threadcreate", "trace")
TYPES_MAX: Final = 1_000
TRACE_LINES_MAX: Final = 20_000
SERVICE: Final = re.compile(r"(nomad|yurt)[A-Za-z0-9@_.:-]{0,120}")
"""Names of the services whose journal is shown: those that may be agents."""
JOURNALS_MAX: Final = 8
QUIET_S: Final = 1.0
PIECE_BYTES: Final = 64 * 1024
HARMLESS: Final = frozenset({
    "HOME", "HOSTNAME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "PWD", "SHELL", "TERM", "TMPDIR", "TZ", "USER",
    "NOMAD_ADDR", "NOMAD_NAMESPACE", "NOMAD_REGION", "PYTHONPATH", "SSL_CERT_DIR", "SSL_CERT_FILE", "no_proxy",
    "NO_PROXY", "INVOCATION_ID", "JOURNAL_STREAM", "DOCKER_HOST",
})  # fmt: skip
REDACTED: Final = "<redacted>"
_SECRET_FLAG: Final = re.compile(r"(-{1,2}[a-z-]*(?:encrypt|token|secret|key|password)[a-z-]*)(=|$)", re.IGNORECASE)

_sampling = threading.Lock()
_journals: set[object] = set()


async def agent_diagnostics(what: str, options: Mapping[str, str], *, is_debug: bool) -> AsyncGenerator[bytes]:
    """One kind of data in pieces: the machine as JSON, a profile by its `name`, a `service`'s journal, or the log file.

    Raises PermissionDenied without `enable_debug`, NotFound, Invalid, or Unavailable. An empty piece is a heartbeat.
    """
    if what in (JOURNAL, LOG_FILE):
        async with contextlib.aclosing((_journal if what == JOURNAL else _log_files)(options)) as pieces:
            async for piece in pieces:
                yield piece
        return
    if not is_debug:
        raise PermissionDenied(REFUSED)
    if what == HOST:
        yield json.dumps(await asyncio.to_thread(host_data)).encode()
    elif what == PROFILE:
        yield await _profile(options)
    else:
        raise NotFound(f"an agent has no diagnostics named {what[:64]!r}")


def host_data() -> dict[str, Any]:
    """The machine in the form of `/v1/agent/host`; `Disk` is in MiB by mount point. Blocking."""
    return {
        "OS": platform.platform(),
        "Network": _network(),
        "ResolvConf": _file("/etc/resolv.conf"),
        "Hosts": _file("/etc/hosts"),
        "Environment": environment(os.environ),
        "Disk": _disks(),
    }


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """All variables by name; only values that cannot be secrets are shown."""
    return {
        name: value if name in HARMLESS or name.startswith("LC_") else REDACTED
        for name, value in sorted(environ.items())
    }


def command_line(argv: list[str]) -> list[str]:
    """The arguments of an agent, with the values of flags that are named for secrets redacted."""
    shown, is_value = [], False
    for word in argv:
        found = _SECRET_FLAG.match(word)
        shown.append(REDACTED if is_value else f"{found[1]}={REDACTED}" if found and found[2] else word)
        is_value = bool(found and not found[2])
    return shown


def _network() -> list[dict[str, str]]:
    return [
        {"name": name, "address": each.address, "netmask": each.netmask or ""}
        for name, addresses in sorted(psutil.net_if_addrs().items())
        for each in addresses
    ]


def _file(path: str) -> str:
    """The beginning of a file; "" when it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(FILE_BYTES_MAX).decode(errors="replace")
    except OSError:
        return ""


def _disks() -> dict[str, dict[str, int]]:
    found = {}
    for part in psutil.disk_partitions(all=False):
        with contextlib.suppress(OSError):
            space = shutil.disk_usage(part.mountpoint)
            found[part.mountpoint] = {"DiskMB": space.total >> 20, "UsedMB": space.used >> 20}
    return found


async def _profile(options: Mapping[str, str]) -> bytes:
    name, debug = options.get("name", ""), options.get("debug", "0")
    match name:
        case "cmdline":
            return "\0".join(command_line(sys.orig_argv)).encode()
        case "goroutine":
            if debug not in ("1", "2"):
                raise Invalid("threads and tasks are shown as text; use debug=1 (equal stacks counted) or debug=2")
            return stacks_text(asyncio.all_tasks(), is_counted=debug == "1").encode()
        case "profile" | "trace":
            seconds = options.get("seconds", "1")
            if not seconds.isdigit() or not 0 <= int(seconds) <= SECONDS_MAX:
                raise Invalid(f"seconds must be a whole number from 0 to {SECONDS_MAX}")
            text_of = sampled_text if name == "profile" else trace_text
            return (await asyncio.to_thread(text_of, float(seconds))).encode()
        case "heap" | "allocs":
            return (await asyncio.to_thread(objects_text)).encode()
        case "block":
            return stacks_text(asyncio.all_tasks(), is_counted=True, has_threads=False).encode()
        case "threadcreate":
            return stacks_text(set(), is_counted=False).encode()
    if name in OF_GO:
        raise NotFound(f'"{name}" is a profile of Go programs; this agent has {", ".join(PROFILES)}')
    raise NotFound(f"Unknown profile: {name[:64]}")


def objects_text() -> str:
    """The objects that Python's collector tracks, by type: bytes without what they refer to, number, type.

    Those that the collector has frozen are not listed, but their number is. Blocking: 1.5 s for a million objects.
    The other threads get their turn every 5 ms, except while the collector lists the objects (30 ms for a million).
    """
    with _one_at_a_time():
        sizes, counts = Counter[str](), Counter[str]()
        for each in gc.get_objects():
            kind = type(each)
            name = f"{kind.__module__}.{kind.__qualname__}"
            counts[name] += 1
            sizes[name] += _size_of(each, kind)
    total = f"objects: total {counts.total()} bytes {sizes.total()} resident {psutil.Process().memory_info().rss}\n"
    total += f"not listed, because the collector has frozen them: {gc.get_freeze_count()}\n"
    return total + "".join(f"{size} {counts[name]} {name}\n" for name, size in sizes.most_common(TYPES_MAX))


def _size_of(each: object, kind: Any) -> int:
    """Bytes by the type's own method: only that one knows the size of a coroutine; 0 where it fails."""
    try:
        return max(0, int(kind.__sizeof__(each)))
    except Exception:  # a method of whatever package
        return 0


def trace_text(seconds: float) -> str:
    """What each thread does and since when, as `milliseconds thread outer;inner` lines, one per change. Blocking."""
    lines, last, own = list[str](), dict[int, str](), threading.get_ident()
    with _one_at_a_time():
        for at_s in _moments(seconds):
            names = {each.ident: each.name for each in threading.enumerate()}
            stacks = {ident: ";".join(reversed(_frames(frame))) for ident, frame in sys._current_frames().items()}
            changed = [ident for ident, stack in stacks.items() if ident != own and last.get(ident) != stack]
            lines += [f"{at_s * 1000:.0f} {names.get(ident, ident)} {stacks[ident]}\n" for ident in changed]
            last = stacks
            if len(lines) > TRACE_LINES_MAX:
                break
    return "".join(lines)


def stacks_text(tasks: set[asyncio.Task[Any]], *, is_counted: bool, has_threads: bool = True) -> str:
    """The stacks of all threads and tasks: equal stacks once with their number, or each with its name."""
    names = {each.ident: each.name for each in threading.enumerate()}
    found = [
        (f'thread "{names.get(ident, ident)}"', _frames(frame))
        for ident, frame in sorted(sys._current_frames().items() if has_threads else ())
    ]
    found += [(f'task "{each.get_name()}"', _awaited(each.get_coro())) for each in list(tasks)[:TASKS_MAX]]
    if not is_counted:
        return "\n".join(f"{name}:\n{_indented(stack)}" for name, stack in found)
    counts = Counter((name.partition(" ")[0], stack) for name, stack in found)
    total = f"threads and tasks: total {len(found)}\n"
    return total + "\n".join(f"{count} {kind}\n{_indented(stack)}" for (kind, stack), count in counts.most_common())


def _indented(stack: tuple[str, ...]) -> str:
    return "".join(f"    {line}\n" for line in stack)


def _frames(frame: FrameType | None) -> tuple[str, ...]:
    """A thread's calls, the innermost first."""
    lines: list[str] = []
    while frame is not None and len(lines) < DEPTH_MAX:
        lines.append(f"{frame.f_code.co_qualname} ({frame.f_code.co_filename}:{frame.f_lineno})")
        frame = frame.f_back
    return tuple(lines)


def _awaited(waiting: Any) -> tuple[str, ...]:
    """A task's chain of coroutines, the innermost first."""
    lines: list[str] = []
    while waiting is not None and len(lines) < DEPTH_MAX:
        frame = next((getattr(waiting, name, None) for name in ("cr_frame", "gi_frame", "ag_frame")), None)
        if frame is None:
            break
        lines.append(f"{frame.f_code.co_qualname} ({frame.f_code.co_filename}:{frame.f_lineno})")
        waiting = next(
            (found for name in ("cr_await", "gi_yieldfrom", "ag_await") if (found := getattr(waiting, name, None))),
            None,
        )
    return tuple(reversed(lines))


def sampled_text(seconds: float) -> str:
    """Samples of the threads' stacks, one each 10 ms, as `outer;inner count` lines for flame graphs. Blocking."""
    with _one_at_a_time():
        own, counts = threading.get_ident(), Counter[str]()
        for _ in _moments(seconds):
            others = [frame for ident, frame in sys._current_frames().items() if ident != own]
            counts.update(";".join(reversed(_frames(frame))) for frame in others)
    return "".join(f"{stack} {count}\n" for stack, count in counts.most_common())


def _moments(seconds: float) -> Iterator[float]:
    """The times of samples, in seconds since the first one; at least that one. Blocking."""
    began, at_s = time.monotonic(), 0.0
    while True:
        yield at_s
        time.sleep(SAMPLE_S)
        at_s = time.monotonic() - began
        if at_s >= seconds:
            return


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Raises Unavailable while another profile is taken."""
    if not _sampling.acquire(blocking=False):
        raise Unavailable("a profile is being taken already; try again when it is done")
    try:
        yield
    finally:
        _sampling.release()


async def _journal(options: Mapping[str, str]) -> AsyncGenerator[bytes]:
    """Lines of systemd's journal about an agent's service, from `since_s` seconds ago on."""
    service = options.get("service", "")
    if not SERVICE.fullmatch(service):
        raise Invalid("service_name must begin with yurt or nomad, and be the name of a unit")
    words = ["--unit", service, "--no-pager", "--output", "short-iso", f"--since=-{options['since_s']}s"]
    if options.get("follow") == "true":
        words += ["--follow", "--lines", "all"]
    with _counted():
        async with contextlib.aclosing(_output_of("journalctl", *words)) as pieces:
            async for piece in pieces:
                yield piece


async def _log_files(options: Mapping[str, str]) -> AsyncGenerator[bytes]:
    """Lines of the agent's own log file, and of predecessors that were written to in the last `since_s` seconds."""
    from yurt.runtime.log_files import log_file_pieces  # Few agents have a file, and few are asked for it.

    with _counted():
        follow = options.get("follow") == "true"
        async with contextlib.aclosing(log_file_pieces(float(options["since_s"]), follow=follow)) as pieces:
            async for piece in pieces:
                yield piece


@contextlib.contextmanager
def _counted() -> Iterator[None]:
    """Bounds the number of logs that are read at once; raises Unavailable above it."""
    if len(_journals) >= JOURNALS_MAX:
        raise Unavailable(f"{JOURNALS_MAX} journals are read already; try again later")
    mark = object()
    _journals.add(mark)
    try:
        yield
    finally:
        _journals.discard(mark)


async def _piece_of(output: asyncio.StreamReader) -> bytes | None:
    """The next piece of a program's output, empty after `QUIET_S` without output; None at its end."""
    try:
        async with asyncio.timeout(QUIET_S):
            return await output.read(PIECE_BYTES) or None
    except TimeoutError:
        return b""


async def _output_of(program: str, *words: str) -> AsyncGenerator[bytes]:
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            program, *words, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=asyncio.subprocess.STDOUT
        )
    except FileNotFoundError:
        raise Invalid(f"{program} is not on this machine, so there is no journal of systemd to read") from None
    assert process.stdout is not None
    try:
        while (piece := await _piece_of(process.stdout)) is not None:
            yield piece
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
