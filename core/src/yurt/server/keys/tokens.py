"""Signed tokens (JWT, RS256): signed with a root key of the cluster, and verified against all of them."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding

from yurt.sdk.errors import PermissionDenied, Unavailable
from yurt.server.keys.keyring import Keyring
from yurt.state.table import Table
from yurt.structs.variable import RootKeyMeta

AUDIENCE: Final = "nomadproject.io"
NODE_IDENTITY_TTL_S: Final = 24 * 3600
"""How long the identity of a node lasts where its pool does not say."""
TOKEN_MAX: Final = 8_192
"""Characters of a token that is looked at."""

T = TypeVar("T")


class _Header(msgspec.Struct):
    alg: str
    kid: str


def signed_token(keyring: Keyring, key_id: str, claims: Mapping[str, Any]) -> str:
    """A token with the claims `claims`; may block. Raises Unavailable without the key."""
    header = {"alg": "RS256", "kid": key_id, "typ": "JWT"}
    body = b".".join(_encoded(msgspec.json.encode(part)) for part in (header, claims))
    signature = keyring.signer(key_id).sign(body, padding.PKCS1v15(), hashes.SHA256())
    return (body + b"." + _encoded(signature)).decode()


def checked_token(keyring: Keyring, token: str, keys: Table[str, RootKeyMeta], kind: type[T]) -> T:
    """The claims of a token; may block. Raises PermissionDenied unless a root key signed it and its kind is `kind`."""
    try:
        signed, _, signature = token[:TOKEN_MAX].encode().rpartition(b".")
        first, _, second = signed.partition(b".")
        header = msgspec.json.decode(_decoded(first), type=_Header)
        claims = msgspec.json.decode(_decoded(second), type=kind)
        if header.alg != "RS256" or header.kid not in keys:
            raise InvalidSignature
        public = keyring.signer(header.kid).public_key()
        public.verify(_decoded(signature), signed, padding.PKCS1v15(), hashes.SHA256())
    except (msgspec.DecodeError, binascii.Error, RecursionError, InvalidSignature, Unavailable, UnicodeError):
        raise PermissionDenied("it is not signed by a key of this region") from None
    return claims


def _encoded(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _decoded(data: bytes) -> bytes:
    return base64.urlsafe_b64decode(data + b"=" * (-len(data) % 4))
