"""What a region asks the authoritative one, and what it makes of a refusal."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import cast

import pytest
from yurt.agent.regions import FarAuthority, RegionLinks
from yurt.http.api_port import ApiPart, ApiPort, ApiRequest
from yurt.sdk.errors import Unavailable


class Guarded:
    """The API of a region that shows complete lists to one token only."""

    def api(self, region: str) -> ApiPort:
        return self

    async def ask(self, request: ApiRequest, body: AsyncIterator[bytes]) -> AsyncGenerator[ApiPart]:
        assert "complete=true" in request.path
        is_allowed = request.headers.get("X-Nomad-Token") == "root"
        yield ApiPart(status=200 if is_allowed else 403, headers={"X-Nomad-Index": "7"})
        yield ApiPart(data=b'[{"Name": "web"}]' if is_allowed else b"Permission denied")


async def test_the_replication_token_is_shown_to_the_authoritative_region() -> None:
    authority = FarAuthority(cast(RegionLinks, Guarded()), "east", token="root")
    pulled = await authority.namespaces(min_index=0, wait_s=1)
    assert (pulled.at, [row.name for row in pulled.rows]) == (7, ["web"])


async def test_a_refusal_of_the_authoritative_region_is_no_empty_list() -> None:
    authority = FarAuthority(cast(RegionLinks, Guarded()), "east")
    with pytest.raises(Unavailable, match="region east answered 403: Permission denied"):
        await authority.node_pools(min_index=0, wait_s=1)
