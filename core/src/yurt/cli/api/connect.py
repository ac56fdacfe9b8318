"""The API client that flags and environment describe; flags win."""

from __future__ import annotations

from collections.abc import Mapping

from yurt.cli.api.answer_limits import AnswerLimits
from yurt.cli.api.client import AgentAddress, ApiClient
from yurt.cli.errors import UsageError
from yurt.cli.flags import Flags

DEFAULT_ADDRESS = "http://127.0.0.1:4646"
OTHER_ANSWERS = AnswerLimits(bytes_max=256 * 1024 * 1024, seconds_max=300.0)
"""The limits of another cluster's answers. 100,000 allocations take about 150 MiB."""


def connect_elsewhere(flags: Flags, address: str) -> ApiClient:
    """A client of another cluster: only flags apply to it.

    The environment describes this cluster. Its token, password and client certificate are secrets that another host
    must not get, and its region, namespace and trust say nothing about the other one.
    """
    return _client(flags, {}, address, limits=OTHER_ANSWERS)


def connect(flags: Flags, environ: Mapping[str, str]) -> ApiClient:
    """Create the client; sends nothing before the first request."""
    return _client(flags, environ, flags.text("address") or environ.get("NOMAD_ADDR", "") or DEFAULT_ADDRESS)


def _client(flags: Flags, environ: Mapping[str, str], address: str, *, limits: AnswerLimits | None = None) -> ApiClient:

    def pick(flag: str, variable: str) -> str:
        return flags.text(flag) or environ.get(variable, "")

    skip_verify = environ.get("NOMAD_SKIP_VERIFY", "").lower() in ("1", "t", "true")
    try:
        return ApiClient(
            AgentAddress(
                address=address,
                token=pick("token", "NOMAD_TOKEN"),
                namespace=pick("namespace", "NOMAD_NAMESPACE"),
                region=pick("region", "NOMAD_REGION"),
                http_auth=environ.get("NOMAD_HTTP_AUTH", ""),
                ca_cert=pick("ca-cert", "NOMAD_CACERT"),
                ca_path=pick("ca-path", "NOMAD_CAPATH"),
                client_cert=pick("client-cert", "NOMAD_CLIENT_CERT"),
                client_key=pick("client-key", "NOMAD_CLIENT_KEY"),
                tls_server_name=pick("tls-server-name", "NOMAD_TLS_SERVER_NAME"),
                is_insecure=skip_verify or flags.is_on("insecure") or flags.is_on("tls-skip-verify"),
            ),
            limits=limits,
        )
    except ValueError as error:
        raise UsageError(str(error)) from None
