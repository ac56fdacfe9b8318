"""Writes signed JSON Web Tokens in compact form (RFC 7515, section 3.1)."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

Sign = Callable[[bytes], bytes]


def signed_jwt(header: Mapping[str, str], claims: Mapping[str, Any], sign: Sign) -> str:
    """A JWT in compact form; `sign` signs the encoded header and claims with the algorithm that the header names."""
    body = b".".join(base64url(msgspec.json.encode(part)) for part in (header, claims))
    return (body + b"." + base64url(sign(body))).decode()


def base64url(data: bytes) -> bytes:
    """Base64 in the alphabet for URLs (RFC 4648, section 5), without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=")
