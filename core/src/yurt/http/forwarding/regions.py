"""Requests for another region, answered by one of its servers.

A request names its region in its query, or a job does in the body. What every region has alike (namespaces, quotas,
node pools and what access control stores) is changed in the authoritative region only, from where the others copy it.
A request that another region passed on is answered or refused; only a change that belongs to the authoritative region
goes on once more, to that one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from aiohttp import web

from yurt.http.errors import Refused
from yurt.http.forwarding.at_leader import READS
from yurt.http.forwarding_headers import BY_REGION, FIRST_HOP, FROM_REGION
from yurt.rpc.peer import ConnectionLost
from yurt.sdk.errors import NotFound

if TYPE_CHECKING:
    from yurt.http.api_port import ApiPort
    from yurt.http.call import Call

LOCAL = ("/v1/agent/", "/v1/metrics", "/v1/regions", "/ui")
"""Path prefixes that concern the agent itself, whichever region is named."""
OF_ANOTHER_AGENT = ("/v1/agent/monitor", "/v1/agent/host", "/v1/agent/pprof/")
"""Path prefixes that concern the agent that `node_id` or `server_id` names, which may be of another region."""
SHARED = (
    "/v1/namespace", "/v1/node/pool", "/v1/acl/policy", "/v1/acl/role", "/v1/acl/auth-method", "/v1/acl/binding-rule",
    "/v1/acl/bootstrap", "/v1/quota",
)  # fmt: skip
"""Path prefixes of objects that all regions share. Tokens are excluded: most belong to one region."""
NO_PATH = "No path to region"


class RegionApis(Protocol):
    """The HTTP APIs of the other regions."""

    def api(self, region: str) -> ApiPort:
        """The API of some server of a region; raises NotFound for an unreachable region."""
        ...


REGIONS: web.AppKey[RegionApis] = web.AppKey("yurt_regions", RegionApis)


class OtherRegion(Refused):
    """Another region answers this request; the text is for callers when none can be reached."""

    def __init__(self, region: str, *, is_authority: bool = False) -> None:
        super().__init__(500, NO_PATH)
        self.region = region
        self.is_authority = is_authority


def requested_region(request: web.Request, authority: str) -> str:
    """The region that a request names, or "" for the one reached; a change of what all share is the authority's.

    So what reaches the authority by way of the region that was named is not sent back there.
    """
    if request.path.startswith(LOCAL) and not _names_another_agent(request):
        return ""
    named = request.query.get("region", "")
    is_shared = request.method not in READS and request.path.startswith(SHARED)
    return authority if named and authority and is_shared else named


def _names_another_agent(request: web.Request) -> bool:
    return request.path.startswith(OF_ANOTHER_AGENT) and bool(
        request.query.get("node_id") or request.query.get("server_id")
    )


async def answer_from(request: web.Request, other: OtherRegion) -> web.StreamResponse:
    """Answer as the named region does; raises Refused with Nomad's words when it cannot be reached."""
    from yurt.http.forwarding.forward import forward

    region, came_from = other.region, request.headers.get(FROM_REGION)
    is_last = came_from is not None and not (other.is_authority and came_from == FIRST_HOP)
    if REGIONS not in request.app or is_last:
        raise OtherRegion(region)
    try:
        return await forward(request, request.app[REGIONS].api(region), by=BY_REGION, region=region)
    except NotFound:
        raise OtherRegion(region) from None
    except ConnectionLost as error:
        raise Refused(500, f"{NO_PATH}: {error}") from None


def need_authority(call: Call) -> None:
    """Leave a change to the region that decides for all of them; raises OtherRegion outside of it."""
    authority = call.server.config.authoritative_region
    if authority and authority != call.agent.region:
        raise OtherRegion(authority, is_authority=True)
