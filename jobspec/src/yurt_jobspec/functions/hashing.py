"""Digests, UUIDs, and the two functions that use keys."""

from __future__ import annotations

import base64
import binascii
import ctypes
import ctypes.util
import hashlib
import re
import secrets
import uuid

from .registry import Arguments, FunctionError

_NAMESPACES = {
    "dns": uuid.NAMESPACE_DNS,
    "url": uuid.NAMESPACE_URL,
    "oid": uuid.NAMESPACE_OID,
    "x500": uuid.NAMESPACE_X500,
}
_BCRYPT_ALPHABET = "./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_PEM = re.compile(r"-----BEGIN (RSA )?PRIVATE KEY-----(.*?)-----END", re.DOTALL)
_MAX_BCRYPT_COST = 15
_MAX_KEY_BITS = 8192


def _digest(name: str, text: str) -> str:
    try:
        return hashlib.new(name, text.encode()).hexdigest()
    except ValueError:
        raise FunctionError(f"{name} is not available on this system") from None


def md5(args: Arguments) -> str:
    return _digest("md5", args[0])


def sha1(args: Arguments) -> str:
    return _digest("sha1", args[0])


def sha256(args: Arguments) -> str:
    return _digest("sha256", args[0])


def sha512(args: Arguments) -> str:
    return _digest("sha512", args[0])


def uuidv4(args: Arguments) -> str:
    return str(uuid.UUID(bytes=secrets.token_bytes(16), version=4))


def uuidv5(args: Arguments) -> str:
    namespace = _NAMESPACES.get(args[0])
    if namespace is None:
        try:
            namespace = uuid.UUID(args[0])
        except ValueError:
            raise FunctionError("the namespace must be dns, url, oid, x500 or a UUID", 0) from None
    return str(uuid.uuid5(namespace, args[1]))


def bcrypt(args: Arguments) -> str:
    """A password hash from the system's crypt library."""
    cost = args[1] if len(args) > 1 else 10
    if not isinstance(cost, int) or not 4 <= cost <= _MAX_BCRYPT_COST:
        raise FunctionError(f"the cost must be a whole number between 4 and {_MAX_BCRYPT_COST}", 1)
    if len(args[0].encode()) > 72:
        raise FunctionError("bcrypt takes 72 bytes at most", 0)
    if "\0" in args[0]:
        raise FunctionError("bcrypt takes no text with a NUL in it", 0)
    salt = "".join(secrets.choice(_BCRYPT_ALPHABET) for _ in range(21)) + secrets.choice(".Oeu")
    hashed = _crypt(args[0], f"$2a${cost:02d}${salt}")
    if not hashed.startswith("$2a$"):
        raise FunctionError("bcrypt is not available on this system")
    return hashed


def _crypt(text: str, setting: str) -> str:
    name = ctypes.util.find_library("crypt")
    if name is None:
        return ""
    function = ctypes.CDLL(name).crypt
    function.restype = ctypes.c_char_p
    result: bytes | None = function(text.encode(), setting.encode())
    return (result or b"").decode()


def rsadecrypt(args: Arguments) -> str:
    """Decrypt base64 text with a PEM private key, PKCS#1 v1.5 padding."""
    try:
        cipher = base64.b64decode(args[0], validate=True)
    except binascii.Error:
        raise FunctionError("the ciphertext is not base64", 0) from None
    modulus, exponent = _private_key(args[1])
    size = (modulus.bit_length() + 7) // 8
    number = int.from_bytes(cipher, "big")
    if len(cipher) != size or number >= modulus:
        raise FunctionError("the ciphertext does not fit the key", 0)
    block = pow(number, exponent, modulus).to_bytes(size, "big")
    end = block.find(b"\0", 2)
    if block[:2] != b"\0\2" or end < 10:
        raise FunctionError("failed to decrypt", 0)
    try:
        return block[end + 1 :].decode()
    except UnicodeDecodeError:
        raise FunctionError("the decrypted bytes are not UTF-8 text", 0) from None


def bcrypt_work(args: Arguments) -> int:
    """The cost of a call of bcrypt, in elements of the work budget; two seconds use all of it."""
    cost = args[1] if len(args) > 1 else 10
    return 24 * 2**cost if isinstance(cost, int) and 4 <= cost <= _MAX_BCRYPT_COST else 0


def rsadecrypt_work(args: Arguments) -> int:
    """The cost of a call of rsadecrypt, from the length of the ciphertext, which equals the key's."""
    kilobits = min(len(args[0]) * 6, _MAX_KEY_BITS) // 1024 + 1
    return 1000 * kilobits**3


def _private_key(pem: str) -> tuple[int, int]:
    """(modulus, private exponent) of a PKCS#1 or PKCS#8 key."""
    found = _PEM.search(pem)
    if found is None:
        raise FunctionError("no PEM private key found", 1)
    try:
        der = base64.b64decode(found[2])
        fields = _sequence(der)
        if not found[1]:
            fields = _sequence(fields[2])
        modulus, exponent = (int.from_bytes(field, "big") for field in (fields[1], fields[3]))
    except (binascii.Error, IndexError, ValueError):
        raise FunctionError("the private key cannot be read", 1) from None
    if not 256 <= modulus.bit_length() <= _MAX_KEY_BITS or exponent >= modulus:
        raise FunctionError("the private key has an unsupported size", 1)
    return modulus, exponent


def _sequence(der: bytes) -> list[bytes]:
    """The contents of the elements of a DER sequence."""
    _, content, _ = _element(der, 0)
    fields: list[bytes] = []
    at = 0
    while at < len(content):
        _, field, at = _element(content, at)
        fields.append(field)
    return fields


def _element(der: bytes, at: int) -> tuple[int, bytes, int]:
    tag, length, at = der[at], der[at + 1], at + 2
    if length & 0x80:
        count = length & 0x7F
        length, at = int.from_bytes(der[at : at + count], "big"), at + count
    if at + length > len(der):
        raise ValueError("an element reaches beyond the end")
    return tag, der[at : at + length], at + length
