"""Probes a service: a TCP connection or an HTTP request within the check's timeout."""

from __future__ import annotations

import asyncio
import ssl

from yurt.lifecycle.checks import OUTPUT_MAX, CheckOutcome, CheckSpec, http_outcome, refused, tcp_outcome
from yurt.sdk.value import NANOSECONDS


async def probe(spec: CheckSpec) -> CheckOutcome:
    """Probe once; never raises except for cancellation."""
    timeout_s = spec.timeout / NANOSECONDS
    try:
        async with asyncio.timeout(timeout_s):
            return await (_http(spec) if spec.kind == "http" else _tcp(spec))
    except TimeoutError:
        return refused(spec.kind, f"no answer within {timeout_s:g}s")
    except (OSError, ValueError, ssl.SSLError) as error:
        return refused(spec.kind, str(error) or type(error).__name__)


async def _tcp(spec: CheckSpec) -> CheckOutcome:
    _, writer = await asyncio.open_connection(spec.host, spec.port)
    writer.transport.abort()
    return tcp_outcome()


async def _http(spec: CheckSpec) -> CheckOutcome:
    """Send one HTTP request; a redirect counts as an answer, and only the shown part of the body is read."""
    import aiohttp

    host = f"[{spec.host}]" if ":" in spec.host else spec.host
    headers = [(name, value) for name, values in spec.header.items() for value in values]
    has_name = bool(spec.tls_server_name) and spec.protocol == "https"
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                spec.method,
                f"{spec.protocol}://{host}:{spec.port}/{spec.path.lstrip('/')}",
                headers=headers,
                data=spec.body.encode() if spec.body else None,
                allow_redirects=False,
                ssl=not spec.tls_skip_verify,
                server_hostname=spec.tls_server_name if has_name else None,
            ) as answer,
        ):
            return http_outcome(answer.status, (await answer.content.read(OUTPUT_MAX)).decode("utf-8", "replace"))
    except aiohttp.ClientError as error:
        return refused("http", str(error) or type(error).__name__)
