"""Signs the assertion by which a Google service account asks for a token (RFC 7523, RS256)."""

from __future__ import annotations

from collections.abc import Mapping

from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from yurt.runtime.compact_jwt import signed_jwt


def signed_assertion(claims: Mapping[str, str | int], *, key_pem: str, key_id: str) -> str:
    """A compact JWT of the claims; raises ValueError when the key is not an RSA key in PEM."""
    key = load_pem_private_key(key_pem.encode(), password=None)
    if not isinstance(key, RSAPrivateKey):
        raise ValueError("private_key is not an RSA key")
    header = {"alg": "RS256", "typ": "JWT", **({"kid": key_id} if key_id else {})}
    return signed_jwt(header, claims, lambda data: key.sign(data, PKCS1v15(), SHA256()))
