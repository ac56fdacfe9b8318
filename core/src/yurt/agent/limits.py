"""The agent's `limits` block, and the limit of open files that many connections require."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING, Any

from yurt.rpc.limits import RpcLimits
from yurt.sdk.errors import Invalid
from yurt.sdk.value import Value

if TYPE_CHECKING:
    from yurt.agent.config import AgentConfig

TLS_HANDSHAKE_S = 5.0
CONNECTIONS_PER_CLIENT = 100


class HttpLimits(Value):
    """What the HTTP API accepts from one address; 0 means no limit."""

    handshake_s: float = TLS_HANDSHAKE_S
    """`limits.https_handshake_timeout`"""
    per_address_max: int = CONNECTIONS_PER_CLIENT
    """`limits.http_max_conns_per_client`"""


def http_limits(config: AgentConfig) -> HttpLimits:
    """The limits of the HTTP API; raises Invalid for a negative one."""
    handshake_s, per_address = _given(config, "https_handshake_timeout", "http_max_conns_per_client")
    return HttpLimits(handshake_s=handshake_s, per_address_max=per_address)


def rpc_limits(config: AgentConfig) -> RpcLimits:
    """The limits of the port for other agents; raises Invalid for a negative one."""
    handshake_s, per_address = _given(config, "rpc_handshake_timeout", "rpc_max_conns_per_client")
    return RpcLimits(handshake_s=handshake_s, per_address_max=per_address)


def raise_file_limit() -> int:
    """Raise this process's limit of open files to the hard limit, where the system allows it; returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            return soft
    return hard


def _given(config: AgentConfig, timeout: str, count: str) -> tuple[float, int]:
    from yurt.agent.config import seconds_of

    given: dict[str, Any] = config.raw.get("limits", {})
    seconds, most = seconds_of(given.get(timeout), TLS_HANDSHAKE_S), given.get(count, CONNECTIONS_PER_CLIENT)
    for name, value in ((timeout, seconds), (count, most)):
        if value < 0:
            raise Invalid(f"limits.{name} must be 0 (no limit) or more")
    return seconds, most
