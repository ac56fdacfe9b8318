"""The form in which the authoritative region sends the rows that all regions share.

A region compares digests, so that an answer is short and indexes of two logs never meet. Secrets of tokens are in no
row: only their hashes.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

from yurt.sdk.value import Value, replace
from yurt.structs.acl import ACLAuthMethod

KEYS_MAX: Final = 64
"""The maximum number of rows per request; their keys stand in a URL."""
ROWS_BYTES_MAX: Final = 256 * 1024
"""The maximum size of the encoded rows of one answer, that of a command. A longer row is sent alone."""
_DIGEST_BYTES: Final = 16

encode_rows = msgspec.msgpack.Encoder().encode


class SharedDigests(Value, forbid_unknown_fields=True):
    """The digests of a table's shared rows by key, and the table's index (0: never written)."""

    index: int = msgspec.field(name="Index")
    digests: dict[str, str] = msgspec.field(name="Digests")


class SharedRows(Value, forbid_unknown_fields=True):
    """The requested rows, encoded one by one, and the keys of those beyond the answer's size."""

    rows: tuple[msgspec.Raw, ...] = msgspec.field(name="Rows")
    left: tuple[str, ...] = msgspec.field(name="Left")


def row_digest(row: Any) -> str:
    """The digest of a row without its indexes and without data sealed by a region's own root key.

    Both differ between regions. New secrets of a login method come with another modify time, which counts.
    """
    if isinstance(row, ACLAuthMethod):
        row = replace(row, key_id="", sealed_secrets=b"")
    content = encode_rows(replace(row, create_index=0, modify_index=0))
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()
