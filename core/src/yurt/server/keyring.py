"""The key that signs workload identities, and its public half for `/.well-known/jwks.json`."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from yurt.sdk.errors import Invalid

KEY_BITS: Final = 2048
KEY_FILE: Final = "root.pem"


class Keyring:
    """One RSA key, made at its first use and kept in `data_dir`/server/keystore, readable by its owner only."""

    def __init__(self, data_dir: Path | None) -> None:
        self._path = data_dir / "server" / "keystore" / KEY_FILE if data_dir is not None else None
        self._key: rsa.RSAPrivateKey | None = None

    @property
    def key(self) -> rsa.RSAPrivateKey:
        """The private key."""
        if self._key is None:
            self._key = self._load() or self._create()
        return self._key

    @property
    def key_id(self) -> str:
        """Names the key: a digest of its public half, in the form of a UUID."""
        der = self.key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        digest = hashes.Hash(hashes.SHA256())
        digest.update(der)
        text = digest.finalize().hex()
        return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:32]))

    @property
    def made_at(self) -> int:
        """When the key was stored, unix nanoseconds; 0 for one that lives in memory."""
        return self._path.stat().st_mtime_ns if self._path is not None and self._path.exists() else 0

    def jwks(self) -> dict[str, Any]:
        """The public keys as a JSON Web Key Set."""
        numbers = self.key.public_key().public_numbers()
        return {
            "keys": [
                {
                    "use": "sig",
                    "kty": "RSA",
                    "alg": "RS256",
                    "kid": self.key_id,
                    "n": _base64url(numbers.n),
                    "e": _base64url(numbers.e),
                }
            ]
        }

    def _load(self) -> rsa.RSAPrivateKey | None:
        if self._path is None or not self._path.exists():
            return None
        try:
            key = serialization.load_pem_private_key(self._path.read_bytes(), password=None)
        except ValueError as error:
            raise Invalid(f"the key in {self._path} cannot be read: {error}; restore it, or move it away") from None
        if not isinstance(key, rsa.RSAPrivateKey):
            raise Invalid(f"the key in {self._path} is no RSA key; restore it, or move it away")
        return key

    def _create(self) -> rsa.RSAPrivateKey:
        key = rsa.generate_private_key(public_exponent=65537, key_size=KEY_BITS)
        if self._path is not None:
            pem = key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            _write_private(self._path, pem)
        return key


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


def _base64url(number: int) -> str:
    size = (number.bit_length() + 7) // 8
    return base64.urlsafe_b64encode(number.to_bytes(size, "big")).rstrip(b"=").decode()
