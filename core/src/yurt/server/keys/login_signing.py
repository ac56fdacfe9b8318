"""Signs client assertions (RFC 7523): the JWTs by which Yurt proves to a provider which client it is.

The key is a private key, the client's secret (HMAC), or the cluster's active root key, whose public half providers
read at `/.well-known/jwks.json`.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509 import load_pem_x509_certificate

from yurt.runtime.compact_jwt import Sign, base64url
from yurt.sdk.errors import Invalid

RS256: Final = "RS256"
PrivateKey = RSAPrivateKey | EllipticCurvePrivateKey
RSA_BITS_MIN: Final = 2048
_CURVE_OF: Final = {"ES256": "secp256r1", "ES384": "secp384r1", "ES512": "secp521r1"}
_HASHES: Final = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}


def key_of_pem(pem: str, algorithm: str) -> PrivateKey:
    """The private key in a PEM text; raises Invalid, without any part of the text, unless it fits the algorithm."""
    algorithm = algorithm or RS256
    try:
        key = load_pem_private_key(pem.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise Invalid("it is not a private key in PEM without a password") from None
    if algorithm in _CURVE_OF:
        if not isinstance(key, EllipticCurvePrivateKey) or key.curve.name != _CURVE_OF[algorithm]:
            raise Invalid(f"{algorithm} needs an EC key on the curve {_CURVE_OF[algorithm]}")
        return key
    if not isinstance(key, RSAPrivateKey) or key.key_size < RSA_BITS_MIN:
        raise Invalid(f"{algorithm} needs an RSA key of {RSA_BITS_MIN} bits or more")
    return key


def private_signer(key: PrivateKey, algorithm: str) -> Sign:
    """Signs with a private key."""
    digest = _HASHES[algorithm[2:]]

    def sign(data: bytes) -> bytes:
        if isinstance(key, EllipticCurvePrivateKey):
            size = (key.curve.key_size + 7) // 8
            return b"".join(part.to_bytes(size, "big") for part in decode_dss_signature(key.sign(data, ECDSA(digest))))
        is_pss = algorithm.startswith("PS")
        scheme = padding.PSS(padding.MGF1(digest), digest.digest_size) if is_pss else padding.PKCS1v15()
        return key.sign(data, scheme, digest)

    return sign


def secret_signer(secret: str, algorithm: str) -> Sign:
    """Signs with the client's secret."""
    return lambda data: hmac.digest(secret.encode(), data, f"sha{algorithm[2:]}")


def thumbprint(pem: str, header: str) -> str:
    """The digest of a certificate for `x5t` (SHA-1) or `x5t#S256`; raises Invalid."""
    try:
        certificate = load_pem_x509_certificate(pem.encode())
    except (ValueError, UnsupportedAlgorithm):
        raise Invalid("it is not a certificate in PEM") from None
    # RFC 7515 fixes SHA-1 for x5t: it names the certificate, and protects nothing.
    digest = hashes.SHA1() if header == "x5t" else hashes.SHA256()
    return base64url(certificate.fingerprint(digest)).decode()


def challenge_of(verifier: str) -> str:
    """The PKCE challenge of a verifier (RFC 7636, S256)."""
    return base64url(hashlib.sha256(verifier.encode()).digest()).decode()
