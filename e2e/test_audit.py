"""The audit log of a real agent: over SIGHUP, a kill and an orderly stop."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from yurt.testing.agent import Agent, ApiFailure, wait_for

SINK = {"delivery_guarantee": "enforced", "rotate_bytes": 20_000}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line)["payload"] for line in path.read_text().splitlines()]


def namespaces(files: list[Path]) -> list[str]:
    """The namespaces whose change is complete, in order."""
    found = [line for path in files for line in lines(path) if line["stage"] == "OperationComplete"]
    return [line["request"]["object"]["id"] for line in found if line["request"]["route"] == "/v1/namespace"]


def put(agent: Agent, namespace: dict[str, Any]) -> None:
    agent.call("PUT", "/v1/namespace", namespace)


def test_lines_survive_a_kill_and_follow_the_name_of_the_file(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    extra = {"audit": {"enabled": True, "sink": {"file": SINK | {"path": str(folder / "audit.log")}}}}
    agent = Agent(tmp_path, data_dir=tmp_path / "data", extra=extra)
    agent.start()
    try:
        put(agent, {"Name": "one"})
        (folder / "audit.log").rename(folder / "moved.log")
        put(agent, {"Name": "two"})
        assert agent.process is not None
        agent.process.send_signal(signal.SIGHUP)
        wait_for("a new file", (folder / "audit.log").exists)
        put(agent, {"Name": "three"})
        assert namespaces([folder / "moved.log"]) == ["one", "two"]
        assert namespaces([folder / "audit.log"]) == ["three"]
        agent.kill()
        agent.start()
        for number in range(60):
            put(agent, {"Name": f"n{number}"})
    finally:
        agent.interrupt()
    older = sorted(each for each in folder.iterdir() if each.name.startswith("audit-"))
    assert namespaces([*older, folder / "audit.log"]) == ["three", *(f"n{number}" for number in range(60))]
    assert older
    assert {stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()} == {0o600}


def test_a_full_disk_stops_changes_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)], check=True)
    reads = {"endpoints": ["*"], "stages": ["*"], "operations": ["GET"]}
    audit = {"enabled": True, "sink": {"file": {"path": str(folder / "audit.log")}}, "filter": {"reads": reads}}
    agent = Agent(tmp_path, data_dir=tmp_path / "data", extra={"audit": audit})
    agent.start()
    try:
        (folder / "ballast").write_bytes(b"x" * 200_000)
        with pytest.raises(ApiFailure, match="the audit log cannot be written"):
            for made in range(1_000):
                put(agent, {"Name": f"n{made}"})
        assert made > 0
        known = {row["Name"] for row in agent.get("/v1/namespaces")} - {"default"}
        assert known == {f"n{number}" for number in range(made)}
        assert lines(folder / "audit.log")[-1]["request"]["route"] == "/v1/namespace"
        (folder / "ballast").unlink()
        put(agent, {"Name": "again"})
        assert "audit log cannot be written" in agent.log.read_text()
        assert "audit log is written again" in agent.log.read_text()
    finally:
        agent.interrupt()
        subprocess.run(["umount", "-l", str(folder)], check=True)
