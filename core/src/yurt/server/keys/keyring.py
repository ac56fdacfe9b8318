"""The root keys of a cluster on one server: each encrypts variables and signs workload identities.

A root key has two halves, 32 bytes for AES-256-GCM and an RSA key for RS256. One without an RSA key, as clusters had
before Nomad 1.7, signs by EdDSA: its 32 bytes are the seed of an Ed25519 key too. A key lies in a file of its own in
the folder `keystore` of the server's data, readable by its owner only, and sealed where a key encryption key is
configured (`key_encryption`); without data on disk it lives in memory. What the cluster knows of keys (which is active)
is in the state; here is only what must never be there.

Ids of keys come from other servers, from the log and from restored snapshots, and name files here: only a UUID ever
becomes a part of a path.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from yurt.sdk.errors import Conflict, Invalid, Unavailable
from yurt.server.config import AEAD, KeyProviderConfig
from yurt.server.peers import RootKey
from yurt.storage.checksummed_file import checked, read_checked

if TYPE_CHECKING:
    from yurt.server.keys.ciphers import SigningKey
    from yurt.server.keys.key_encryption import KeyProviders

log = logging.getLogger(__name__)

SECRET_BYTES: Final = 32
NONCE_BYTES: Final = 12
SUFFIX: Final = ".key.json"
KEY_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
SHOWN_MAX: Final = 64
"""The maximum number of characters of a malformed id in a message."""
MEMORY: Final = "memory"
"""The name of a keyring that keeps its keys in memory."""
NOT_HERE: Final = "this server does not have the key"


class KeyWrapping(NamedTuple):
    """The storage of a root key on one server."""

    keyring: str
    """The id of the `keyring` block that wraps the key's file, `aead` for an unwrapped file; "" without the key."""
    problem: str
    """The reason why this server cannot use the key; "" if it can."""


class _Locked(Exception):
    """An intact file that cannot be opened; `is_final`: never with the configured key encryption keys."""

    def __init__(self, text: str, *, provider: str, is_final: bool) -> None:
        super().__init__(text)
        self.provider = provider
        self.is_final = is_final


class Keyring:
    """The root keys on this server. All calls except `encrypt` and `decrypt` may block."""

    def __init__(self, data_dir: Path | None, providers: tuple[KeyProviderConfig, ...] = ()) -> None:
        self._folder = data_dir / "keystore" if data_dir is not None else None
        self._configs = providers
        self._providers: KeyProviders | None = None
        self._keys: dict[str, RootKey] = {}
        self._signers: dict[str, SigningKey] = {}
        self._damaged: dict[str, str] = {}
        self._locked: dict[str, str] = {}
        """Keys with intact files that cannot be opened now, with the reason."""
        self._wrapped_by: dict[str, str] = {}
        """The provider that wrapped the file of each key; "" for none."""
        self._opened_by: set[str] = set()
        """The providers that have opened a file successfully."""
        self._unsealed = False
        """Whether a file is not sealed by the active key encryption key."""
        self._is_loaded = data_dir is None

    def __contains__(self, key_id: str) -> bool:
        self._load()
        return key_id in self._keys

    def open(self) -> None:
        """Read all keys at the start; raises Invalid with every key that no configured provider can open, and if the
        active one cannot wrap.

        A key of a server that does not answer now is tried again later (`retry`).
        """
        refused = self._load()
        if refused:
            raise Invalid("\n".join(f"root key {key_id} cannot be opened: {why}" for key_id, why in refused.items()))
        self._check_active()

    def _check_active(self) -> None:
        """Test the active key encryption key unless it has opened a file; raises Invalid if it cannot work."""
        providers = self._key_providers() if self._folder is not None else None
        if providers is None or providers.active in self._opened_by:
            return
        try:
            providers.check()
        except Unavailable as error:
            log.error("active keyring does not work yet: keyring=%s error=%s", providers.active, error)

    def retry(self) -> None:
        """Try the locked keys again, and seal those that the active key encryption key has not sealed yet."""
        if self._locked or self._unsealed:
            self._read_files()

    def locked(self, key_id: str) -> str:
        """The reason why a key stored here cannot be opened now; "" for one that can, or is not stored here."""
        return self._locked.get(key_id, "")

    def wrapping(self, key_id: str) -> KeyWrapping:
        """The storage of a key on this server."""
        self._load()
        if self._folder is None:
            return KeyWrapping(MEMORY, "") if key_id in self._keys else KeyWrapping("", NOT_HERE)
        provider = self._wrapped_by.get(key_id)
        if provider is not None:
            return KeyWrapping(provider or AEAD, self._locked.get(key_id, ""))
        damage = self._damaged.get(key_id)
        return KeyWrapping("", NOT_HERE if damage is None else f"its file is damaged: {damage}")

    def create(self, key_id: str) -> RootKey:
        """Create and store a key."""
        from yurt.server.keys.ciphers import new_pem

        key = RootKey(key_id=key_id, secret=os.urandom(SECRET_BYTES), pem=new_pem())
        self.add(key)
        return key

    def add(self, key: RootKey) -> None:
        """Store a key created by this or another server; raises Invalid when its id is not a UUID.

        Raises Invalid or Unavailable where it cannot be sealed: then it is not stored.
        """
        check_key_id(key.key_id)
        self._load()
        if self._folder is not None:
            self._store(self._folder / f"{key.key_id}{SUFFIX}", key)
        _import_ciphers()
        self._keys[key.key_id] = key
        self._locked.pop(key.key_id, None)

    def _store(self, path: Path, key: RootKey) -> None:
        """Write a key, sealed if there is an active key encryption key, which must open it again."""
        plain, providers = msgspec.json.encode(key), self._key_providers()
        if providers is None or not providers.active:
            _write_private(path, checked(plain))
            self._wrapped_by[key.key_id] = ""
            return
        sealed = providers.seal(key.key_id, plain)
        if providers.open(sealed) != plain:
            raise Unavailable(f"root key {key.key_id} differs after sealing and opening; its file stays unchanged")
        _write_private(path, checked(msgspec.json.encode(sealed)))
        self._wrapped_by[key.key_id] = providers.active

    def _key_providers(self) -> KeyProviders | None:
        """The key encryption keys; None without any, so that their code is not imported."""
        if self._providers is None and self._configs:
            from yurt.server.keys.key_encryption import KeyProviders

            self._providers = KeyProviders(self._configs)
        return self._providers

    def get(self, key_id: str) -> RootKey:
        """A key; raises Unavailable with advice, Invalid when the id is not a UUID."""
        check_key_id(key_id)
        self._load()
        key = self._keys.get(key_id)
        if key is None:
            where = f"{self._folder}/{key_id}{SUFFIX}" if self._folder is not None else "memory"
            if locked := self._locked.get(key_id):
                raise Unavailable(f"root key {key_id} ({where}) cannot be opened now: {locked}")
            why = f"is damaged ({self._damaged[key_id]})" if key_id in self._damaged else "is not"
            raise Unavailable(f"root key {key_id} {why} in this server's keystore ({where}); restore its file")
        return key

    def remove(self, key_id: str) -> None:
        """Delete a key permanently; no effect for an id that is not a UUID."""
        self._load()
        self._keys.pop(key_id, None)
        self._signers.pop(key_id, None)
        self._locked.pop(key_id, None)
        self._wrapped_by.pop(key_id, None)
        if self._folder is not None and is_key_id(key_id):
            (self._folder / f"{key_id}{SUFFIX}").unlink(missing_ok=True)

    def encrypt(self, key_id: str, text: bytes, *, context: bytes) -> bytes:
        """A nonce and the ciphertext, which can be decrypted only in the same context."""
        from yurt.server.keys.ciphers import encrypted

        nonce = os.urandom(NONCE_BYTES)
        return nonce + encrypted(self.get(key_id).secret, text, nonce=nonce, context=context)

    def decrypt(self, key_id: str, data: bytes, *, context: bytes) -> bytes:
        """The plaintext; raises Unavailable without the key, Conflict when data or context were changed."""
        from yurt.server.keys.ciphers import Undecryptable, decrypted

        key = self.get(key_id)
        try:
            return decrypted(key.secret, data[NONCE_BYTES:], nonce=data[:NONCE_BYTES], context=context)
        except Undecryptable:
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
        from yurt.server.keys.ciphers import algorithm_of, public_jwk

        signer = self.signer(key_id)
        return {"use": "sig", "kid": key_id, "alg": algorithm_of(signer)} | public_jwk(signer)

    def _load(self) -> dict[str, str]:
        """Read the files that were not read yet; returns those that no configured provider opens, with the reason."""
        return {} if self._is_loaded else self._read_files()

    def _read_files(self) -> dict[str, str]:
        """Read every file; meanwhile callers get the keys read so far."""
        refused: dict[str, str] = {}
        if self._folder is None:
            return refused
        self._unsealed = False
        for path in sorted(self._folder.glob(f"*{SUFFIX}")):
            name = path.name.removesuffix(SUFFIX)
            try:
                key, provider = self._stored_key(path, name)
            except _Locked as error:
                if error.is_final:
                    refused[name] = str(error)
                if name not in self._locked:
                    log.error("root key cannot be opened: path=%s error=%s", path, error)
                self._locked[name], self._wrapped_by[name] = str(error), error.provider
                continue
            except (OSError, ValueError, Invalid) as error:
                self._damaged[name] = str(error)
                log.error("a root key is damaged and counts as missing, restore its file unless another server gives "
                          "it: path=%s: %s", path, error)  # fmt: skip
                continue
            self._locked.pop(name, None)
            _import_ciphers()
            self._keys[key.key_id], self._wrapped_by[name] = key, provider
            self._seal_again(path, key, provider)
        self._is_loaded = True
        return refused

    def _seal_again(self, path: Path, key: RootKey, provider: str) -> None:
        """Seal a file with the active key encryption key; after a failure it stays unchanged, and is tried again
        later."""
        providers = self._key_providers()
        if provider == (providers.active if providers is not None else ""):
            return
        try:
            self._store(path, key)
        except (Invalid, Unavailable, OSError) as error:
            self._unsealed = True
            log.error("root key is not sealed by the active keyring yet: path=%s error=%s", path, error)
        else:
            active = providers.active if providers is not None else ""
            log.info("root key sealed again: key=%s keyring=%s", key.key_id, active or "aead")

    def _stored_key(self, path: Path, key_id: str) -> tuple[RootKey, str]:
        """The key in a file, and the provider that wrapped it; "" for none.

        Raises _Locked where its file is whole and cannot be opened, and Invalid, ValueError or OSError when it is
        damaged.
        """
        data, provider = read_checked(path), ""
        if b'"Wrapped":' in data:
            from yurt.server.keys.key_encryption import SEALED, KeyProviders

            sealed = SEALED.decode(data)
            provider = sealed.provider
            try:
                data = (self._key_providers() or KeyProviders(())).open(sealed)
            except (Invalid, Unavailable) as error:
                raise _Locked(str(error), provider=provider, is_final=isinstance(error, Invalid)) from None
            self._opened_by.add(provider)
        key = msgspec.json.decode(data, type=RootKey)
        check_key_id(key.key_id)
        if key.key_id != key_id:
            raise Invalid(f"it is the key {key.key_id[:SHOWN_MAX]!r}")
        return key, provider


def _import_ciphers() -> None:
    """Import what the first use of a key needs, before the key can be used: `encrypt` and `decrypt` must not block."""
    import_module("yurt.server.keys.ciphers")


def is_key_id(key_id: str) -> bool:
    """Whether this is a valid id of a root key."""
    return KEY_ID.fullmatch(key_id) is not None


def wrappings_of(keyring: Keyring, key_ids: Iterable[str]) -> dict[str, KeyWrapping]:
    """The storage of each of the keys on this server; may block."""
    return {key_id: keyring.wrapping(key_id) for key_id in key_ids}


def check_key_id(key_id: str) -> None:
    """Raises Invalid when the id is not a UUID."""
    if not is_key_id(key_id):
        raise Invalid(
            f"root key id {key_id[:SHOWN_MAX]!r} is not a UUID; `yurt operator root keyring list` shows the ids"
        )


def _signing_key(key: RootKey) -> SigningKey:
    """The private key in a file; raises Invalid for one of another type."""
    from yurt.server.keys.ciphers import ed25519_key, rsa_key

    signer = rsa_key(key.pem) if key.pem else ed25519_key(key.secret)
    if signer is None:
        raise Invalid(f"root key {key.key_id} holds no RSA key; restore its file")
    return signer


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
