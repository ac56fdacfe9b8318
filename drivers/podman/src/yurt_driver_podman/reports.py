"""Translates a podman engine's reports on containers to the driver contract; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yurt.sdk.containers.common import parse_stamp, signal_in
from yurt.sdk.driver import HEALTHY, ExitResult, Fingerprint, TaskStats
from yurt.sdk.errors import DriverError
from yurt.sdk.value import UnixNano

from yurt_driver_podman.config import DEFAULT_NAME, PluginConfig

ENDED = ("exited", "stopped")
NOT_STARTED = ("created", "configured", "initialized", "unknown")
RESTARTED = "the container no longer runs and left no exit code: the machine was restarted"


def result_of(inspected: Mapping[str, Any]) -> ExitResult | None:
    """A container's exit result; None while it runs. After a reboot podman reports the container as never started."""
    state = inspected["State"]
    status = str(state.get("Status", ""))
    if status in NOT_STARTED:
        return ExitResult(error=RESTARTED, finished_at=UnixNano(0))
    if status not in ENDED:
        return None
    code = int(state.get("ExitCode") or 0)
    return ExitResult(
        exit_code=code,
        signal=signal_in(code),
        oom_killed=bool(state.get("OOMKilled")),
        error=str(state.get("Error") or ""),
        finished_at=UnixNano(parse_stamp(str(state.get("FinishedAt") or "").encode())),
    )


def is_restarted(inspected: Mapping[str, Any]) -> bool:
    """Whether the container ran before the machine was rebooted, and does not now."""
    return str(inspected["State"].get("Status", "")) in NOT_STARTED


def task_stats(answer: Mapping[str, Any], at: UnixNano) -> TaskStats:
    """Resource usage, from the engine's report on one container."""
    if answer.get("Error"):
        raise DriverError(f"Podman: {answer['Error']}")
    found = (answer.get("Stats") or [{}])[0]
    total, system = int(found.get("CPUNano") or 0), int(found.get("CPUSystemNano") or 0)
    return TaskStats(
        at=at,
        rss_bytes=int(found.get("MemUsage") or 0),
        cpu_user_ns=max(0, total - system),
        cpu_system_ns=system,
        pids=int(found.get("PIDs") or 0),
    )


def healthy(info: Mapping[str, Any], config: PluginConfig, socket: str) -> Fingerprint:
    """The attributes of a healthy engine; those of non-default engines include its name."""
    host, version = info.get("host") or {}, info.get("version") or {}
    prefix = "driver.podman" if socket == DEFAULT_NAME else f"driver.podman.{socket}"
    security = host.get("security") or {}
    attributes = {
        "": "1",
        ".version": str(version.get("Version", "")),
        ".rootless": str(bool(security.get("rootless"))).lower(),
        ".cgroupVersion": str(host.get("cgroupVersion", "")),
        ".appArmor": str(bool(security.get("apparmorEnabled"))).lower(),
        ".selinuxEnabled": str(bool(security.get("selinuxEnabled"))).lower(),
        ".seccompEnabled": str(bool(security.get("seccompEnabled"))).lower(),
        ".capabilities": str(security.get("capabilities", "")),
        ".ociRuntime": str((host.get("ociRuntime") or {}).get("path", "")),
        ".networkBackend": str(host.get("networkBackend", "")),
        ".volumes.enabled": "true" if config.volumes_enabled else "",
        ".privileged.enabled": "true" if config.options.allow_privileged else "",
    }
    return Fingerprint(
        health=HEALTHY,
        description="Healthy",
        attributes={prefix + name: value for name, value in attributes.items() if value},
    )
