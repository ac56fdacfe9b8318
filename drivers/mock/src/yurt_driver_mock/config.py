"""The options of mock_driver, and the step from them to a task's behaviour. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from yurt.sdk.driver import ExitResult, TaskRequest
from yurt.sdk.schema import duration_option
from yurt.sdk.value import NANOSECONDS, UnixNano, Value

ENCODED_OUTPUT_BYTES_MAX = 1024 * 1024


class CommandConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The behaviour of a command: its duration, output and end."""

    run_for: str = ""
    exit_code: int = 0
    exit_signal: int = 0
    exit_err_msg: str = ""
    signal_error: str = ""
    stdout_string: str = ""
    stdout_repeat: int = 0
    stdout_repeat_duration: str = ""
    stderr_string: str = ""
    stderr_repeat: int = 0
    stderr_repeat_duration: str = ""


class TaskConfig(CommandConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `config` block of a task: the command, the behaviour of its start, and of `exec` in it."""

    start_error: str = ""
    start_error_recoverable: bool = False
    start_block_for: str = ""
    kill_after: str = ""
    plugin_exit_after: str = ""
    driver_ip: str = ""
    driver_advertise: bool = False
    driver_port_map: str = ""
    exec_command: CommandConfig | None = None


class PluginOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `config` block of `plugin "mock_driver"` in the agent's configuration."""

    fs_isolation: str = "none"
    shutdown_periodic_after: bool = False
    shutdown_periodic_duration: int = 0


class ScriptedOutput(Value, rename=None):
    """A text written to an output at once and then `repeat` times, `every_s` apart."""

    text: str = ""
    repeat: int = 0
    every_s: float = 0.0


class Behaviour(Value, rename=None):
    """The behaviour of a mock task, decided before its start."""

    run_for_s: float = 0.0
    kill_after_s: float = 0.0
    end: ExitResult = ExitResult()
    signal_error: str = ""
    stdout: ScriptedOutput = ScriptedOutput()
    stderr: ScriptedOutput = ScriptedOutput()
    exec: Behaviour | None = None


def duration_s(text: str, *, option: str) -> float:
    """A Go duration ("1m30s", "250ms") or plain seconds, in seconds; empty is 0."""
    if not text:
        return 0.0
    is_plain = text.replace(".", "", 1).isdecimal()
    return duration_option(f"{text}s" if is_plain else text, option=option) / NANOSECONDS


def behaviour_of(config: CommandConfig, *, path: str = "") -> Behaviour:
    """The behaviour of a command; raises Invalid for an invalid duration, named by the path of its block and option."""
    task = config if isinstance(config, TaskConfig) else None
    return Behaviour(
        run_for_s=duration_s(config.run_for, option=f"{path}run_for"),
        kill_after_s=duration_s(task.kill_after if task else "", option="kill_after"),
        exec=behaviour_of(task.exec_command, path="exec_command.") if task and task.exec_command else None,
        end=ExitResult(exit_code=config.exit_code, signal=config.exit_signal, error=config.exit_err_msg),
        signal_error=config.signal_error,
        stdout=ScriptedOutput(
            text=config.stdout_string,
            repeat=config.stdout_repeat,
            every_s=duration_s(config.stdout_repeat_duration, option=f"{path}stdout_repeat_duration"),
        ),
        stderr=ScriptedOutput(
            text=config.stderr_string,
            repeat=config.stderr_repeat,
            every_s=duration_s(config.stderr_repeat_duration, option=f"{path}stderr_repeat_duration"),
        ),
    )


def command_line(request: TaskRequest) -> tuple[str, ...]:
    """The command line that a mock task would have; it runs none."""
    config: TaskConfig = request.config
    return ("mock_driver", config.run_for or "0s")


def whole_output(output: ScriptedOutput) -> bytes:
    """A command's complete output on one stream, up to a limit."""
    text = output.text.encode()
    if not text:
        return b""
    return text * min(1 + output.repeat, max(1, ENCODED_OUTPUT_BYTES_MAX // len(text)))


def remaining_s(behaviour: Behaviour, *, started_at: UnixNano, now: UnixNano) -> float:
    """The remaining duration of a recovered task."""
    return max(0.0, behaviour.run_for_s - (now - started_at) / NANOSECONDS)


def encode_behaviour(behaviour: Behaviour) -> Mapping[str, Any]:
    """The behaviour as the state of a handle."""
    encoded: Mapping[str, Any] = msgspec.to_builtins(behaviour)
    return encoded


def decode_behaviour(state: Mapping[str, Any]) -> Behaviour:
    """The behaviour in the state of a handle."""
    return msgspec.convert(state, Behaviour)
