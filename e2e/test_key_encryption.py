"""Root keys of a real agent: sealed by a passphrase or a token, opened again, and wrong secrets stop the start."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from yurt.testing.agent import WAIT_LIMIT_S, Agent
from yurt.testing.login.softhsm import PIN, SoftHsm, softhsm_missing, softhsm_module

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


def secret_file(path: Path, secret: str) -> str:
    path.write_text(f"{secret}\n")
    path.chmod(0o600)
    return str(path)


def assert_wrapped_by(folder: Path, provider: str) -> None:
    assert {json.loads(data.splitlines()[0])["Provider"] for data in keystore(folder).values()} == {provider}


@pytest.fixture
def token_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The settings for a key in a PKCS#11 token, without its PIN."""
    if missing := softhsm_missing():
        pytest.skip(missing)
    hsm = SoftHsm(tmp_path / "softhsm", softhsm_module())
    hsm.make_token("cluster")
    hsm.make_keys("cluster", {"01": ("root-keys", "AES")})
    for name, value in hsm.environment.items():
        monkeypatch.setenv(name, value)
    return {"lib": str(hsm.module), "token_label": "cluster", "key_label": "root-keys"}


def test_keys_are_sealed_rewrapped_by_a_token_and_never_lost(tmp_path: Path, token_block: dict[str, str]) -> None:
    words = {"passphrase": {"passphrase_file": secret_file(tmp_path / "words", "the passphrase of this test")}}
    other = {"passphrase": {"passphrase_file": secret_file(tmp_path / "other", "another passphrase of this test")}}
    token = {**token_block, "pin_file": secret_file(tmp_path / "pin", PIN)}
    agent = started(tmp_path, {})
    agent.call("PUT", "/v1/var/app", {"Path": "app", "Items": ITEMS})
    agent.interrupt()
    plain = keystore(tmp_path)
    agent = started(tmp_path, words)
    assert items(agent) == ITEMS
    agent.interrupt()
    sealed = keystore(tmp_path)
    assert plain.keys() == sealed.keys()
    assert_wrapped_by(tmp_path, "passphrase")
    assert "is not configured" in refused(tmp_path, {})
    assert "is not the one that wrapped it" in refused(tmp_path, other)
    assert keystore(tmp_path) == sealed

    agent = started(tmp_path, [words, {"pkcs11": {**token, "active": True}}])
    assert items(agent) == ITEMS
    agent.interrupt()
    assert_wrapped_by(tmp_path, "pkcs11")
    wrong = {"pkcs11": {**token, "pin_file": secret_file(tmp_path / "wrong", "999999")}}
    told = refused(tmp_path, wrong)
    assert "the token refused the PIN in" in told and "999999" not in told and "Traceback" not in told
    agent = started(tmp_path, {"pkcs11": token})
    assert items(agent) == ITEMS
    rotated = subprocess.run(
        [*agent.command, "operator", "root", "keyring", "rotate", f"-address={agent.address}"],
        capture_output=True, check=True,
    )  # fmt: skip
    assert rotated.returncode == 0
    assert len(keystore(tmp_path)) == 2
    assert_wrapped_by(tmp_path, "pkcs11")
    agent.interrupt()
