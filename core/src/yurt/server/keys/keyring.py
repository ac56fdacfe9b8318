"""The root keys of a cluster on one server: each encrypts variables and signs workload identities.

A root key has two halves, 32 bytes for AES-256-GCM and an RSA key for RS256. One without an RSA key, as clusters had
before Nomad 1.7, signs by EdDSA: its 32 bytes are the seed of an Ed25519 key too. A key lies in a file of its own in
the folder `keystore` of the server's data, readable by its owner only; without data on disk it lives in memory. What
the cluster knows of keys (which is active) is in the state; here is only what must never be there.

Ids of keys come from other servers, from the log and from restored snapshots, and name files here: only a UUID ever
becomes a part of a path.
"""

from __future__ import annotations

import base64
import logging
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from yurt.sdk.errors import Conflict, Invalid, Unavailable
from yurt.server.peers import RootKey
from yurt.storage.checked import checked, read_checked

log = logging.getLogger(__name__)

KEY_BITS: Final = 2048
SECRET_BYTES: Final = 32
NONCE_BYTES: Final = 12
SUFFIX: Final = ".key.json"
KEY_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
RS256: Final = "RS256"
EDDSA: Final = "EdDSA"
SHOWN_MAX: Final = 64
"""Characters of a malformed id that a message shows."""


SigningKey: TypeAlias = rsa.RSAPrivateKey | Ed25519PrivateKey


class Keyring:
    """The root keys on this server. All calls except `encrypt` and `decrypt` may block."""

    def __init__(self, data_dir: Path | None) -> None:
        self._folder = data_dir / "keystore" if data_dir is not None else None
        self._keys: dict[str, RootKey] = {}
        self._signers: dict[str, SigningKey] = {}
        self._damaged: dict[str, str] = {}
        self._is_loaded = data_dir is None

    def __contains__(self, key_id: str) -> bool:
        self._load()
        return key_id in self._keys

    def create(self, key_id: str) -> RootKey:
        """Create and store a key."""
        key = RootKey(key_id=key_id, secret=os.urandom(SECRET_BYTES), pem=_new_pem())
        self.add(key)
        return key

    def add(self, key: RootKey) -> None:
        """Store a key created by this or another server; raises Invalid when its id is not a UUID."""
        check_key_id(key.key_id)
        self._load()
        if self._folder is not None:
            _write_private(self._folder / f"{key.key_id}{SUFFIX}", checked(msgspec.json.encode(key)))
        self._keys[key.key_id] = key

    def get(self, key_id: str) -> RootKey:
        """A key; raises Unavailable with advice, Invalid when the id is not a UUID."""
        check_key_id(key_id)
        self._load()
        key = self._keys.get(key_id)
        if key is None:
            where = f"{self._folder}/{key_id}{SUFFIX}" if self._folder is not None else "memory"
            why = f"is damaged ({self._damaged[key_id]})" if key_id in self._damaged else "is not"
            raise Unavailable(f"root key {key_id} {why} in this server's keystore ({where}); restore its file")
        return key

    def remove(self, key_id: str) -> None:
        """Delete a key permanently; no effect for an id that is not a UUID."""
        self._load()
        self._keys.pop(key_id, None)
        self._signers.pop(key_id, None)
        if self._folder is not None and is_key_id(key_id):
            (self._folder / f"{key_id}{SUFFIX}").unlink(missing_ok=True)

    def encrypt(self, key_id: str, text: bytes, *, context: bytes) -> bytes:
        """A nonce and the ciphertext, which can be decrypted only in the same context."""
        nonce = os.urandom(NONCE_BYTES)
        return nonce + AESGCM(self.get(key_id).secret).encrypt(nonce, text, context)

    def decrypt(self, key_id: str, data: bytes, *, context: bytes) -> bytes:
        """The plaintext; raises Unavailable without the key, Conflict when data or context were changed."""
        key = self.get(key_id)
        try:
            return AESGCM(key.secret).decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], context)
        except (InvalidTag, ValueError):
            raise Conflict(f"what root key {key_id} sealed cannot be opened: it has been changed") from None

    def signer(self, key_id: str) -> SigningKey:
        """The private signing key of a root key; its type decides the algorithm."""
        signer = self._signers.get(key_id)
        if signer is None:
            signer = self._signers[key_id] = _signing_key(self.get(key_id))
        return signer

    def jwks(self, key_ids: Iterable[str]) -> dict[str, Any]:
        """The public keys as a JSON Web Key Set; keys missing here are omitted."""
        return {"keys": [self._public(key_id) for key_id in key_ids if key_id in self]}

    def _public(self, key_id: str) -> dict[str, str]:
        signer = self.signer(key_id)
        common = {"use": "sig", "kid": key_id, "alg": algorithm_of(signer)}
        if isinstance(signer, Ed25519PrivateKey):
            return common | {"kty": "OKP", "crv": "Ed25519", "x": _base64url(signer.public_key().public_bytes_raw())}
        numbers = signer.public_key().public_numbers()
        return common | {"kty": "RSA", "n": _base64url(_magnitude(numbers.n)), "e": _base64url(_magnitude(numbers.e))}

    def _load(self) -> None:
        if self._is_loaded or self._folder is None:
            return
        for path in sorted(self._folder.glob(f"*{SUFFIX}")):
            name = path.name.removesuffix(SUFFIX)
            try:
                key = _stored_key(path, name)
            except (OSError, ValueError, Invalid) as error:
                self._damaged[name] = str(error)
                log.error("a root key is damaged and counts as missing, restore its file unless another server gives "
                          "it: path=%s: %s", path, error)  # fmt: skip
                continue
            self._keys[key.key_id] = key
        self._is_loaded = True


def is_key_id(key_id: str) -> bool:
    """Whether this is a valid id of a root key."""
    return KEY_ID.fullmatch(key_id) is not None


def check_key_id(key_id: str) -> None:
    """Raises Invalid when the id is not a UUID."""
    if not is_key_id(key_id):
        raise Invalid(
            f"root key id {key_id[:SHOWN_MAX]!r} is not a UUID; `yurt operator root keyring list` shows the ids"
        )


def algorithm_of(signer: SigningKey) -> str:
    """The one algorithm with which a key signs."""
    return EDDSA if isinstance(signer, Ed25519PrivateKey) else RS256


def _signing_key(key: RootKey) -> SigningKey:
    """Raises Invalid for a file whose key is neither."""
    if not key.pem:
        return Ed25519PrivateKey.from_private_bytes(key.secret)
    loaded = serialization.load_pem_private_key(key.pem, password=None)
    if not isinstance(loaded, rsa.RSAPrivateKey):
        raise Invalid(f"root key {key.key_id} holds no RSA key; restore its file")
    return loaded


def _stored_key(path: Path, key_id: str) -> RootKey:
    """The key in a file; raises Invalid, ValueError or OSError when it is damaged."""
    key = msgspec.json.decode(read_checked(path), type=RootKey)
    check_key_id(key.key_id)
    if key.key_id != key_id:
        raise Invalid(f"it is the key {key.key_id[:SHOWN_MAX]!r}")
    return key


def _new_pem() -> bytes:
    key = rsa.generate_private_key(public_exponent=65537, key_size=KEY_BITS)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write_private(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_suffix(".tmp")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.fchmod(handle, 0o600)
        os.write(handle, data)
        os.fsync(handle)
    finally:
        os.close(handle)
    temporary.replace(path)


def _magnitude(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 7) // 8, "big")


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
