"""Publishes the expiry of an agent's certificate and of its authority, so that operators renew them in time.

A server publishes both in its member record, a client as attributes of its node; the files are read once a minute, so
that a renewed certificate counts without a restart. The overview warns of those that end within a month.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from yurt.agent.tls import TlsSettings
from yurt.rpc.certificates import authority_of, facts_of
from yurt.runtime.env import Env
from yurt.sdk.errors import Invalid
from yurt.sdk.value import Value

NAME: Final = "tls"
CHECK_S: Final = 60.0
log = logging.getLogger(__name__)


class CertificateEnds(Value):
    """Ends of validity, in seconds since 1970."""

    certificate: int
    authority: int


def certificate_ends(settings: TlsSettings) -> CertificateEnds:
    """The ends by the files as they are now; raises Invalid for a file that cannot be read."""
    try:
        certificate, authority = Path(settings.cert_file).read_bytes(), Path(settings.ca_file).read_bytes()
    except OSError as error:
        raise Invalid(f"{error.filename} cannot be read: {error.strerror}") from None
    signer = authority_of(certificate, authority)
    return CertificateEnds(
        certificate=int(facts_of(certificate).ends.timestamp()), authority=int(signer.ends.timestamp())
    )


async def ends_over_time(settings: TlsSettings, env: Env) -> AsyncIterator[CertificateEnds]:
    """The ends, first at once and again after each renewal; files that cannot be used are logged and left aside."""
    known: CertificateEnds | None = None
    is_logged = False
    while True:
        try:
            found: CertificateEnds | None = await env.in_thread(partial(certificate_ends, settings))
            is_logged = False
        except Invalid as error:
            found = known
            if not is_logged:
                log.warning("the end of the agent's certificate is unknown: error=%s", error)
            is_logged = True
        if found is not None and found != known:
            known = found
            yield found
        await env.sleep(CHECK_S)


class TlsFingerprint:
    """The ends as attributes `unique.tls.certificate_ends` and `unique.tls.authority_ends` of the node."""

    name = NAME

    def __init__(self, settings: TlsSettings, env: Env) -> None:
        self._settings = settings
        self._env = env

    async def fingerprint(self) -> AsyncIterator[Mapping[str, str]]:
        """The attributes, again after each renewal."""
        async for ends in ends_over_time(self._settings, self._env):
            yield {
                "unique.certificate_ends": _text(ends.certificate),
                "unique.authority_ends": _text(ends.authority),
            }

    async def close(self) -> None:
        """There is nothing to free."""


def _text(seconds: int) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
