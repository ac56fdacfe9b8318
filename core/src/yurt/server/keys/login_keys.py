"""The public keys of token issuers: from PEM texts of a login method, or from a JSON Web Key Set (RFC 7517).

A key has the algorithms that its type allows, so that a token cannot choose another use for it: an RSA key never
becomes the secret of an HMAC. Keys that Yurt cannot use (other types, for encryption, too weak) are left out with a
reason, because issuers publish such keys next to the ones that sign.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    SECP384R1,
    SECP521R1,
    EllipticCurve,
    EllipticCurvePublicKey,
    EllipticCurvePublicNumbers,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey, RSAPublicNumbers
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from cryptography.x509 import load_pem_x509_certificate

from yurt.sdk.errors import Invalid

JWKS_BYTES_MAX: Final = 256 * 1024
KEYS_MAX: Final = 64
"""The maximum number of keys of one issuer: a token without `kid` is tried with each of them."""
PEM_MAX: Final = 16 * 1024
RSA_BITS_MIN, RSA_BITS_MAX = 2048, 8192
EXPONENT_MAX: Final = (1 << 32) - 1
"""The largest exponent: a larger one makes verifying a signature slow."""

PublicKey = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey
_RSA: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_CURVES: Final[Mapping[str, tuple[str, EllipticCurve]]] = {
    "secp256r1": ("ES256", SECP256R1()), "secp384r1": ("ES384", SECP384R1()), "secp521r1": ("ES512", SECP521R1()),
}  # fmt: skip
_JWK_CURVES: Final = {"P-256": "secp256r1", "P-384": "secp384r1", "P-521": "secp521r1"}


class IssuerKey(NamedTuple):
    """A public key, and the algorithms that it may verify."""

    public: PublicKey
    algorithms: frozenset[str]
    key_id: str | None = None
    """The `kid` in the issuer's key set; keys from PEM texts have none."""


class KeySet(NamedTuple):
    """The usable keys of an issuer, and the reasons why others are not used."""

    keys: tuple[IssuerKey, ...]
    skipped: tuple[str, ...] = ()

    def candidates(self, key_id: str | None, algorithm: str) -> tuple[IssuerKey, ...]:
        """The keys that may have signed a token with this header; those without an id always may."""
        return tuple(
            key
            for key in self.keys
            if algorithm in key.algorithms and (key_id is None or key.key_id is None or key.key_id == key_id)
        )


def keys_of_pem(texts: Iterable[str]) -> KeySet:
    """The keys of PEM texts, each a public key or a certificate; raises Invalid for one that is neither."""
    texts = tuple(texts)
    if len(texts) > KEYS_MAX:
        raise Invalid(f"more than {KEYS_MAX} public keys")
    keys = []
    for number, text in enumerate(texts):
        try:
            public = _public_of_pem(text)
            keys.append(IssuerKey(public, _algorithms(public)))
        except (ValueError, UnsupportedAlgorithm) as error:
            raise Invalid(f"public key {number} cannot be used: {error}") from None
    return KeySet(tuple(keys))


def keys_of_jwks(document: bytes) -> KeySet:
    """The usable keys of a key set; raises Invalid for another document or one without usable keys."""
    if len(document) > JWKS_BYTES_MAX:
        raise Invalid(f"the key set is longer than {JWKS_BYTES_MAX} bytes")
    try:
        listed = msgspec.json.decode(document, type=_KeySetDocument).keys
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise Invalid(f"the key set cannot be read: {error}") from None
    if len(listed) > KEYS_MAX:
        raise Invalid(f"the key set has more than {KEYS_MAX} keys")
    keys, skipped = [], []
    for number, jwk in enumerate(listed):
        try:
            keys.append(_issuer_key(jwk))
        except (ValueError, UnsupportedAlgorithm) as error:
            skipped.append(f"key {number}: {error}")
    if not keys:
        raise Invalid("the key set has no usable key: " + ("; ".join(skipped)[:512] or "it is empty"))
    return KeySet(tuple(keys), tuple(skipped))


class _KeySetDocument(msgspec.Struct):
    keys: list[dict[str, Any]]


def _public_of_pem(text: str) -> PublicKey:
    if len(text) > PEM_MAX:
        raise ValueError(f"it is longer than {PEM_MAX} characters")
    data = text.encode()
    is_certificate = b"-----BEGIN CERTIFICATE-----" in data
    try:
        public = load_pem_x509_certificate(data).public_key() if is_certificate else load_pem_public_key(data)
    except ValueError:  # Its text is a hint for programmers.
        raise ValueError("it is neither a public key nor a certificate in PEM form") from None
    return _supported(public)


def _supported(public: object) -> PublicKey:
    if not isinstance(public, PublicKey):
        raise ValueError("its type is not RSA, EC or Ed25519")
    return public


def _algorithms(public: PublicKey) -> frozenset[str]:
    """The algorithms that a key may verify; raises ValueError for a weak, oversized or unsupported key."""
    match public:
        case RSAPublicKey():
            if not RSA_BITS_MIN <= public.key_size <= RSA_BITS_MAX:
                raise ValueError(f"an RSA key has {RSA_BITS_MIN} to {RSA_BITS_MAX} bits, this one {public.key_size}")
            if public.public_numbers().e > EXPONENT_MAX:
                raise ValueError("its public exponent is too large")
            return _RSA
        case EllipticCurvePublicKey():
            if public.curve.name not in _CURVES:
                raise ValueError(f"the curve {public.curve.name} is not supported")
            return frozenset({_CURVES[public.curve.name][0]})
        case _:
            return frozenset({"EdDSA"})


def _issuer_key(jwk: Mapping[str, Any]) -> IssuerKey:
    if jwk.get("use", "sig") != "sig":
        raise ValueError("it is not for signatures")
    operations = jwk.get("key_ops")
    if operations is not None and not (isinstance(operations, list) and "verify" in operations):
        raise ValueError("it is not for checking signatures")
    kind, key_id, algorithm = jwk.get("kty"), jwk.get("kid"), jwk.get("alg")
    make = _MAKERS.get(kind) if isinstance(kind, str) else None
    if make is None:
        raise ValueError(f"the type {str(kind)[:32]!r} is not supported")
    if key_id is not None and not isinstance(key_id, str):
        raise ValueError("its id is not a text")
    public = make(jwk)
    algorithms = _algorithms(public)
    if algorithm is not None:
        algorithms = algorithms & {algorithm} if isinstance(algorithm, str) else frozenset()
    if not algorithms:
        raise ValueError(f"the algorithm {str(algorithm)[:32]!r} does not fit it")
    return IssuerKey(public, algorithms, key_id)


def _rsa(jwk: Mapping[str, Any]) -> PublicKey:
    modulus, exponent = _number(jwk, "n"), _number(jwk, "e")
    if modulus.bit_length() > RSA_BITS_MAX or exponent > EXPONENT_MAX:
        raise ValueError("the RSA key is too large")
    return RSAPublicNumbers(exponent, modulus).public_key()


def _elliptic(jwk: Mapping[str, Any]) -> PublicKey:
    curve = jwk.get("crv")
    name = _JWK_CURVES.get(curve) if isinstance(curve, str) else None
    if name is None:
        raise ValueError(f"the curve {str(curve)[:32]!r} is not supported")
    # Raises ValueError for a point that is not on the curve.
    return EllipticCurvePublicNumbers(_number(jwk, "x"), _number(jwk, "y"), _CURVES[name][1]).public_key()


def _edwards(jwk: Mapping[str, Any]) -> PublicKey:
    if jwk.get("crv") != "Ed25519":
        raise ValueError(f"the curve {str(jwk.get('crv'))[:32]!r} is not supported")
    return Ed25519PublicKey.from_public_bytes(_octets(jwk, "x"))


_MAKERS: Final[Mapping[str, Callable[[Mapping[str, Any]], PublicKey]]] = {
    "RSA": _rsa, "EC": _elliptic, "OKP": _edwards,
}  # fmt: skip
"""Constructors by key type. `oct`, a shared secret, is excluded."""


def _number(jwk: Mapping[str, Any], name: str) -> int:
    return int.from_bytes(_octets(jwk, name), "big")


def _octets(jwk: Mapping[str, Any], name: str) -> bytes:
    value = jwk.get(name)
    if not isinstance(value, str):
        raise ValueError(f"its {name} is missing")
    try:
        return decoded_base64url(value)
    except (binascii.Error, UnicodeError):
        raise ValueError(f"its {name} is not base64url") from None


def decoded_base64url(text: str) -> bytes:
    """The octets of a text without padding; raises binascii.Error or UnicodeError.

    Strict, as the library's own decoder passes over characters that do not belong there.
    """
    data = text.encode("ascii")
    if b"+" in data or b"/" in data or b"=" in data:
        raise binascii.Error("not in the alphabet of base64url")
    return base64.b64decode(data + b"=" * (-len(data) % 4), altchars=b"-_", validate=True)
