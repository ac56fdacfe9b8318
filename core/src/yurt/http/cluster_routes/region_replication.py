"""Serves the rows that all regions share to the servers of other regions, which replicate them.

Only a server of another region may ask, over the connection between regions and with a management token of this one.
The answer holds only hashes of tokens' secrets, but the secrets of login methods, without which nobody could log in
there.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from aiohttp import web

from yurt.access import Through
from yurt.http.answers import changed_view
from yurt.http.call import Call, read_headers
from yurt.http.errors import Refused
from yurt.sdk.value import Value
from yurt.server.views.region_replication import SHARED_KINDS, SharedKind
from yurt.structs.acl import ACLAuthMethod
from yurt.structs.shared_rows import KEYS_MAX, ROWS_BYTES_MAX, SharedDigests, SharedRows, encode_rows, row_digest

SLICE: Final = 200
"""Rows of one turn: a policy may be long."""


async def digests(call: Call) -> web.Response:
    """GET /v1/regions/shared/:table: the digest of each shared row."""
    kind = _kind(call)
    view, index = await changed_view(call, [kind.rows.watched()], lambda view: view.of(kind.rows).index)
    by_key: dict[str, str] = {}
    listing = view.of(kind.rows).all().where(kind.is_shared)
    async for part in call.turns.slices(listing.rows, SLICE):
        by_key.update((kind.key_of(row), row_digest(row)) for row in listing.among(part))
    return _packed(call, SharedDigests(index=index, digests=by_key), index)


async def rows(call: Call) -> web.Response:
    """GET /v1/regions/shared/:table/rows: the rows whose keys are named."""
    kind = _kind(call)
    keys = call.query.getall("key", [])
    if len(keys) > KEYS_MAX:
        raise Refused(400, f"{len(keys)} keys were asked for at once: the limit is {KEYS_MAX}")
    table = call.view().of(kind.rows)
    packed: list[msgspec.Raw] = []
    size, remaining = 0, list(keys)
    while remaining and size < ROWS_BYTES_MAX:
        row = table.get(remaining.pop(0))
        if row is not None and kind.is_shared(row):
            encoded = encode_rows(_shown(call, row))
            packed.append(msgspec.Raw(encoded))
            size += len(encoded)
    return _packed(call, SharedRows(rows=tuple(packed), left=tuple(remaining)), table.index)


def _shown(call: Call, row: Any) -> Any:
    """The row as another region stores it: decrypted, because root keys differ between regions."""
    return call.operations.acl_policies.shared_auth_method(row) if isinstance(row, ACLAuthMethod) else row


def _kind(call: Call) -> SharedKind:
    """The requested table; raises Refused when it is not replicated."""
    if call.actor.origin.through is not Through.REGION:
        raise Refused(403, "only a server of another region may copy what all regions share")
    kind = SHARED_KINDS.get(call.part("table"))
    if kind is None:
        raise Refused(404, f'regions share no table "{call.part("table")[:64]}"')
    if kind.needs_acl:
        call.need_acl()
    return kind


def _packed(call: Call, value: Value, index: int) -> web.Response:
    headers = read_headers(call, index)
    return web.Response(body=encode_rows(value), content_type="application/msgpack", headers=headers)
