"""CSI volumes with a real agent: a plugin that runs as a task mounts folders for tasks, one writer after another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from yurt.testing.agent import Agent, raw_exec_job, register, running_agent, wait_for
from yurt.testing.leaks import data_dir_of
from yurt.testing.services.engines import DockerEngine, missing

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
    job = raw_exec_job("plugin", sys.executable, "-m", "yurt.testing.services.csi_plugin", str(storage), kind="system")
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
    wait_for("the plugin", lambda: [p for p in agent.get("/v1/plugins") if p["NodesHealthy"] == 1])


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
        state = data_dir_of(agent)
        assert csi_mounts(state)
    assert not csi_mounts(state)


NO_DOCKER = missing("dockerd", "containerd", "docker", "busybox", "ip")
CAPS = (
    "audit_write", "chown", "dac_override", "fowner", "fsetid", "kill", "mknod", "net_bind_service", "setfcap",
    "setgid", "setpcap", "setuid", "sys_chroot", "sys_admin",
)  # fmt: skip


@pytest.fixture
def shared_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder whose mounts all see, as those of a machine with systemd are."""
    folder = tmp_path / "data"
    folder.mkdir()
    subprocess.run(["mount", "--bind", folder, folder], check=True)
    subprocess.run(["mount", "--make-shared", folder], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[DockerEngine]:
    """A running engine with a small image."""
    (tmp_path / "docker").mkdir()
    made = DockerEngine(tmp_path / "docker")
    try:
        made.start()
        made.import_image()
        yield made
    finally:
        made.stop()


def in_container(job: dict[str, Any], storage: Path) -> dict[str, Any]:
    """The job of the plugin, run by Docker with the Python of this machine."""
    source = Path(__file__).parents[1]
    # The prefix of the system's own Python is /usr; the engine refuses to mount at one place twice.
    places = dict.fromkeys(("/usr", "/lib", "/lib64", sys.base_prefix, str(source)))
    roots = [path for path in places if os.path.exists(path)]
    task = job["TaskGroups"][0]["Tasks"][0]
    task["Driver"] = "docker"
    task["Config"] |= {
        "image": DockerEngine.image,
        "network_mode": "none",
        "cap_add": ["sys_admin"],
        "volumes": [*(f"{root}:{root}:ro" for root in roots), f"{storage}:{storage}"],
    }
    return job


@pytest.mark.skipif(bool(NO_DOCKER), reason=NO_DOCKER)
def test_a_plugin_in_a_container_mounts_for_tasks_outside_of_it(
    tmp_path: Path, shared_folder: Path, engine: DockerEngine
) -> None:
    storage = tmp_path / "storage"
    storage.mkdir()
    options = {"endpoint": engine.endpoint, "allow_caps": list(CAPS), "volumes": [{"enabled": True}]}
    extra = {"plugin": [{"docker": [{"config": [options]}]}]}
    with running_agent(tmp_path, data_dir=shared_folder, extra=extra) as agent:
        register(agent, in_container(plugin_job(storage), storage))
        register_volume(agent, tmp_path)
        register(agent, user("holder", "echo hi > /data/file; sleep 3600", kind="service"))
        agent.running("holder", 1)
        wait_for("the file", (storage / "vol-1" / "file").exists)
        assert len(csi_mounts(shared_folder)) == 2
        agent.cli("job", "stop", "-detach", "holder")
        wait_for("the end", lambda: agent.allocs("holder")[0]["ClientStatus"] == "complete")
        assert not csi_mounts(shared_folder)
