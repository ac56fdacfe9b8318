"""`yurt var lock`: runs a command while it has a lock on a variable."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time

from yurt.cli.api.variables import WriteConflict, write
from yurt.cli.commands.var.output import TEMPLATE, checked_form, out_flag, show
from yurt.cli.declaration import VERBOSE, CliCommand, Invocation
from yurt.cli.errors import ApiError, CliError, Unreachable, UsageError
from yurt.cli.flags import number, switch, text
from yurt.cli.json_object import Json
from yurt.cli.terminal.text import parse_duration

FORMS = ("go-template", "hcl", "json", "none", "table")
SECOND = 1_000_000_000
ASK_AGAIN_S = 1.0
POLL_S = 0.1
KILL_AFTER_S = 10.0
LOST_CODE = 1
INTERRUPTED_CODE = 130
PR_SET_PDEATHSIG = 1


def run_under_lock(call: Invocation) -> int:
    """Acquire, run, renew meanwhile, release; the exit code is the command's."""
    form = checked_form(call, FORMS, default="none")
    path, *words = call.args
    lock = {
        key: _duration(call, flag) for key, flag in (("TTL", "ttl"), ("LockDelay", "delay")) if call.flags.text(flag)
    }
    acquired = _acquire(call, path, lock)
    show(call, {**acquired, "Lock": {**acquired["Lock"], "ID": ""}}, form)
    if call.is_verbose:
        call.screen.error(f'Lock on variable "{path}" acquired')
    before = {sign: signal.signal(sign, _interrupt) for sign in (signal.SIGTERM, signal.SIGHUP)}
    child: subprocess.Popen[bytes] | None = None
    try:
        child = _start(call, words)
        return _guard(call, path, acquired["Lock"], child)
    except KeyboardInterrupt:
        return INTERRUPTED_CODE
    finally:
        if child is not None:
            _end(child)
        _release(call, path, acquired["Lock"])
        for sign, handler in before.items():
            signal.signal(sign, handler)


def _interrupt(_number: int, _frame: object) -> None:
    """End the command together with this one: the lock may pass to others as soon as this one ends."""
    raise KeyboardInterrupt


def _duration(call: Invocation, flag: str) -> str:
    value = call.flags.text(flag)
    try:
        parse_duration(value)
    except ValueError:
        raise UsageError(f'Invalid value "{value}" for -{flag}: a duration such as 15s is needed') from None
    return value


def _backoff_s(call: Invocation) -> float:
    """The pause between two tries, given as a duration or in seconds."""
    given = call.flags.text("backoff")
    pause_s = float(given) if given.isdecimal() else parse_duration(_duration(call, "backoff")) / SECOND
    return max(pause_s, 0.0) or ASK_AGAIN_S


def _acquire(call: Invocation, path: str, lock: Json) -> Json:
    """Wait for the lock; `-early-return` stops when another caller has it, `-max-retry` bounds other failures."""
    failures, backoff_s = 0, _backoff_s(call)
    while True:
        try:
            return write(call, "PUT", path, {"Path": path, "Lock": lock}, **{"lock-acquire": ""})
        except WriteConflict:
            if call.flags.is_on("early-return"):
                raise CliError(f'The lock on variable "{path}" is held by somebody else') from None
            if call.is_verbose:
                call.screen.error(f'Waiting for the lock on variable "{path}"')
        except (ApiError, Unreachable) as error:
            is_final = isinstance(error, ApiError) and error.status < 500
            failures += 1
            if is_final or failures > call.flags.number("max-retry"):
                raise CliError(f'Failed to lock variable "{path}": {error}') from None
        time.sleep(backoff_s)


def _start(call: Invocation, words: list[str]) -> subprocess.Popen[bytes]:
    command = ["/bin/sh", "-c", " ".join(words)] if call.flags.is_on("shell") else words
    try:
        return subprocess.Popen(command, start_new_session=True, preexec_fn=_end_with_parent)  # noqa: PLW1509 - no threads here
    except OSError as error:
        raise CliError(f"{command[0]}: cannot be started: {error.strerror}") from None


def _end_with_parent() -> None:
    """A command whose guard was killed gets a signal too, where the system can send one."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _guard(call: Invocation, path: str, lock: Json, child: subprocess.Popen[bytes]) -> int:
    """Wait for the command's end and renew the lock every third of its time; a lock that is lost ends the command."""
    ttl_s = parse_duration(lock["TTL"]) / SECOND
    renewed_at = time.monotonic()
    next_at = renewed_at + ttl_s / 3
    while True:
        try:
            return child.wait(timeout=max(min(next_at - time.monotonic(), ttl_s), POLL_S))
        except subprocess.TimeoutExpired:
            pass
        try:
            write(call, "PUT", path, {"Path": path, "Lock": {"ID": lock["ID"]}}, **{"lock-renew": ""})
            renewed_at = time.monotonic()
            next_at = renewed_at + ttl_s / 3
        except WriteConflict:
            call.screen.error(f'The lock on variable "{path}" was lost; the command is ended')
            _end(child)
            return LOST_CODE
        except (ApiError, Unreachable) as error:
            next_at = time.monotonic() + ASK_AGAIN_S
            if time.monotonic() - renewed_at > ttl_s:
                call.screen.error(f'The lock on variable "{path}" could not be renewed in time: {error}')
                _end(child)
                return LOST_CODE


def _end(child: subprocess.Popen[bytes]) -> int:
    """Ask the command to end, then make it; its exit code."""
    for sign, wait_s in ((signal.SIGTERM, KILL_AFTER_S), (signal.SIGKILL, KILL_AFTER_S)):
        if child.poll() is not None:
            break
        os.killpg(child.pid, sign)
        try:
            child.wait(timeout=wait_s)
        except subprocess.TimeoutExpired:
            continue
    return child.returncode if child.returncode is not None else LOST_CODE


def _release(call: Invocation, path: str, lock: Json) -> None:
    try:
        write(call, "PUT", path, {"Path": path, "Lock": {"ID": lock["ID"]}}, **{"lock-release": ""})
    except (WriteConflict, ApiError, Unreachable) as error:
        call.screen.error(f'The lock on variable "{path}" could not be released; it ends with its time: {error}')


COMMANDS = (
    CliCommand(
        "var lock",
        "Run a command while a lock on a variable is held",
        run_under_lock,
        (
            text("ttl", "How long the lock holds without renewal, 10s to 24h; 15s unless given."),
            text("delay", "How long nobody gets the lock after it has expired; 15s unless given."),
            switch("shell", "Run the command by /bin/sh -c.", default=True),
            switch("early-return", "End at once when somebody else holds the lock."),
            number("max-retry", "How often to try again when the agent cannot be asked.", default=5),
            text("backoff", "The pause between two tries, such as 5s; 0: one second.", default="0"),
            out_flag("go-template, hcl, json, none or table", "the variable", default="none"),
            TEMPLATE,
            VERBOSE,
        ),
        (2, -1),
        "<path> <command> [args]",
        "at least two arguments: <path> <command>",
        stop_at_argument=True,
    ),
)
