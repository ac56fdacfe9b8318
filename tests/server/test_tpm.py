"""Root keys wrapped with the help of a TPM: by a key in it, or by a passphrase that systemd seals to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from yurt.sdk.errors import Invalid
from yurt.server.config import KeyProviderConfig
from yurt.server.keys import pkcs11
from yurt.server.keys.keyring import Keyring
from yurt.testing import factories
from yurt.testing.login.softhsm import softhsm_missing
from yurt.testing.login.swtpm import PIN, Tpm, running_tpm, swtpm_missing, tpm2_module

MISSING = swtpm_missing() or softhsm_missing()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)
KEY_ID = factories.number_id(1, kind=8)


@pytest.fixture(scope="module")
def tpm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tpm]:
    with running_tpm(tmp_path_factory.mktemp("tpm")) as made:
        yield made


def secret_file(path: Path, secret: str) -> Path:
    path.write_text(f"{secret}\n")
    path.chmod(0o600)
    return path


def reopened(folder: Path, block: KeyProviderConfig) -> Keyring:
    keyring = Keyring(folder, (block,))
    keyring.open()
    return keyring


def test_a_key_in_the_tpm_wraps_root_keys(tpm: Tpm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tpm.make_token("cluster", "root-keys")
    for name, value in tpm.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(pkcs11, "TIMEOUT_S", 240.0)
    settings = {
        "lib": str(tpm2_module()), "token_label": "cluster", "key_label": "root-keys", "mechanism": "RSA_PKCS_OAEP",
        "pin_file": str(secret_file(tmp_path / "pin", PIN)),
    }  # fmt: skip
    block = KeyProviderConfig(kind="pkcs11", id="pkcs11", is_active=True, settings=settings)
    key = Keyring(tmp_path, (block,)).create(KEY_ID)
    stored = (tmp_path / "keystore" / f"{KEY_ID}.key.json").read_text()
    assert '"RSA_PKCS_OAEP_sha256:' in stored
    assert reopened(tmp_path, block).get(KEY_ID) == key
    secret_file(tmp_path / "pin", "99999999")
    with pytest.raises(Invalid, match="the token refused the PIN in"):
        reopened(tmp_path, block)


def test_a_passphrase_that_systemd_seals_to_the_tpm_opens_root_keys(tpm: Tpm, tmp_path: Path) -> None:
    passphrase, sealed = "the passphrase of this test", tmp_path / "keyring.cred"
    device = f"--tpm2-device={tpm.tcti}"
    tpm.run("systemd-creds", "encrypt", "--with-key=tpm2", device, "--name=keyring", "-", str(sealed), given=passphrase)
    assert passphrase.encode() not in sealed.read_bytes()
    path = secret_file(tmp_path / "keyring", passphrase)
    settings = {"passphrase_file": str(path)}
    block = KeyProviderConfig(kind="passphrase", id="passphrase", is_active=True, settings=settings)
    key = Keyring(tmp_path, (block,)).create(KEY_ID)
    path.unlink()
    # What systemd does for LoadCredentialEncrypted= at the start of the unit; the file has mode 0400.
    path.write_text(tpm.run("systemd-creds", "decrypt", device, "--name=keyring", str(sealed), "-"))
    path.chmod(0o400)
    assert reopened(tmp_path, block).get(KEY_ID) == key
