"""Root keys of a real agent: sealed by a passphrase, opened again, and a wrong passphrase that stops the start."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from yurt.testing.agent import WAIT_LIMIT_S, Agent

ITEMS = {"password": "in the variable"}


def started(folder: Path, keyring: Any) -> Agent:
    agent = Agent(folder, data_dir=folder / "data", extra={"keyring": keyring} if keyring else {})
    agent.start()
    return agent


def refused(folder: Path, keyring: Any) -> str:
    """What an agent says that does not start."""
    agent = Agent(folder, data_dir=folder / "data", extra={"keyring": keyring} if keyring else {})
    agent.spawn()
    assert agent.process is not None
    assert agent.process.wait(timeout=WAIT_LIMIT_S) == 1
    return agent.log.read_text()


def items(agent: Agent) -> dict[str, str]:
    found: dict[str, str] = agent.get("/v1/var/app")["Items"]
    return found


def keystore(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "data" / "server" / "keystore").iterdir()}


def test_keys_are_sealed_rotated_and_never_lost(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).write_text(f"the {name} passphrase of this test\n")
        (tmp_path / name).chmod(0o600)
    old = {"passphrase": {"passphrase_file": str(tmp_path / "old")}}
    agent = started(tmp_path, {})
    agent.call("PUT", "/v1/var/app", {"Path": "app", "Items": ITEMS})
    agent.interrupt()
    plain = keystore(tmp_path)
    agent = started(tmp_path, old)
    assert items(agent) == ITEMS
    agent.interrupt()
    sealed = keystore(tmp_path)
    assert plain.keys() == sealed.keys()
    assert all(json.loads(data.splitlines()[0])["Provider"] == "passphrase" for data in sealed.values())
    assert "is not configured" in refused(tmp_path, {})
    wrong = {"passphrase": {"passphrase_file": str(tmp_path / "new")}}
    assert "is not the one that wrapped it" in refused(tmp_path, wrong)
    assert keystore(tmp_path) == sealed
    newer = {"passphrase": {"name": "2", "active": True, "passphrase_file": str(tmp_path / "new")}}
    agent = started(tmp_path, [old, newer])
    assert items(agent) == ITEMS
    agent.interrupt()
    agent = started(tmp_path, [newer])
    assert items(agent) == ITEMS
    rotated = subprocess.run(
        [*agent.command, "operator", "root", "keyring", "rotate", f"-address={agent.address}"],
        capture_output=True, check=True,
    )  # fmt: skip
    assert rotated.returncode == 0
    assert len(keystore(tmp_path)) == 2
    agent.interrupt()
