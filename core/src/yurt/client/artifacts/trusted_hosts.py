"""Decides which object stores get the operator's S3 keys. Pure.

A job names the host of its artifact. A request signed with the operator's keys acts for the operator, carries the
operator's key id and session token, and can be replayed by anybody on the path without TLS. So the keys sign only
requests to Amazon's own hosts, by https at the default port, and to hosts that the operator has listed.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

from yurt.sdk.errors import Invalid

SETTING: Final = "client artifact s3_trusted_hosts"
PORTS: Final = {"http": 80, "https": 443}
AMAZON: Final = re.compile(
    r"(?:[a-z0-9.-]+\.)?s3(?:-accesspoint)?(?:-fips)?(?:\.dualstack)?"
    r"(?:[.-][a-z]{2}(?:-[a-z]+)+-[0-9]+)?\.amazonaws\.com(?:\.cn)?"
)
"""Amazon's hosts of S3. Others under amazonaws.com, such as load balancers, belong to Amazon's customers."""

Origin = tuple[str, str, int]


def checked_trusted_host(text: str) -> str:
    """An entry of the setting: `HOST`, `HOST:PORT`, or either after `http://` or `https://`; raises Invalid."""
    if _listed_origin(text) is None:
        raise Invalid(
            f"{SETTING}: {text!r} is not a host; write a name or an address, with its port where that is not 443, for "
            'example "minio.example.com:9000", or "http://minio.example.com:9000" for a store without TLS'
        )
    return text


def may_have_keys(url: str, hosts: Collection[str]) -> bool:
    """Whether the operator's keys may sign a request to an address; `hosts` are the entries of the setting."""
    origin = _origin(url)
    if origin is None:
        return False
    is_amazon = origin[0] == "https" and origin[2] == PORTS["https"] and AMAZON.fullmatch(origin[1]) is not None
    return is_amazon or any(origin == _listed_origin(entry) for entry in hosts)


def _listed_origin(entry: str) -> Origin | None:
    url = entry if "://" in entry else f"https://{entry}"
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    is_bare = not (parts.path or parts.query or parts.fragment or "@" in parts.netloc or "*" in parts.netloc)
    return _origin(url) if is_bare and not re.search(r"\s", entry) else None


def _origin(url: str) -> Origin | None:
    """Scheme, host and port; None where the address has none."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in PORTS or not parts.hostname or port == 0:
        return None
    return parts.scheme, parts.hostname, port or PORTS[parts.scheme]
