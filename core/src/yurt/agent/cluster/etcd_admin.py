"""The calls about etcd members, made at this server's own one; imported only where there is one, for it needs gRPC."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from yurt.agent.cluster.voters import Voter
from yurt.storage.etcd.client import EtcdClient
from yurt.storage.etcd.members import (
    add_member,
    list_members,
    member_status,
    remove_member,
    update_member,
)


class OwnEtcdAdmin:
    """`EtcdAdmin` at the own member's endpoint; `url_of` makes peer URLs of addresses."""

    def __init__(self, endpoint: str, url_of: Callable[[str], str]) -> None:
        self._client = EtcdClient((endpoint,))
        self._url_of = url_of

    async def voters(self) -> tuple[Voter, ...]:
        """All members."""
        peers = await list_members(self._client)
        return tuple(
            Voter(id=f"{peer.id:x}", name=peer.name, address=urlsplit(next(iter(peer.peer_urls), "")).netloc)
            for peer in peers
        )

    async def add(self, address: str) -> None:
        """Take a member in."""
        await add_member(self._client, self._url_of(address))

    async def remove(self, voter_id: str) -> None:
        """Put a member out."""
        await remove_member(self._client, int(voter_id, 16))

    async def move(self, voter_id: str, address: str) -> None:
        """Tell where a member is reached from now on."""
        await update_member(self._client, int(voter_id, 16), self._url_of(address))

    async def db_bytes(self) -> int:
        """How much of the quota the data takes."""
        return (await member_status(self._client)).size

    async def close(self) -> None:
        """Free the connection."""
        await self._client.close()
