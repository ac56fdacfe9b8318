"""The actor of a request: its address, its certificate, and the agent that forwarded it."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from yurt.access import Actor, Origin, Through
from yurt.http.marks import FORWARDED, FROM_NODE

_PASSED_ON: Final = {each.value: each for each in (Through.CLIENT, Through.SERVER, Through.REGION)}


def actor_of(request: web.Request) -> Actor:
    """The actor of a request: everybody, until access control exists.

    The marks of agents only take something away: of a request that carries one the address is not believed.
    """
    through = _through(request)
    if through is not Through.NOBODY:
        return Actor(origin=Origin(through=through))
    return Actor(origin=Origin(address=request.remote or "", certificate_name=_certificate_name(request)))


def _through(request: web.Request) -> Through:
    headers = request.headers
    if FROM_NODE in headers:
        return Through.NODE
    mark = headers.get(FORWARDED)
    return Through.NOBODY if mark is None else _PASSED_ON.get(mark, Through.CLIENT)


def _certificate_name(request: web.Request) -> str:
    """The common name of the certificate that TLS has verified."""
    certificate = request.get_extra_info("peercert")
    if not certificate:
        return ""
    parts = (pair for part in certificate.get("subject", ()) for pair in part)
    return next((value for name, value in parts if name == "commonName"), "")
