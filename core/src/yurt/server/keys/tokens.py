"""Signed tokens (JWT): signed with a root key of the cluster, and verified against all of them.

The type of the root key decides the algorithm (RS256 or EdDSA), never the token: one that names another is refused, so
`none` and HMAC with a public key are. Nothing else of a token's header is looked at but `kid`, which names a root key.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from yurt.sdk.errors import Invalid, PermissionDenied, Unavailable
from yurt.sdk.value import NANOSECONDS, UnixNano
from yurt.server.keys.keyring import Keyring
from yurt.state.persistent_table import Table
from yurt.structs.cluster import DEFAULT_NODE_IDENTITY_TTL
from yurt.structs.variable import RootKeyMeta

INTRODUCTION_KIND: Final = "node-introduction"
"""The beginning of the subject of an introduction token."""
NODE_IDENTITY_TTL_S: Final = DEFAULT_NODE_IDENTITY_TTL // NANOSECONDS
"""The lifetime, in seconds, of node identities if the pool does not set one."""
TOKEN_MAX: Final = 8_192
"""The length beyond which a token is rejected unread, in characters."""
LEEWAY_S: Final = 60
"""The tolerated difference of clocks, in seconds, in checks of `exp`, `nbf` and `iat`."""

T = TypeVar("T")


class _Header(msgspec.Struct):
    alg: str
    kid: str


class Times(msgspec.Struct):
    """The claims that limit the validity of a token in time, in seconds."""

    exp: float | None = None
    nbf: float | None = None
    iat: float | None = None


class _BadSignature(Exception):
    """No root key of this region signed the token."""


_UNREADABLE: Final = (msgspec.DecodeError, binascii.Error, RecursionError, UnicodeError)


def signed_token(keyring: Keyring, key_id: str, claims: Mapping[str, Any]) -> str:
    """A token with these claims; may block. Raises Unavailable without the key."""
    from yurt.server.keys.ciphers import algorithm_of, signature

    signer = keyring.signer(key_id)
    header = {"alg": algorithm_of(signer), "kid": key_id, "typ": "JWT"}
    body = b".".join(_encoded(msgspec.json.encode(part)) for part in (header, claims))
    return (body + b"." + _encoded(signature(signer, body))).decode()


def key_id_of(token: str) -> str:
    """The id of the root key that a token names, unverified; "" for an invalid token."""
    try:
        return _header(token.partition(".")[0].encode()).kid
    except _UNREADABLE:
        return ""


def checked_token(keyring: Keyring, token: str, keys: Table[str, RootKeyMeta], kind: type[T]) -> T:
    """The claims of a token; may block. Raises PermissionDenied unless a root key signed it and its kind is `kind`."""
    try:
        if len(token) > TOKEN_MAX:
            raise _BadSignature
        signed, _, signature = token.encode().rpartition(b".")
        first, _, second = signed.partition(b".")
        header = _header(first)
        if header.kid not in keys:
            raise _BadSignature
        _verify(keyring, header, _decoded(signature), signed)
        return msgspec.json.decode(_decoded(second), type=kind)
    except (*_UNREADABLE, _BadSignature, Unavailable, Invalid):
        raise PermissionDenied("it is not signed by a key of this region") from None


def problem_of_times(claims: Times, now: UnixNano) -> str:
    """The reason why a token is not valid at this time; "" if it is."""
    now_s = now / NANOSECONDS
    if claims.exp is not None and claims.exp + LEEWAY_S <= now_s:
        return "it has expired"
    if claims.nbf is not None and claims.nbf - LEEWAY_S > now_s:
        return "it is not valid yet"
    if claims.iat is not None and claims.iat - LEEWAY_S > now_s:
        return "it was issued in the future"
    return ""


def end_of(claims: Times) -> UnixNano:
    """The time from which a token is not valid any more; 0 for never."""
    return UnixNano(0 if claims.exp is None else round((claims.exp + LEEWAY_S) * NANOSECONDS))


def _header(part: bytes) -> _Header:
    return msgspec.json.decode(_decoded(part), type=_Header)


def _verify(keyring: Keyring, header: _Header, signature: bytes, signed: bytes) -> None:
    """Raises _BadSignature, or Unavailable or Invalid without the key."""
    from yurt.server.keys.ciphers import algorithm_of, is_signed

    signer = keyring.signer(header.kid)
    if header.alg != algorithm_of(signer) or not is_signed(signer, signature, signed):
        raise _BadSignature


def _encoded(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _decoded(data: bytes) -> bytes:
    return base64.urlsafe_b64decode(data + b"=" * (-len(data) % 4))
