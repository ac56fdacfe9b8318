"""Executable plugins of dynamic host volumes: discovery, calls, answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import stat
from collections.abc import Mapping
from typing import Any

import msgspec

from yurt.sdk.errors import Invalid, YurtError
from yurt.sdk.trust import distrust
from yurt.structs.node import Node
from yurt.structs.volumes.host import HostVolume, HostVolumeMade

PLUGIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
FINGERPRINT_LIMIT_S = 10.0
CALL_LIMIT_S = 50.0
OUTPUT_MAX = 64 * 1024
PROGRAMS_MAX = 100
COMPLAINT_MAX = 500
BUILT_IN = frozenset({"mkdir"})

log = logging.getLogger(__name__)


class VolumeProgram:
    """One program in the plugin directory."""

    def __init__(self, path: str, volumes_dir: str) -> None:
        self.version = ""
        self._path = path
        self._volumes_dir = volumes_dir

    @property
    def name(self) -> str:
        """The name by which volumes refer to it."""
        return os.path.basename(self._path)

    async def fingerprint(self) -> None:
        """Query its version; raises Invalid when it has none."""
        answer = await self._ask("fingerprint", {}, FINGERPRINT_LIMIT_S)
        version = answer.get("version")
        if not isinstance(version, str) or not version:
            raise Invalid(f'host volume plugin {self.name}: fingerprint must print {{"version": "..."}}')
        self.version = version

    async def create(self, volume: HostVolume, node: Node) -> HostVolumeMade:
        """Create the volume, or find the existing one."""
        answer = await self._ask("create", self._facts(volume, node), CALL_LIMIT_S)
        path, size = answer.get("path"), answer.get("bytes", 0)
        if not isinstance(path, str) or not path or isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise Invalid(f'host volume plugin {self.name}: create must print {{"path": "/...", "bytes": 0}}')
        return HostVolumeMade(path=path, capacity_bytes=size)

    async def delete(self, volume: HostVolume, node: Node) -> None:
        """Remove the volume."""
        await self._run("delete", {**self._facts(volume, node), "DHV_CREATED_PATH": volume.host_path}, CALL_LIMIT_S)

    def _facts(self, volume: HostVolume, node: Node) -> dict[str, str]:
        return {
            "DHV_VOLUME_ID": volume.id,
            "DHV_VOLUME_NAME": volume.name,
            "DHV_NODE_ID": node.id,
            "DHV_NODE_POOL": node.node_pool,
            "DHV_NAMESPACE": volume.namespace,
            "DHV_CAPACITY_MIN_BYTES": str(volume.requested_capacity_min_bytes),
            "DHV_CAPACITY_MAX_BYTES": str(volume.requested_capacity_max_bytes),
            "DHV_PARAMETERS": msgspec.json.encode(dict(volume.parameters)).decode(),
        }

    async def _ask(self, operation: str, facts: Mapping[str, str], limit_s: float) -> dict[str, Any]:
        output = await self._run(operation, facts, limit_s)
        try:
            answer = msgspec.json.decode(output)
        except msgspec.DecodeError as error:
            raise Invalid(f"host volume plugin {self.name}: {operation} printed no JSON: {error}") from None
        if not isinstance(answer, dict):
            raise Invalid(f"host volume plugin {self.name}: {operation} must print a JSON object")
        return answer

    async def _run(self, operation: str, facts: Mapping[str, str], limit_s: float) -> bytes:
        env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "DHV_OPERATION": operation,
            "DHV_VOLUMES_DIR": self._volumes_dir,
            "DHV_PLUGIN_DIR": os.path.dirname(self._path),
            **facts,
        }
        if problem := await asyncio.to_thread(distrust, self._path):
            raise Invalid(f"host volume plugin {self.name} is refused: {problem}")
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                self._path, operation, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=env,
                start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            raise Invalid(f"host volume plugin {self.name} cannot be run: {error}") from None
        try:
            async with asyncio.timeout(limit_s):
                output, errors = await asyncio.gather(_read(process.stdout), _read(process.stderr))
                code = await process.wait()
        except TimeoutError:
            raise Invalid(f"host volume plugin {self.name}: {operation} took longer than {limit_s:g} s") from None
        finally:
            _kill_group(process)
            await process.wait()
        if code != 0:
            said = (errors or output).decode(errors="replace").strip()[-COMPLAINT_MAX:] or "it gave no reason"
            raise Invalid(f"host volume plugin {self.name}: {operation} failed with exit code {code}: {said}")
        if len(output) > OUTPUT_MAX:
            raise Invalid(f"host volume plugin {self.name}: {operation} printed more than {OUTPUT_MAX} bytes")
        return output


async def _read(stream: asyncio.StreamReader | None) -> bytes:
    """Read a stream to its end and keep a bounded part."""
    kept = b""
    while stream is not None and (piece := await stream.read(OUTPUT_MAX)):
        kept += piece[: OUTPUT_MAX + 1 - len(kept)]
    return kept


def _kill_group(process: asyncio.subprocess.Process) -> None:
    """Kill the process group of a call."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, 9)


async def find_programs(folder: str, volumes_dir: str) -> dict[str, VolumeProgram]:
    """The programs of a folder that report a version, by name."""
    found: dict[str, VolumeProgram] = {}
    for path in await asyncio.to_thread(_executables, folder):
        program = VolumeProgram(path, volumes_dir)
        try:
            await program.fingerprint()
        except YurtError as error:
            log.warning("host volume plugin ignored: %s", error)
            continue
        found[program.name] = program
    return found


def _executables(folder: str) -> list[str]:
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    except OSError as error:
        log.warning("reading host_volume_plugin_dir failed: folder=%s error=%s", folder, error.strerror)
        return []
    paths = [os.path.join(folder, name) for name in names if PLUGIN_NAME.fullmatch(name) and name not in BUILT_IN]
    return [path for path in paths if _is_program(path) and _is_trusted(path)][:PROGRAMS_MAX]


def _is_trusted(path: str) -> bool:
    if problem := distrust(path):
        log.warning("host volume plugin is refused: program=%s reason=%s", path, problem)
    return not problem


def _is_program(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) and os.access(path, os.X_OK)
