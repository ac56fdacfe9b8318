"""The ciphers and signatures of root keys and one-time secrets.

Only functions import this module: the library behind it takes 8 MB of memory and 40 ms, and the server of a dev agent
needs it with its first variable, workload identity or one-time token.
"""

from __future__ import annotations

import base64
from typing import Final, TypeAlias

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BITS: Final = 2048
RS256: Final = "RS256"
EDDSA: Final = "EdDSA"

SigningKey: TypeAlias = rsa.RSAPrivateKey | Ed25519PrivateKey


class Undecryptable(Exception):
    """Raised for a ciphertext, nonce or context that was changed, and for another secret."""


def encrypted(secret: bytes, text: bytes, *, nonce: bytes, context: bytes) -> bytes:
    """The ciphertext by AES-GCM, which can be decrypted only with the same nonce and context."""
    return AESGCM(secret).encrypt(nonce, text, context)


def decrypted(secret: bytes, data: bytes, *, nonce: bytes, context: bytes) -> bytes:
    """The plaintext; raises Undecryptable."""
    try:
        return AESGCM(secret).decrypt(nonce, data, context)
    except (InvalidTag, ValueError):
        raise Undecryptable from None


def new_pem() -> bytes:
    """A new RSA key."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=KEY_BITS)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def rsa_key(pem: bytes) -> SigningKey | None:
    """The RSA key of a PEM; None for a key of another type. Raises ValueError for anything else."""
    loaded = serialization.load_pem_private_key(pem, password=None)
    return loaded if isinstance(loaded, rsa.RSAPrivateKey) else None


def ed25519_key(seed: bytes) -> SigningKey:
    """The Ed25519 key of a seed of 32 bytes."""
    return Ed25519PrivateKey.from_private_bytes(seed)


def algorithm_of(key: SigningKey) -> str:
    """The only algorithm with which a key signs."""
    return EDDSA if isinstance(key, Ed25519PrivateKey) else RS256


def signature(key: SigningKey, data: bytes) -> bytes:
    """The signature of the data."""
    if isinstance(key, Ed25519PrivateKey):
        return key.sign(data)
    return key.sign(data, padding.PKCS1v15(), hashes.SHA256())


def is_signed(key: SigningKey, signed: bytes, data: bytes) -> bool:
    """Whether `signed` is a signature of the data by this key."""
    try:
        if isinstance(key, Ed25519PrivateKey):
            key.public_key().verify(signed, data)
        else:
            key.public_key().verify(signed, data, padding.PKCS1v15(), hashes.SHA256())
    except InvalidSignature:
        return False
    return True


def public_jwk(key: SigningKey) -> dict[str, str]:
    """The fields of a JSON Web Key that describe the public key."""
    if isinstance(key, Ed25519PrivateKey):
        return {"kty": "OKP", "crv": "Ed25519", "x": _base64url(key.public_key().public_bytes_raw())}
    numbers = key.public_key().public_numbers()
    return {"kty": "RSA", "n": _base64url(_magnitude(numbers.n)), "e": _base64url(_magnitude(numbers.e))}


def _magnitude(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 7) // 8, "big")


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
