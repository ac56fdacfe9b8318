"""The `keyring` blocks of the configuration: key encryption keys for the root keys on disk."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from yurt.server.config import AEAD, PASSPHRASE, PKCS11, TRANSIT, KeyProviderConfig

KINDS: Final = (AEAD, PASSPHRASE, PKCS11, TRANSIT)
NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    AEAD: (), PASSPHRASE: ("passphrase_file",), PKCS11: ("lib", "pin_file"), TRANSIT: ("address", "key_name"),
}  # fmt: skip
POSSIBLE: Final[Mapping[str, tuple[str, ...]]] = {
    AEAD: (),
    PASSPHRASE: ("passphrase_file",),
    PKCS11: ("lib", "token_label", "slot", "pin_file", "key_label", "key_id", "mechanism", "rsa_oaep_hash"),
    TRANSIT: (
        "address", "key_name", "mount_path", "namespace", "token", "token_file", "tls_ca_cert", "tls_client_cert",
        "tls_client_key",
    ),
}  # fmt: skip
COMMON: Final = ("name", "active")
FILES: Final = ("passphrase_file", "lib", "pin_file", "token_file", "tls_ca_cert", "tls_client_cert", "tls_client_key")
SLOT: Final = re.compile(r"[0-9]{1,10}|0x[0-9a-fA-F]{1,8}")
KEY_ID: Final = re.compile(r"([0-9a-fA-F]{2}){1,32}")
OAEP: Final = "RSA_PKCS_OAEP"
MECHANISMS: Final = ("AES_GCM", OAEP)
HASHES: Final = ("sha1", "sha256")
LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")


def keyring_problems(blocks: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """All problems of the blocks."""
    found = [text for block_id, body in blocks.items() for text in _block_problems(block_id, body)]
    if len(blocks) > 1:
        active = [block_id for block_id, body in blocks.items() if body.get("active")]
        if len(active) != 1:
            named = ", ".join(active) or "none"
            found.append(f"keyring: one of several blocks must have active = true (now: {named}).")
    return found


def _block_problems(block_id: str, body: Mapping[str, Any]) -> Iterator[str]:
    kind = _kind(block_id)
    if kind not in KINDS:
        yield f'keyring "{kind}" is not available in this version; there are: {", ".join(KINDS)}.'
        return
    where = f'keyring "{kind}"'
    yield from (f"{where}: {key} is required." for key in NEEDED[kind] if not body.get(key))
    possible = ", ".join(POSSIBLE[kind]) or "nothing"
    for key in body:
        if key not in (*COMMON, *POSSIBLE[kind]):
            yield f"{where}: {key} has no meaning here; it takes {possible}."
    for key in FILES:
        if (path := body.get(key, "")) and not path.startswith("/"):
            yield f'{where}: {key} "{path}" must be an absolute path.'
    if kind == TRANSIT:
        yield from _transit_problems(where, body)
    if kind == PKCS11:
        yield from _pkcs11_problems(where, body)


def _pkcs11_problems(where: str, body: Mapping[str, Any]) -> Iterator[str]:
    if not body.get("token_label") and not body.get("slot"):
        yield f"{where}: give token_label, slot or both."
    if not body.get("key_label") and not body.get("key_id"):
        yield f"{where}: give key_label, key_id or both."
    if (slot := body.get("slot", "")) and not SLOT.fullmatch(slot):
        yield f'{where}: slot "{slot}" must be a number such as "0" or "0x1a".'
    if (key_id := body.get("key_id", "")) and not KEY_ID.fullmatch(key_id):
        yield f'{where}: key_id "{key_id}" must be hexadecimal digits in pairs, such as "01a0".'
    mechanism = body.get("mechanism") or MECHANISMS[0]
    if mechanism not in MECHANISMS:
        yield f'{where}: mechanism "{mechanism}" is not available; there are: {", ".join(MECHANISMS)}.'
    if hashed := body.get("rsa_oaep_hash", ""):
        if hashed not in HASHES:
            yield f'{where}: rsa_oaep_hash "{hashed}" is not available; there are: {", ".join(HASHES)}.'
        if mechanism != OAEP:
            yield f'{where}: rsa_oaep_hash needs mechanism = "{OAEP}".'


def _transit_problems(where: str, body: Mapping[str, Any]) -> Iterator[str]:
    if bool(body.get("token")) == bool(body.get("token_file")):
        yield f"{where}: give either token or token_file."
    if address := body.get("address", ""):
        try:
            url = urlsplit(address)
            host, _ = url.hostname, url.port
        except ValueError:
            host = None
        if not host or url.scheme not in ("http", "https"):
            yield f'{where}: address "{address}" must be a URL such as "https://vault.example.com:8200".'
        elif url.scheme == "http" and host not in LOOPBACK:
            yield f'{where}: address "{address}" would send the token in the clear; use https.'


def keyring_configs(blocks: Mapping[str, Mapping[str, Any]]) -> tuple[KeyProviderConfig, ...]:
    """The settings of blocks without problems; a single block is active."""
    return tuple(
        KeyProviderConfig(
            kind=_kind(block_id),
            id=block_id,
            is_active=len(blocks) == 1 or bool(body.get("active")),
            settings={key: str(body[key]) for key in POSSIBLE[_kind(block_id)] if body.get(key)},
        )
        for block_id, body in blocks.items()
    )


def _kind(block_id: str) -> str:
    """The label of a block; its name may follow after a point."""
    return block_id.partition(".")[0]
