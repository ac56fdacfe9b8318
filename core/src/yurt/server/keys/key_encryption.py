"""Key encryption keys, which seal root keys on disk.

A root key is sealed with a key of its own that is made for this one file (AES-256-GCM, bound to the root key's id), and
that one is wrapped by the key encryption key of a provider. The provider sees 32 bytes and never a root key. Which
provider has wrapped a file stands in the file, so several may be configured: one of them is active and wraps, the
others only unwrap.

A file is replaced only by one that was opened again on the way, and never where it could not be opened: a wrong or
missing key encryption key costs no root key.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Final, Protocol

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from yurt.sdk.errors import Invalid, Unavailable
from yurt.sdk.value import Value
from yurt.server.config import AEAD, PASSPHRASE, PKCS11, TRANSIT, KeyProviderConfig
from yurt.server.keys.secret_file import read_secret

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
SALT_BYTES: Final = 16
PASSPHRASE_MIN: Final = 16
"""The minimum length of a passphrase: an attacker with the file can try any number of guesses."""
PASSPHRASE_BYTES_MAX: Final = 4_096
SCRYPT_N, SCRYPT_R, SCRYPT_P = 1 << 15, 8, 1
"""Parameters of RFC 7914: 32 MiB and about 0.1 s for each attempted passphrase."""
CHECKED: Final = "check"
"""The id with which the start tests whether the active provider wraps and unwraps."""


class SealedKey(Value):
    """A root key as stored on disk."""

    key_id: str
    provider: str
    """The id of the provider that wrapped the file's own key."""
    wrapped: str
    """The wrapped key, in the provider's form."""
    data: bytes
    """A nonce and the root key, encrypted with the file's own key."""


class KeyProvider(Protocol):
    """Wraps and unwraps keys of 32 bytes. Calls may block."""

    def wrap(self, key: bytes, *, context: str) -> str:
        """The wrapped key in the provider's form; raises Invalid or Unavailable."""
        ...

    def unwrap(self, wrapped: str, *, context: str) -> bytes:
        """The key; raises Invalid when another key wrapped it, Unavailable when the provider does not answer."""
        ...


class KeyProviders:
    """The configured providers, at most one active; without an active one, root keys are stored unencrypted."""

    def __init__(self, configs: tuple[KeyProviderConfig, ...]) -> None:
        self._configs = {each.id: each for each in configs}
        active = next((each.id for each in configs if each.is_active), AEAD)
        self.active = "" if active == AEAD else active
        """The id of the active provider; "" if root keys are not wrapped."""
        self._made: dict[str, KeyProvider] = {}

    def seal(self, key_id: str, plain: bytes) -> SealedKey:
        """A root key sealed by the active provider; raises Invalid or Unavailable."""
        provider, key, nonce = self._provider(self.active), os.urandom(KEY_BYTES), os.urandom(NONCE_BYTES)
        data = nonce + AESGCM(key).encrypt(nonce, plain, key_id.encode())
        return SealedKey(
            key_id=key_id, provider=self.active, wrapped=provider.wrap(key, context=key_id), data=data
        )  # fmt: skip

    def open(self, sealed: SealedKey) -> bytes:
        """The root key; raises Invalid if these providers can never open it, Unavailable if a later attempt may
        succeed."""
        key = self._provider(sealed.provider).unwrap(sealed.wrapped, context=sealed.key_id)
        try:
            return AESGCM(key).decrypt(sealed.data[:NONCE_BYTES], sealed.data[NONCE_BYTES:], sealed.key_id.encode())
        except (InvalidTag, ValueError):
            raise Invalid("its file has been changed; restore it") from None

    def check(self) -> None:
        """Wrap and unwrap once with the active provider; raises Invalid or Unavailable.

        A setting that cannot work fails at the start, not weeks later when a root key is made.
        """
        if self.active and self.open(self.seal(CHECKED, CHECKED.encode())) != CHECKED.encode():
            raise Unavailable(f'the keyring "{self.active}" does not give back what it has wrapped')

    def _provider(self, provider_id: str) -> KeyProvider:
        config = self._configs.get(provider_id)
        if config is None:
            configured = ", ".join(sorted(self._configs)) or "none"
            raise Invalid(
                f'it is wrapped by the keyring "{provider_id[:64]}", which is not configured (configured: '
                f"{configured}); add its keyring block again"
            )
        made = self._made.get(provider_id)
        if made is None:
            made = self._made[provider_id] = _made(config)
        return made


def _made(config: KeyProviderConfig) -> KeyProvider:
    if config.kind == PASSPHRASE:
        return PassphraseProvider(config.id, Path(config.settings["passphrase_file"]))
    if config.kind == TRANSIT:
        from yurt.server.keys.transit import TransitProvider

        return TransitProvider(config.id, config.settings)
    if config.kind == PKCS11:
        from yurt.server.keys.pkcs11 import Pkcs11Provider

        return Pkcs11Provider(config.id, config.settings)
    raise Invalid(f'the keyring "{config.id}" wraps nothing: it stands for root keys that are written as they are')


class PassphraseProvider:
    """A key derived from a passphrase in a file, which is read for each use and never stored."""

    def __init__(self, provider_id: str, path: Path) -> None:
        self._id = provider_id
        self._path = path

    def wrap(self, key: bytes, *, context: str) -> str:
        """A salt, a nonce and the encrypted key, in base64; raises Invalid."""
        salt, nonce = os.urandom(SALT_BYTES), os.urandom(NONCE_BYTES)
        sealed = AESGCM(self._derived(salt)).encrypt(nonce, key, context.encode())
        return base64.b64encode(salt + nonce + sealed).decode()

    def unwrap(self, wrapped: str, *, context: str) -> bytes:
        """The key; raises Invalid for another passphrase."""
        try:
            data = base64.b64decode(wrapped, validate=True)
        except ValueError:
            raise Invalid("its file has been changed; restore it") from None
        salt, nonce, sealed = (
            data[:SALT_BYTES],
            data[SALT_BYTES : SALT_BYTES + NONCE_BYTES],
            data[SALT_BYTES + NONCE_BYTES :],
        )
        try:
            return AESGCM(self._derived(salt)).decrypt(nonce, sealed, context.encode())
        except (InvalidTag, ValueError):
            raise Invalid(
                f'the passphrase of the keyring "{self._id}" ({self._path}) is not the one that wrapped it; '
                "put back the former passphrase"
            ) from None

    def _derived(self, salt: bytes) -> bytes:
        return Scrypt(salt=salt, length=KEY_BYTES, n=SCRYPT_N, r=SCRYPT_R, p=SCRYPT_P).derive(self._passphrase())

    def _passphrase(self) -> bytes:
        return read_secret(
            f'keyring "{self._id}"',
            self._path,
            shortest=PASSPHRASE_MIN,
            longest=PASSPHRASE_BYTES_MAX,
            noun="passphrase",
        )


SEALED: Final = msgspec.json.Decoder(SealedKey)
