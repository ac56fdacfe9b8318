"""AWS Signature Version 4 for reading one object of an S3-compatible store; pure.

The rule is Amazon's "Signature calculations for the Authorization header": a canonical request, a string to sign, and
a key made of date, region and service.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
from collections.abc import Mapping
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from yurt.client.artifacts.sources import S3Access

ALGORITHM = "AWS4-HMAC-SHA256"
SERVICE = "s3"
EMPTY_DIGEST = hashlib.sha256(b"").hexdigest()


def signed_headers(
    url: str, access: S3Access, now: datetime.datetime, *, headers: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The headers for a signed GET of the address; the given headers are included in the signature."""
    parts = urlsplit(url)
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    signed = {name.lower(): value.strip() for name, value in (headers or {}).items()}
    signed |= {"host": parts.netloc, "x-amz-content-sha256": EMPTY_DIGEST, "x-amz-date": stamp}
    if access.token:
        signed["x-amz-security-token"] = access.token
    names = ";".join(sorted(signed))
    canonical = "\n".join((
        "GET",
        quote(unquote(parts.path), safe="/-_.~") or "/",
        _canonical_query(parts.query),
        *(f"{name}:{signed[name]}" for name in sorted(signed)),
        "",
        names,
        EMPTY_DIGEST,
    ))  # fmt: skip
    scope = f"{stamp[:8]}/{access.region}/{SERVICE}/aws4_request"
    text = "\n".join((ALGORITHM, stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()))
    signature = hmac.new(_key(access, stamp[:8]), text.encode(), hashlib.sha256).hexdigest()
    authorization = f"{ALGORITHM} Credential={access.key_id}/{scope}, SignedHeaders={names}, Signature={signature}"
    return {**{name: value for name, value in signed.items() if name != "host"}, "Authorization": authorization}


def _canonical_query(query: str) -> str:
    pairs = sorted(
        (quote(name, safe="-_.~"), quote(value, safe="-_.~"))
        for name, value in parse_qsl(query, keep_blank_values=True)
    )
    return "&".join(f"{name}={value}" for name, value in pairs)


def _key(access: S3Access, day: str) -> bytes:
    key = f"AWS4{access.secret}".encode()
    for part in (day, access.region, SERVICE, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key
