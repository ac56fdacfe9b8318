"""Translates the engine's reports on containers to the driver contract; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yurt.sdk.containers.common import parse_stamp, signal_in
from yurt.sdk.driver import HEALTHY, ExitResult, Fingerprint, TaskStats
from yurt.sdk.value import UnixNano

from yurt_driver_docker.config import PluginConfig


def has_ended(inspected: Mapping[str, Any]) -> bool:
    """Whether a container has run and ended."""
    state = inspected["State"]
    return state["Status"] in ("exited", "dead") and not state.get("Running")


def exit_result(inspected: Mapping[str, Any]) -> ExitResult:
    """A container's exit result. The engine encodes a signal in the exit code, as a shell does: 137 is 128 + 9."""
    state = inspected["State"]
    code = int(state.get("ExitCode") or 0)
    return ExitResult(
        exit_code=code,
        signal=signal_in(code),
        oom_killed=bool(state.get("OOMKilled")),
        error=str(state.get("Error") or ""),
        finished_at=UnixNano(parse_stamp(str(state.get("FinishedAt") or "").encode())),
    )


def task_stats(stats: Mapping[str, Any], at: UnixNano) -> TaskStats:
    """Resource usage, under cgroups v1 and v2."""
    memory = stats.get("memory_stats") or {}
    detail = memory.get("stats") or {}
    cpu = (stats.get("cpu_stats") or {}).get("cpu_usage") or {}
    rss = detail.get("rss", detail.get("anon", memory.get("usage", 0)))
    return TaskStats(
        at=at,
        rss_bytes=int(rss) or int(memory.get("usage", 0)),
        swap_bytes=int(detail.get("swap", 0)),
        cpu_user_ns=int(cpu.get("usage_in_usermode", 0)),
        cpu_system_ns=int(cpu.get("usage_in_kernelmode", 0)),
        pids=int((stats.get("pids_stats") or {}).get("current", 0)),
    )


def healthy(info: Mapping[str, Any], bridge: Mapping[str, Any], config: PluginConfig) -> Fingerprint:
    """The attributes of a healthy engine, by Nomad's names."""
    gateways = [each.get("Gateway", "") for each in (bridge.get("IPAM") or {}).get("Config") or []]
    attributes = {
        "driver.docker": "1",
        "driver.docker.version": str(info.get("ServerVersion", "")),
        "driver.docker.os_type": str(info.get("OSType", "")),
        "driver.docker.bridge_ip": next(filter(None, gateways), ""),
        "driver.docker.runtimes": ",".join(sorted(info.get("Runtimes") or {})),
        "driver.docker.cgroup_driver": str(info.get("CgroupDriver", "")),
        "driver.docker.cgroup_version": str(info.get("CgroupVersion", "")),
        "driver.docker.storage_driver": str(info.get("Driver", "")),
        "driver.docker.live_restore": "true" if info.get("LiveRestoreEnabled") else "",
        "driver.docker.volumes.enabled": "true" if config.volumes_enabled else "",
        "driver.docker.privileged.enabled": "true" if config.options.allow_privileged else "",
    }
    return Fingerprint(
        health=HEALTHY,
        description="Healthy",
        attributes={name: value for name, value in attributes.items() if value},
    )
