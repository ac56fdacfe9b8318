"""CSI volumes with a real agent: a plugin that runs as a task mounts folders for tasks, one writer after another."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from yurt.testing.agent import Agent, raw_exec_job, register, running_agent, wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the plugin mounts folders, which takes root")

MODE = "single-node-writer"
SPEC = f"""
id          = "data"
type        = "csi"
plugin_id   = "folders"
external_id = "vol-1"
capability {{
  access_mode     = "{MODE}"
  attachment_mode = "file-system"
}}
"""


def plugin_job(storage: Path) -> dict[str, Any]:
    """A job that runs the plugin on every node."""
    job = raw_exec_job("plugin", sys.executable, "-m", "yurt.testing.csi_plugin", str(storage), kind="system")
    job["TaskGroups"][0]["Tasks"][0] |= {
        "CSIPluginConfig": {"ID": "folders", "Type": "node"},
        "Resources": {"CPU": 10, "MemoryMB": 256},
    }
    return job


def user(name: str, script: str, *, kind: str = "batch") -> dict[str, Any]:
    """A job whose exec task sees the volume at /data."""
    volume = {"Name": "v", "Type": "csi", "Source": "data", "AccessMode": MODE, "AttachmentMode": "file-system"}
    job = raw_exec_job(name, "/bin/sh", "-c", script, kind=kind, Volumes={"v": volume})
    job["TaskGroups"][0]["Tasks"][0] |= {"Driver": "exec", "VolumeMounts": [{"Volume": "v", "Destination": "/data"}]}
    return job


def finished(agent: Agent, job_id: str) -> str:
    """What the job's one allocation wrote, once it is complete."""
    (alloc,) = wait_for(job_id, lambda: [a for a in agent.allocs(job_id) if a["ClientStatus"] == "complete"])
    return agent.cli("alloc", "logs", alloc["ID"]).stdout


def wait_for_plugin(agent: Agent) -> None:
    """Wait until the plugin is healthy: it is a Python program that loads gRPC."""
    wait_for("the plugin", lambda: [p for p in agent.get("/v1/plugins") if p["NodesHealthy"] == 1], timeout_s=60)


def register_volume(agent: Agent, folder: Path) -> None:
    """Register the volume as soon as its plugin is healthy."""
    spec = folder / "volume.hcl"
    spec.write_text(SPEC)
    wait_for_plugin(agent)
    done = agent.cli("volume", "register", str(spec))
    assert done.returncode == 0, done.stdout + done.stderr


def csi_mounts(below: Path) -> list[str]:
    """Where the plugins of agents below a folder have mounted something."""
    places = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [place for place in places if Path(place).is_relative_to(below) and "/csi/p/folders/" in place]


def test_one_writer_after_another_has_the_volume_and_an_agent_finds_its_mounts_again(tmp_path: Path) -> None:
    with running_agent(tmp_path, data_dir=tmp_path / "data") as agent:
        register(agent, plugin_job(tmp_path / "storage"))
        register_volume(agent, tmp_path)
        register(agent, user("writer", "echo kept > /data/file"))
        finished(agent, "writer")
        assert (tmp_path / "storage" / "vol-1" / "file").read_text() == "kept\n"
        assert csi_mounts(tmp_path) == []

        register(agent, user("holder", "cat /data/file; sleep 3600", kind="service"))
        agent.running("holder", 1)
        assert len(csi_mounts(tmp_path)) == 2
        found = json.loads(agent.cli("volume", "status", "-json", "data").stdout)
        assert (found["AccessMode"], len(found["WriteAllocs"]), found["Schedulable"]) == (MODE, 1, True)
        refused = agent.cli("volume", "deregister", "data")
        assert (refused.returncode, "volume in use" in refused.stderr) == (1, True)
        register(agent, user("next", "cat /data/file"))
        wait_for("next to wait", lambda: agent.get("/v1/job/next/summary")["Summary"]["g"]["Queued"] == 1)

        agent.kill()
        agent.start()
        wait_for_plugin(agent)
        assert len(csi_mounts(tmp_path)) == 2
        agent.cli("job", "stop", "-detach", "holder")
        assert finished(agent, "next") == "kept\n"
        wait_for("no mounts", lambda: not csi_mounts(tmp_path))
        assert agent.cli("volume", "deregister", "data").returncode == 0
        assert "folders.csi.example" in agent.cli("plugin", "status", "folders").stdout


def test_a_job_waits_for_its_plugin_and_an_agent_that_stops_leaves_no_mounts(tmp_path: Path) -> None:
    with running_agent(tmp_path, data_dir=None) as agent:
        register(agent, plugin_job(tmp_path / "storage"))
        register_volume(agent, tmp_path)
        agent.cli("job", "stop", "-detach", "plugin")
        wait_for("no plugin", lambda: not agent.get("/v1/plugins"))
        register(agent, user("holder", "sleep 3600", kind="service"))
        wait_for("holder to wait", lambda: agent.get("/v1/job/holder/summary")["Summary"]["g"]["Queued"] == 1)
        register(agent, plugin_job(tmp_path / "storage"))
        agent.running("holder", 1)
        (state,) = {place.partition("/csi/p/")[0] for place in csi_mounts(Path("/"))}
    assert not csi_mounts(Path(state))
