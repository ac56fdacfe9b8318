"""Root keys sealed by key encryption keys: migration, rotation, wrong keys, and a server that does not answer."""

from __future__ import annotations

import base64
import json
import os
import stat
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from yurt.sdk.errors import Invalid, Unavailable
from yurt.sdk.value import replace
from yurt.server.config import KeyProviderConfig
from yurt.server.keys import keyring as keyring_module
from yurt.server.keys.keyring import NOT_HERE, Keyring, wrappings_of
from yurt.server.peers import RootKey
from yurt.testing import factories

KEY_ID = factories.number_id(1, kind=8)
OTHER_ID = factories.number_id(2, kind=8)
SECRET = b"s" * 32


def passphrase(
    folder: Path, name: str = "", *, text: str = "correct horse battery", active: bool = True
) -> KeyProviderConfig:
    path = folder / f"passphrase{name}"
    if not path.exists():
        path.write_text(f"{text}\n")
        path.chmod(0o600)
    block_id = f"passphrase.{name}" if name else "passphrase"
    return KeyProviderConfig(kind="passphrase", id=block_id, is_active=active, settings={"passphrase_file": str(path)})


PLAIN = KeyProviderConfig(kind="aead", id="aead", is_active=True)


def key_file(folder: Path, key_id: str = KEY_ID) -> Path:
    return folder / "keystore" / f"{key_id}.key.json"


def made(folder: Path, *providers: KeyProviderConfig) -> RootKey:
    return Keyring(folder, providers).create(KEY_ID)


def reopened(folder: Path, *providers: KeyProviderConfig) -> Keyring:
    keyring = Keyring(folder, providers)
    keyring.open()
    return keyring


def test_a_sealed_key_is_read_again_and_its_file_holds_no_secret(tmp_path: Path) -> None:
    key = made(tmp_path, passphrase(tmp_path))
    data = key_file(tmp_path).read_bytes()
    for secret in (key.secret, key.pem, base64.b64encode(key.secret), base64.b64encode(key.pem)[:60], b"correct horse"):
        assert secret not in data
    assert stat.S_IMODE(key_file(tmp_path).stat().st_mode) == 0o600
    assert reopened(tmp_path, passphrase(tmp_path)).get(KEY_ID) == key


def test_a_plain_key_is_sealed_at_the_next_start(tmp_path: Path) -> None:
    key = made(tmp_path)
    assert base64.b64encode(key.secret) in key_file(tmp_path).read_bytes()
    assert reopened(tmp_path, passphrase(tmp_path)).get(KEY_ID) == key
    assert base64.b64encode(key.secret) not in key_file(tmp_path).read_bytes()
    assert reopened(tmp_path, passphrase(tmp_path)).get(KEY_ID) == key


def test_a_sealed_key_becomes_plain_again_where_that_is_asked_for(tmp_path: Path) -> None:
    key = made(tmp_path, passphrase(tmp_path))
    assert reopened(tmp_path, PLAIN, passphrase(tmp_path, active=False)).get(KEY_ID) == key
    assert Keyring(tmp_path).get(KEY_ID) == key


def test_the_key_encryption_key_is_rotated_by_two_blocks_of_which_one_is_active(tmp_path: Path) -> None:
    old, new = passphrase(tmp_path, "2025"), passphrase(tmp_path, "2026", text="another long passphrase")
    key = made(tmp_path, old)
    assert reopened(tmp_path, new, passphrase(tmp_path, "2025", active=False)).get(KEY_ID) == key
    assert reopened(tmp_path, new).get(KEY_ID) == key
    with pytest.raises(Invalid, match=r'wrapped by the keyring "passphrase\.2026", which is not configured'):
        reopened(tmp_path, old)


def test_the_keyring_that_wraps_each_key_is_told(tmp_path: Path) -> None:
    keyring = Keyring(tmp_path)
    keyring.create(KEY_ID)
    assert wrappings_of(keyring, (KEY_ID, OTHER_ID)) == {KEY_ID: ("aead", ""), OTHER_ID: ("", NOT_HERE)}
    old, new = passphrase(tmp_path, "2025"), passphrase(tmp_path, "2026")
    assert Keyring(tmp_path, (old,)).wrapping(KEY_ID) == ("passphrase.2025", "")
    both = Keyring(tmp_path, (new, replace(old, is_active=False)))
    both.create(OTHER_ID)
    assert {found.keyring for found in wrappings_of(both, (KEY_ID, OTHER_ID)).values()} == {"passphrase.2026"}
    without = Keyring(tmp_path, (old,)).wrapping(KEY_ID)
    assert without.keyring == "passphrase.2026" and "is not configured (configured: passphrase.2025)" in without.problem
    both.remove(KEY_ID)
    assert both.wrapping(KEY_ID) == ("", NOT_HERE)


def test_a_damaged_file_and_a_key_in_memory_are_told_too(tmp_path: Path) -> None:
    Keyring(tmp_path).create(KEY_ID)
    (path,) = tmp_path.glob(f"keystore/{KEY_ID}*")
    path.write_bytes(b"nonsense")
    found = Keyring(tmp_path).wrapping(KEY_ID)
    assert found.keyring == "" and found.problem.startswith("its file is damaged: ")
    in_memory = Keyring(None)
    assert in_memory.wrapping(KEY_ID) == ("", NOT_HERE)
    in_memory.create(KEY_ID)
    assert in_memory.wrapping(KEY_ID) == ("memory", "")


def test_a_wrong_passphrase_stops_the_start_and_changes_no_file(tmp_path: Path) -> None:
    key = made(tmp_path, passphrase(tmp_path))
    before = key_file(tmp_path).read_bytes()
    (tmp_path / "passphrase").write_text("not the passphrase\n")
    with pytest.raises(Invalid, match="is not the one that wrapped it; put back the former passphrase"):
        reopened(tmp_path, passphrase(tmp_path))
    assert key_file(tmp_path).read_bytes() == before
    (tmp_path / "passphrase").write_text("correct horse battery\n")
    assert reopened(tmp_path, passphrase(tmp_path)).get(KEY_ID) == key


def test_without_its_block_a_sealed_key_stops_the_start_and_every_key_is_told(tmp_path: Path) -> None:
    keyring = Keyring(tmp_path, (passphrase(tmp_path),))
    keyring.create(KEY_ID)
    keyring.create(OTHER_ID)
    with pytest.raises(Invalid) as caught:
        reopened(tmp_path)
    assert [line.split()[2] for line in str(caught.value).splitlines()] == [KEY_ID, OTHER_ID]


@pytest.mark.parametrize(
    ("text", "mode", "told"),
    [
        ("short", 0o600, "must hold a passphrase of 16 to 4096 characters"),
        ("x" * 5_000, 0o600, "must hold a passphrase of 16 to 4096 characters"),
        ("correct horse battery", 0o644, "can be read by others; chmod 600"),
    ],
)
def test_a_passphrase_that_protects_nothing_is_refused(tmp_path: Path, text: str, mode: int, told: str) -> None:
    config = passphrase(tmp_path)
    (tmp_path / "passphrase").write_text(text)
    (tmp_path / "passphrase").chmod(mode)
    with pytest.raises(Invalid, match=told):
        made(tmp_path, config)
    assert not key_file(tmp_path).exists()


def test_a_missing_passphrase_is_told_with_its_path(tmp_path: Path) -> None:
    config = passphrase(tmp_path)
    (tmp_path / "passphrase").unlink()
    with pytest.raises(Invalid, match=r'keyring "passphrase": .*passphrase cannot be read: No such file or directory'):
        made(tmp_path, config)


def test_a_sealed_key_under_the_name_of_another_one_does_not_open(tmp_path: Path) -> None:
    made(tmp_path, passphrase(tmp_path))
    document = json.loads(key_file(tmp_path).read_bytes().splitlines()[0])
    key_file(tmp_path, OTHER_ID).write_text(json.dumps(document | {"KeyID": OTHER_ID}))
    with pytest.raises(Invalid, match=OTHER_ID):
        reopened(tmp_path, passphrase(tmp_path))


def test_a_changed_file_counts_as_damaged_and_not_as_a_wrong_passphrase(tmp_path: Path) -> None:
    made(tmp_path, passphrase(tmp_path))
    data = bytearray(key_file(tmp_path).read_bytes())
    data[40] ^= 1
    key_file(tmp_path).write_bytes(bytes(data))
    keyring = reopened(tmp_path, passphrase(tmp_path))
    with pytest.raises(Unavailable, match="is damaged"):
        keyring.get(KEY_ID)


# Transit: a stand-in with the documented calls of Vault's and OpenBao's transit engine.


class Transit:
    """Named keys with versions, one token, and switches for what goes wrong."""

    def __init__(self) -> None:
        self.keys = {"yurt": [os.urandom(32)]}
        self.token = "hvs.test"
        self.status = 0
        self.asked: list[tuple[str, dict[str, str]]] = []

    def answer(self, path: str, headers: Any, body: dict[str, str]) -> tuple[int, dict[str, Any]]:
        self.asked.append((path, dict(headers)))
        if self.status:
            return self.status, {"errors": ["Vault is sealed"]}
        if headers.get("X-Vault-Token") != self.token:
            return 403, {"errors": ["permission denied"]}
        _, version, mount, operation, name = path.split("/")
        if (version, mount) != ("v1", "transit") or name not in self.keys:
            return 404, {"errors": []}
        versions = self.keys[name]
        if operation == "encrypt":
            nonce = os.urandom(12)
            sealed = nonce + AESGCM(versions[-1]).encrypt(nonce, base64.b64decode(body["plaintext"]), None)
            return 200, {"data": {"ciphertext": f"vault:v{len(versions)}:{base64.b64encode(sealed).decode()}"}}
        _, number, text = body["ciphertext"].split(":")
        data = base64.b64decode(text)
        try:
            plain = AESGCM(versions[int(number[1:]) - 1]).decrypt(data[:12], data[12:], None)
        except InvalidTag:
            return 400, {"errors": ["cipher: message authentication failed"]}
        return 200, {"data": {"plaintext": base64.b64encode(plain).decode()}}


@pytest.fixture
def transit() -> Iterator[tuple[Transit, str]]:
    vault = Transit()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, document = vault.answer(self.path, self.headers, body)
            data = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield vault, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def transit_block(address: str, *, active: bool = True, **settings: str) -> KeyProviderConfig:
    given = {"address": address, "key_name": "yurt", "token": "hvs.test"} | settings
    return KeyProviderConfig(kind="transit", id="transit", is_active=active, settings=dict(given))


def test_transit_wraps_and_unwraps_and_never_sees_a_root_key(transit: tuple[Transit, str], tmp_path: Path) -> None:
    vault, address = transit
    block = transit_block(address, namespace="team")
    key = made(tmp_path, block)
    assert reopened(tmp_path, block).get(KEY_ID) == key
    paths = [path for path, _ in vault.asked]
    assert set(paths) == {"/v1/transit/encrypt/yurt", "/v1/transit/decrypt/yurt"}
    assert vault.asked[0][1]["X-Vault-Namespace"] == "team"
    assert b"vault:v1:" in key_file(tmp_path).read_bytes()
    assert b"hvs.test" not in key_file(tmp_path).read_bytes()


def test_a_key_that_transit_has_rotated_still_opens(transit: tuple[Transit, str], tmp_path: Path) -> None:
    vault, address = transit
    key = made(tmp_path, transit_block(address))
    vault.keys["yurt"].append(os.urandom(32))
    assert reopened(tmp_path, transit_block(address)).get(KEY_ID) == key


def test_another_key_of_the_name_stops_the_start(transit: tuple[Transit, str], tmp_path: Path) -> None:
    vault, address = transit
    made(tmp_path, transit_block(address))
    before = key_file(tmp_path).read_bytes()
    vault.keys["yurt"] = [os.urandom(32)]
    with pytest.raises(Invalid, match="answers decrypt with 400: cipher: message authentication failed"):
        reopened(tmp_path, transit_block(address))
    assert key_file(tmp_path).read_bytes() == before


@pytest.mark.parametrize(("settings", "told"), [({"token": "x"}, "403: permission denied"), ({"key_name": "z"}, "404")])
def test_a_refusal_of_transit_is_told_when_a_key_is_made(
    transit: tuple[Transit, str], tmp_path: Path, settings: dict[str, str], told: str
) -> None:
    with pytest.raises(Invalid, match=told):
        made(tmp_path, transit_block(transit[1], **settings))


def test_a_transit_that_does_not_answer_locks_keys_until_it_does(transit: tuple[Transit, str], tmp_path: Path) -> None:
    vault, address = transit
    key = made(tmp_path, transit_block(address))
    vault.status = 503
    keyring = reopened(tmp_path, transit_block(address))
    with pytest.raises(Unavailable, match=r"cannot be opened now: .* answers decrypt with 503: Vault is sealed"):
        keyring.get(KEY_ID)
    assert KEY_ID not in keyring and keyring.locked(KEY_ID)
    vault.status = 0
    keyring.retry()
    assert keyring.get(KEY_ID) == key and not keyring.locked(KEY_ID)


def test_a_migration_that_fails_keeps_the_plain_file_and_is_tried_again(
    transit: tuple[Transit, str], tmp_path: Path
) -> None:
    vault, address = transit
    key = made(tmp_path)
    before = key_file(tmp_path).read_bytes()
    vault.status = 503
    keyring = reopened(tmp_path, transit_block(address))
    assert keyring.get(KEY_ID) == key
    assert key_file(tmp_path).read_bytes() == before
    vault.status = 0
    keyring.retry()
    assert b"vault:v1:" in key_file(tmp_path).read_bytes()


def test_a_token_is_read_from_its_file_each_time(transit: tuple[Transit, str], tmp_path: Path) -> None:
    vault, address = transit
    path = tmp_path / "token"
    path.write_text("hvs.test\n")
    block = KeyProviderConfig(
        kind="transit", id="transit", is_active=True,
        settings={"address": address, "key_name": "yurt", "token_file": str(path)},
    )  # fmt: skip
    keyring = Keyring(tmp_path, (block,))
    keyring.create(KEY_ID)
    vault.token = "hvs.renewed"
    path.write_text("hvs.renewed\n")
    keyring.create(OTHER_ID)
    assert reopened(tmp_path, block).get(OTHER_ID)


def test_nobody_at_the_address_is_unavailable_and_no_traceback(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="does not answer"):
        made(tmp_path, transit_block("http://127.0.0.1:9"))


def test_a_key_is_usable_only_once_the_ciphers_are_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path)
    usable: list[tuple[str, ...]] = []
    monkeypatch.setattr(keyring_module, "_import_ciphers", lambda: usable.append(tuple(keyring._keys)))

    keyring = Keyring(tmp_path)
    keyring.open()
    keyring.create(OTHER_ID)

    assert usable == [(), (KEY_ID,)]
