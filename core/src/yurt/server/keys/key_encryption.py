"""Key encryption keys: what root keys are sealed with where they lie on disk.

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
import stat
from pathlib import Path
from typing import Final, Protocol

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from yurt.sdk.errors import Invalid
from yurt.sdk.value import Value
from yurt.server.config import AEAD, PASSPHRASE, TRANSIT, KeyProviderConfig

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
SALT_BYTES: Final = 16
PASSPHRASE_MIN: Final = 16
"""The minimal length of a passphrase: whoever obtains the file can try any number of guesses."""
PASSPHRASE_BYTES_MAX: Final = 4_096
SCRYPT_N, SCRYPT_R, SCRYPT_P = 1 << 15, 8, 1
"""RFC 7914: 32 MiB and about 0.1 s for each passphrase that is tried."""
GROUP_AND_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class SealedKey(Value):
    """A root key as it lies on disk."""

    key_id: str
    provider: str
    """The id of the provider that has wrapped the key of the file."""
    wrapped: str
    """That key, in the provider's own form."""
    data: bytes
    """A nonce and the sealed root key."""


class KeyProvider(Protocol):
    """Wraps and unwraps 32 bytes. Calls may block."""

    def wrap(self, key: bytes, *, context: str) -> str:
        """The key in the provider's form; raises Invalid or Unavailable."""
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
        """The id of the active provider; "" where root keys are not wrapped."""
        self._made: dict[str, KeyProvider] = {}

    def seal(self, key_id: str, plain: bytes) -> SealedKey:
        """A root key sealed by the active provider; raises Invalid or Unavailable."""
        provider, key, nonce = self._provider(self.active), os.urandom(KEY_BYTES), os.urandom(NONCE_BYTES)
        data = nonce + AESGCM(key).encrypt(nonce, plain, key_id.encode())
        return SealedKey(
            key_id=key_id, provider=self.active, wrapped=provider.wrap(key, context=key_id), data=data
        )  # fmt: skip

    def open(self, sealed: SealedKey) -> bytes:
        """The root key; raises Invalid where that is impossible with these providers, Unavailable where it may work."""
        key = self._provider(sealed.provider).unwrap(sealed.wrapped, context=sealed.key_id)
        try:
            return AESGCM(key).decrypt(sealed.data[:NONCE_BYTES], sealed.data[NONCE_BYTES:], sealed.key_id.encode())
        except (InvalidTag, ValueError):
            raise Invalid("its file has been changed; restore it") from None

    def _provider(self, provider_id: str) -> KeyProvider:
        config = self._configs.get(provider_id)
        if config is None:
            known = ", ".join(sorted(each for each in self._configs)) or "none"
            raise Invalid(
                f'it is wrapped by the keyring "{provider_id[:64]}", which is not configured (configured: {known}); '
                "add its keyring block again"
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
        where = f'keyring "{self._id}": {self._path}'
        try:
            with self._path.open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                text = file.read(PASSPHRASE_BYTES_MAX + 1).rstrip(b"\r\n")
        except OSError as error:
            raise Invalid(f"{where} cannot be read: {error.strerror or error}") from None
        if stat.S_ISREG(mode) and mode & GROUP_AND_OTHERS:
            raise Invalid(f"{where} can be read by others; chmod 600 {self._path}")
        if not PASSPHRASE_MIN <= len(text) <= PASSPHRASE_BYTES_MAX:
            raise Invalid(f"{where} must hold a passphrase of {PASSPHRASE_MIN} to {PASSPHRASE_BYTES_MAX} characters")
        return text


SEALED: Final = msgspec.json.Decoder(SealedKey)
