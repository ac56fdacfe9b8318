"""Publishes the OpenID Connect discovery document and the public keys (RFC 7517) for identity verification.

Both are public. Readers may cache the keys for half of the time until the newest one is due for rotation. Its successor
is published half a rotation period ahead, so a reader that obeys never meets a signature whose key it lacks.
"""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web

from yurt.http.answers import changed_view
from yurt.http.call import Call, json_answer, read_answer
from yurt.http.edge.browsers import looks_like_browser
from yurt.http.errors import Refused
from yurt.sdk.value import NANOSECONDS
from yurt.server.views.operator import RootKeyRows

MAX_AGE_MIN_S: Final = 900.0
JITTER: Final = 0.1
"""The largest random increase of an age, as a fraction, so that readers return at different times."""
JWKS: Final = "/.well-known/jwks.json"
DISABLED: Final = "OIDC Discovery endpoint disabled"


async def keys(call: Call) -> web.Response:
    """GET /.well-known/jwks.json: every key of the cluster, including those not used for signing now."""
    if not looks_like_browser(call.request.headers):  # a page of another site changes nothing by a GET
        await call.operations.root_keys.make_first()
    view, index = await changed_view(call, [RootKeyRows.watched()], lambda view: view.of(RootKeyRows).index)
    document = await call.operations.root_keys.jwks()
    response = read_answer(call, document, index)
    newest = max((key.create_time for key in view.of(RootKeyRows).oldest_first()), default=0)
    response.headers["Cache-Control"] = (
        f"public, max-age={_max_age_s(call, newest)}" if document["keys"] else "no-store"
    )
    return response


def _max_age_s(call: Call, newest: int) -> int:
    env = call.context.env
    remaining_s = (newest - env.now()) / NANOSECONDS + call.settings.root_key_rotation_s
    return round(max(remaining_s / 2 * (1 + JITTER * env.random()), MAX_AGE_MIN_S))


async def configuration(call: Call) -> web.Response:
    """GET /.well-known/openid-configuration; 404 where the servers have no `oidc_issuer`."""
    issuer = call.settings.oidc_issuer
    if not issuer:
        raise Refused(404, DISABLED)
    document: dict[str, Any] = {
        "issuer": issuer,
        "jwks_uri": f"{issuer.rstrip('/')}{JWKS}",
        "id_token_signing_alg_values_supported": ["RS256", "EdDSA"],
        "response_types_supported": ["code"],
        "subject_types_supported": ["public"],
    }
    return json_answer(call, document)
