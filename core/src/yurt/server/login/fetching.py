"""Requests to providers: one request each, with bounds of time and size, over TLS that the login method trusts.

The first address of a provider is the operator's. Those that its document names are as far from plain HTTP and from
this host as the operator's own (`endpoint_problem`), so that a provider leads no request into the servers' network in
the clear. A redirect is an error: it would lead past that check.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import aiohttp

from yurt.acl.validation import is_loopback, url_problem
from yurt.runtime.env import Env
from yurt.sdk.errors import Reason, Unavailable
from yurt.structs.acl import ACLAuthMethod

log = logging.getLogger(__name__)

FETCH_S: Final = 10.0
"""The time limit of one answer in seconds, connection included."""
DOCUMENT_BYTES_MAX: Final = 256 * 1024
PIECE_BYTES: Final = 16 * 1024
REDIRECTS: Final = range(300, 400)


class ProviderAnswer(NamedTuple):
    """An answer with any status except a redirect."""

    status: int
    content_type: str
    body: bytes


class Fetcher:
    """Sends requests to the providers of login methods."""

    def __init__(self, env: Env) -> None:
        self._env = env

    async def get(self, method: ACLAuthMethod, url: str, trust: ssl.SSLContext, *, bearer: str = "") -> ProviderAnswer:
        """GET; raises Unavailable without naming the address, which the log names."""
        headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
        return await self._ask(method, "GET", url, trust, headers=headers)

    async def post(
        self, method: ACLAuthMethod, url: str, trust: ssl.SSLContext, *,
        form: Mapping[str, str], headers: Mapping[str, str],
    ) -> ProviderAnswer:  # fmt: skip
        """POST of a form; raises Unavailable likewise."""
        return await self._ask(method, "POST", url, trust, headers=headers, form=form)

    async def _ask(
        self, method: ACLAuthMethod, verb: str, url: str, trust: ssl.SSLContext, *,
        headers: Mapping[str, str], form: Mapping[str, str] | None = None,
    ) -> ProviderAnswer:  # fmt: skip
        try:
            async with self._env.timeout(FETCH_S):
                return await _response(verb, url, trust, headers, form)
        except TimeoutError:
            why = f"no whole answer within {FETCH_S:g} s"
        except _Refused as error:
            why = str(error)
        except aiohttp.ClientConnectorCertificateError as error:
            why = f"its certificate is not trusted: {error.certificate_error}"
        except aiohttp.ClientError as error:
            # The caller has not logged in: what the servers' network says is for the log.
            is_unreached = isinstance(error, aiohttp.ClientConnectionError)
            why = (
                f"{'it cannot be reached' if is_unreached else 'its answer cannot be read'}; the server's log says why"
            )
            log.info("login provider cannot be asked: method=%s url=%s error=%s", method.name, shown(url), error)
        except (OSError, ValueError) as error:
            why = f"{type(error).__name__}"
        log.warning("login provider failed: method=%s url=%s error=%s", method.name, shown(url), why)
        raise provider_failed(method, why)


class _Refused(Exception):
    """A rejected answer."""


async def _response(
    verb: str, url: str, trust: ssl.SSLContext, headers: Mapping[str, str], form: Mapping[str, str] | None
) -> ProviderAnswer:
    # A compressed body could grow past the bound in one piece, so it is neither requested nor accepted.
    plain = {**headers, "Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "yurt"}
    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False) as session,
        session.request(verb, url, headers=plain, data=form, ssl=trust, allow_redirects=False) as answer,
    ):
        if answer.status in REDIRECTS:
            raise _Refused(f"status {answer.status}: redirects are not followed, configure the address it leads to")
        if answer.headers.get("Content-Encoding", "identity") != "identity":
            raise _Refused("a compressed answer, which was not asked for")
        body = bytearray()
        while piece := await answer.content.read(PIECE_BYTES):
            body += piece
            if len(body) > DOCUMENT_BYTES_MAX:
                raise _Refused(f"an answer longer than {DOCUMENT_BYTES_MAX} bytes")
        return ProviderAnswer(answer.status, answer.content_type, bytes(body))


def provider_failed(method: ACLAuthMethod, why: str) -> Unavailable:
    """The error of a login whose provider failed; `why` must not contain a secret."""
    return Unavailable(f'the provider of auth-method "{method.name}" failed: {why}', reason=Reason.UNAVAILABLE)


def endpoint_problem(url: str, discovery_url: str) -> str:
    """The reason why an address in a provider's document is rejected, or ""; only a local provider may name a local
    one."""
    why = url_problem(url)
    if not why and urlsplit(url).scheme == "http" and not is_local(discovery_url):
        return "is plain HTTP, which is only for providers on this host"
    return why


def is_local(url: str) -> bool:
    """Whether an address is one of this host."""
    return is_loopback(urlsplit(url).hostname or "")


def shown(url: str) -> str:
    """An address for the log, without its query."""
    return url.partition("?")[0][:256]
