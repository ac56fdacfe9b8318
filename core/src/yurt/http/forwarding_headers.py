"""Headers with which agents mark forwarded requests and responses."""

from __future__ import annotations

from typing import Final

FROM_NODE: Final = "X-Yurt-From-Node"
"""Marks requests that arrived over a node's connection; the accepting server sets it and ignores a received one."""
OWN_HEADERS: Final = "x-yurt-"
"""Prefixes of headers that agents set, in lower case; a node's connection carries none of the caller's."""
ORIGIN: Final = "X-Yurt-Origin"
"""The origin of a forwarded request, sealed by this agent for its own HTTP API (`yurt.http.authentication`). It never
leaves the agent."""
FORWARDED: Final = "X-Yurt-Forwarded"
"""How far a request has come: `client` by an agent without a server, `server` by a server that did not lead, `region`
from another region."""
BY_CLIENT: Final = "client"
BY_SERVER: Final = "server"
BY_REGION: Final = "region"
FROM_REGION: Final = "X-Yurt-From-Region"
"""A request with this header came from another region, however it went on since. It goes to no third one, except once
to the authoritative region."""
FIRST_HOP: Final = "1"
SECOND_HOP: Final = "2"
NOT_LEADING: Final = "X-Yurt-Not-Leading"
"""Marks an answer without content: there was no leader, and the request was not carried out."""
