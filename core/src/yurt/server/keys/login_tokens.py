"""Signatures of login tokens (JWS, RFC 7515, compact form), checked with the keys of an issuer.

The method's list of algorithms decides, never the token alone: `none` and HMAC are not in any list, and a key checks
only what its type allows. Of the header, `alg` and `kid` are read; keys or addresses of keys that a token brings along
(`jwk`, `jku`, `x5c`, `x5u`) are not looked at, and a token with critical extensions (`crit`) is refused.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterable
from typing import Final

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from yurt.acl.login.claims import Claims
from yurt.acl.login.refusals import not_accepted
from yurt.acl.validation import SIGNING_ALGORITHMS
from yurt.server.keys.login_keys import IssuerKey, KeySet, decoded_base64url

TOKEN_MAX: Final = 32 * 1024
"""The maximum number of characters of a login token."""
KEY_ID_MAX: Final = 1024
DEFAULT_ALGORITHMS: Final = ("RS256",)
"""The algorithms accepted by a method without a list."""
_PARTS: Final = 3
_HASHES: Final = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}


class TokenHeader(msgspec.Struct, frozen=True):
    """The fields of a token's header that are used."""

    alg: str
    kid: str | None = None
    crit: object = msgspec.UNSET


def token_header(token: str) -> TokenHeader:
    """The header of an unverified token; raises PermissionDenied when it is unreadable.

    It is for one question before the check: whether the issuer's keys have to be fetched again for a new `kid`.
    """
    return _header(_parts(token)[0])


def verified_claims(token: str, keys: KeySet, algorithms: Iterable[str] = ()) -> Claims:
    """The claims of a token that one of the keys signed; raises PermissionDenied. Takes CPU time for each key tried."""
    payload = verified_payload(token, keys, algorithms)
    try:
        return msgspec.json.decode(payload, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        raise not_accepted("its claims are not a JSON object") from None


def verified_payload(token: str, keys: KeySet, algorithms: Iterable[str] = ()) -> bytes:
    """The payload of a token; raises PermissionDenied unless one of the keys signed it with one of the algorithms."""
    first, second, third = _parts(token)
    header = _header(first)
    accepted = tuple(algorithms) or DEFAULT_ALGORITHMS
    if header.alg not in accepted or header.alg not in SIGNING_ALGORITHMS:
        raise not_accepted(f"the signing algorithm {header.alg[:32]!r} is not one of {', '.join(accepted)[:256]}")
    candidates = keys.candidates(header.kid, header.alg)
    if not candidates:
        raise not_accepted("no key of the issuer has the token's key id and algorithm")
    payload, signature = _decoded(second), _decoded(third)
    signed = f"{first}.{second}".encode("ascii")
    if not any(_is_signed(key, header.alg, signature, signed) for key in candidates):
        raise not_accepted("its signature is not by a key of the issuer")
    return payload


def _parts(token: str) -> tuple[str, str, str]:
    if len(token) > TOKEN_MAX:
        raise not_accepted(f"it is longer than {TOKEN_MAX} characters")
    parts = token.split(".", _PARTS)
    if len(parts) != _PARTS:
        raise not_accepted("it is not a signed JWT of three parts")
    return parts[0], parts[1], parts[2]


def _header(part: str) -> TokenHeader:
    try:
        header = msgspec.json.decode(_decoded(part), type=TokenHeader)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        raise not_accepted("its header cannot be read") from None
    if header.crit is not msgspec.UNSET:
        raise not_accepted("it has critical extensions, which are not supported")
    if header.kid is not None and len(header.kid) > KEY_ID_MAX:
        raise not_accepted(f"its key id is longer than {KEY_ID_MAX} characters")
    return header


def _decoded(part: str) -> bytes:
    try:
        return decoded_base64url(part)
    except (binascii.Error, UnicodeError):
        raise not_accepted("it is not base64url") from None


def _is_signed(key: IssuerKey, algorithm: str, signature: bytes, signed: bytes) -> bool:
    try:
        _verify(key, algorithm, signature, signed)
    except InvalidSignature:
        return False
    return True


def _verify(key: IssuerKey, algorithm: str, signature: bytes, signed: bytes) -> None:
    """Raises InvalidSignature. The algorithm must be one of the key's, so that its type and curve fit."""
    assert algorithm in key.algorithms, algorithm
    public = key.public
    if isinstance(public, RSAPublicKey):
        digest = _HASHES[algorithm[2:]]
        is_pss = algorithm.startswith("PS")
        # RFC 7518: the salt of PSS is as long as the digest.
        scheme = padding.PSS(padding.MGF1(digest), digest.digest_size) if is_pss else padding.PKCS1v15()
        public.verify(signature, signed, scheme, digest)
    elif isinstance(public, EllipticCurvePublicKey):
        size = (public.curve.key_size + 7) // 8
        if len(signature) != 2 * size:
            raise InvalidSignature
        r, s = (int.from_bytes(half, "big") for half in (signature[:size], signature[size:]))
        public.verify(encode_dss_signature(r, s), signed, ECDSA(_HASHES[algorithm[2:]]))
    else:
        public.verify(signature, signed)
