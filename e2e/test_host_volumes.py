"""Dynamic host volumes with a real agent: made by plugins, shared by jobs, kept over restarts, sticky, deleted."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from yurt.testing.agent import Agent, raw_exec_job, register, running_agent, wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="tasks of exec mount volumes, which takes root")

PLUGIN = """#!/bin/sh
set -e
case "$1" in
fingerprint) echo '{"version": "1.2.3"}' ;;
create)
  mkdir -p "$DHV_VOLUMES_DIR/by-script/$DHV_VOLUME_NAME"
  printf '%s' "$DHV_PARAMETERS $DHV_CAPACITY_MIN_BYTES" > "$DHV_VOLUMES_DIR/by-script/$DHV_VOLUME_NAME/told"
  echo "{\\"path\\": \\"$DHV_VOLUMES_DIR/by-script/$DHV_VOLUME_NAME\\", \\"bytes\\": 4096}" ;;
delete) test "$DHV_OPERATION" = delete; rm -r "$DHV_CREATED_PATH" ;;
esac
"""
SPEC = """
name         = "{name}"
type         = "host"
plugin_id    = "{plugin}"
capacity_min = "1MiB"
capability {{
  access_mode     = "{mode}"
  attachment_mode = "file-system"
}}
parameters {{
  mode = "0777"
}}
"""


def create(agent: Agent, folder: Path, name: str, plugin: str, *, mode: str = "single-node-writer") -> dict[str, Any]:
    """A volume made by the command line, as the API shows it."""
    spec = folder / f"{name}.hcl"
    spec.write_text(SPEC.format(name=name, plugin=plugin, mode=mode))
    done = agent.cli("volume", "create", str(spec))
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(agent.cli("volume", "status", "-json", name).stdout)
    assert found["State"] == "ready"
    return dict(found)


def user(name: str, source: str, script: str, *, kind: str = "batch", **request: Any) -> dict[str, Any]:
    """A job whose exec task sees the volume at /data."""
    volume = {"Name": "v", "Type": "host", "Source": source, **request}
    job = raw_exec_job(name, "/bin/sh", "-c", script, kind=kind, Volumes={"v": volume})
    task = job["TaskGroups"][0]["Tasks"][0]
    task |= {"Driver": "exec", "VolumeMounts": [{"Volume": "v", "Destination": "/data"}]}
    return job


def finished(agent: Agent, job_id: str) -> str:
    """What the job's one allocation wrote, once it is complete."""
    (alloc,) = wait_for(job_id, lambda: [a for a in agent.allocs(job_id) if a["ClientStatus"] == "complete"])
    return agent.cli("alloc", "logs", alloc["ID"]).stdout


def test_volumes_are_made_used_kept_and_deleted(tmp_path: Path) -> None:
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    (plugins / "script").write_text(PLUGIN)
    (plugins / "script").chmod(0o755)
    client = {"enabled": True, "host_volume_plugin_dir": str(plugins)}
    with running_agent(tmp_path, data_dir=tmp_path / "data", extra={"client": client}) as agent:
        made = create(agent, tmp_path, "data", "mkdir")
        assert (Path(made["HostPath"]).stat().st_mode & 0o777, made["NodePool"]) == (0o777, "default")
        register(agent, user("writer", "data", "echo kept > /data/file"))
        finished(agent, "writer")
        register(agent, user("reader", "data", "cat /data/file", ReadOnly=True))
        assert finished(agent, "reader") == "kept\n"

        scripted = create(agent, tmp_path, "other", "script")
        assert scripted["CapacityBytes"] == 4096
        assert (Path(scripted["HostPath"]) / "told").read_text() == '{"mode":"0777"} 1048576'

        register(agent, user("holder", "data", "sleep 3600", kind="service", Sticky=True))
        (alloc,) = agent.running("holder", 1)
        (claim,) = json.loads(agent.cli("volume", "claim", "list", "-json").stdout)
        assert (claim["AllocID"], claim["VolumeID"]) == (alloc["ID"], made["ID"])
        refused = agent.cli("volume", "delete", made["ID"])
        assert refused.returncode == 1
        assert f"volume {made['ID']} in use by allocations: [{alloc['ID']}]" in refused.stderr

        agent.kill()
        agent.start()
        for name in ("data", "other"):
            wait_for(f"{name} again", partial(is_state, agent, name, "ready"))
        register(agent, user("later", "data", "cat /data/file"))
        assert finished(agent, "later") == "kept\n"

        agent.cli("job", "stop", "-detach", "holder")
        wait_for("the end of holder", lambda: agent.allocs("holder")[0]["ClientStatus"] == "complete")
        assert agent.cli("volume", "claim", "delete", "-y", claim["ID"]).returncode == 0
        for volume in (made, scripted):
            deleted = agent.cli("volume", "delete", volume["ID"])
            assert deleted.returncode == 0, deleted.stderr
            assert not Path(volume["HostPath"]).exists()
        assert agent.get("/v1/volumes?type=host") == []
        assert agent.get("/v1/volumes/claims") == []


def is_state(agent: Agent, name: str, state: str) -> bool:
    """The volume with that name has that state."""
    (found,) = agent.get(f"/v1/volumes?type=host&prefix={name}")
    return bool(found["State"] == state)


def test_a_job_waits_for_its_volume_and_a_registered_folder_stays(tmp_path: Path) -> None:
    folder = tmp_path / "listed" / "mine"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    listed = {"client": {"enabled": True, "host_volume_register_dirs": [str(tmp_path / "listed")]}}
    with running_agent(tmp_path, extra=listed) as agent:
        register(agent, user("waiting", "late", "echo came > /data/file"))
        wait_for(
            "a blocked evaluation",
            lambda: [e for e in agent.get("/v1/job/waiting/evaluations") if e["Status"] == "blocked"],
        )
        (node,) = agent.get("/v1/nodes")
        spec = tmp_path / "late.json"
        capability = {"AccessMode": "single-node-single-writer", "AttachmentMode": "file-system"}
        spec.write_text(
            json.dumps(
                {
                    "Name": "late", "Type": "host", "NodeID": node["ID"], "HostPath": str(folder),
                    "RequestedCapabilities": [capability],
                }
            )
        )  # fmt: skip
        done = agent.cli("volume", "register", str(spec))
        assert done.returncode == 0, done.stderr
        forbidden = json.loads(spec.read_text()) | {"Name": "host", "HostPath": "/etc"}
        (tmp_path / "host.json").write_text(json.dumps(forbidden))
        refused = agent.cli("volume", "register", str(tmp_path / "host.json"))
        assert refused.returncode == 1 and "is not beneath a folder that may be registered" in refused.stderr
        finished(agent, "waiting")
        assert (folder / "file").read_text() == "came\n"
        (volume,) = agent.get("/v1/volumes?type=host")
        again = json.loads(spec.read_text()) | {"ID": volume["ID"]}
        for change, code in (
            ({"CapacityBytes": 2_000_000}, 0),
            ({"RequestedCapacityMaxBytes": 1_000_000}, 1),
            ({"RequestedCapacityMaxBytes": 4_000_000}, 0),
        ):
            spec.write_text(json.dumps(again | change))
            assert agent.cli("volume", "register", str(spec)).returncode == code, change
            assert agent.get(f"/v1/volume/host/{volume['ID']}")["CapacityBytes"] == 2_000_000
        assert agent.cli("volume", "delete", "late").returncode == 0
        assert (folder / "file").exists()
        missing = agent.cli("volume", "status", volume["ID"])
        assert (missing.returncode, "No volume(s)" in missing.stderr) == (1, True)
