"""Runs CNI plugins: programs with variables and standard input as parameters, and JSON as the answer."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from yurt.client.networks import cni
from yurt.client.networks.cni import Attachment, NetworkConfig
from yurt.sdk.errors import Invalid, RecoverableError
from yurt.sdk.trust import distrust

ADD, DEL, CHECK = "ADD", "DEL", "CHECK"
PLUGIN_LIMIT_S = 60.0
SBIN = "/usr/sbin:/sbin"


def find_program(name: str, paths: Sequence[str]) -> str:
    """The plugin's file; "" when no folder has it."""
    return shutil.which(name, path=":".join(paths)) or ""


async def add(config: NetworkConfig, attachment: Attachment, paths: Sequence[str]) -> Mapping[str, Any]:
    """Connect the namespace and return the result; after a RecoverableError, call `delete`."""
    result: Mapping[str, Any] | None = None
    for plugin in config.plugins:
        answer = await _run(ADD, config, plugin, attachment, paths=paths, previous=result)
        try:
            result = cni.read_result(answer)
            cni.status_of(result)
        except Invalid as error:
            raise RecoverableError(f'CNI plugin "{plugin["type"]}" of network "{config.name}": {error}') from None
    return result or {}


async def delete(
    config: NetworkConfig, attachment: Attachment, paths: Sequence[str], result: Mapping[str, Any] | None
) -> None:
    """Disconnect the namespace by all plugins, even if one fails; raises RecoverableError with the first reason."""
    failures: list[RecoverableError] = []
    previous = result if cni.keeps_result(config) else None
    for plugin in reversed(config.plugins):
        try:
            await _run(DEL, config, plugin, attachment, paths=paths, previous=previous)
        except RecoverableError as error:
            failures.append(error)
    if failures:
        raise failures[0]


async def check(config: NetworkConfig, attachment: Attachment, paths: Sequence[str], result: Mapping[str, Any]) -> None:
    """Check the connection; raises RecoverableError when it differs from the result of `add`."""
    if config.is_checked and cni.keeps_result(config):
        for plugin in config.plugins:
            await _run(CHECK, config, plugin, attachment, paths=paths, previous=result)


async def _run(
    command: str,
    config: NetworkConfig,
    plugin: Mapping[str, Any],
    attachment: Attachment,
    *,
    paths: Sequence[str],
    previous: Mapping[str, Any] | None,
) -> bytes:
    name = str(plugin["type"])
    program = find_program(name, paths)
    if not program:
        raise RecoverableError(
            f'CNI plugin "{name}" of network "{config.name}" is in none of the folders {", ".join(paths)}; '
            "install it, or set client { cni_path }"
        )
    if problem := distrust(program):
        raise RecoverableError(f'CNI plugin "{name}" of network "{config.name}" is refused: {problem}')
    variables = cni.environment(command, attachment, paths)
    search = f"{os.environ.get('PATH', '')}:{SBIN}".strip(":")
    body = cni.request(config, plugin, attachment, previous)
    code, output, errors = await run_program(program, body, {"PATH": search, **variables})
    if code != 0:
        reason = cni.failure_text(output, errors)
        raise RecoverableError(f'CNI plugin "{name}" of network "{config.name}" failed to {command}: {reason}')
    return output


async def run_program(
    program: str,
    body: bytes,
    env: Mapping[str, str],
    *,
    arguments: tuple[str, ...] = (),
    limit_s: float = PLUGIN_LIMIT_S,
) -> tuple[int, bytes, bytes]:
    """Exit code, standard output and standard error of a program; it is killed at the time limit.

    Its input is a file: a pipe would break when the program ends before it has read everything.
    """
    with tempfile.TemporaryFile() as input_file:
        input_file.write(body)
        input_file.seek(0)
        try:
            process = await asyncio.create_subprocess_exec(
                program,
                *arguments,
                stdin=input_file,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=dict(env),
            )
        except OSError as error:
            raise RecoverableError(f"cannot run {program}: {error.strerror}") from None
    try:
        async with asyncio.timeout(limit_s):
            output, errors = await process.communicate()
    except TimeoutError:
        raise RecoverableError(f"{program} has not answered for {limit_s:g} s") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return process.returncode or 0, output, errors
