"""Membership calls to this server's own etcd member; imported only where there is one, because it needs gRPC."""

from __future__ import annotations

from urllib.parse import urlsplit

from yurt.agent.cluster.voters import Reach, Voter, peer_urls
from yurt.storage.etcd.client import EtcdClient
from yurt.storage.etcd.membership import (
    EtcdPeer,
    add_member,
    keeps_promotions,
    list_members,
    member_status,
    promote_member,
    remove_member,
    update_member,
)
from yurt.storage.etcd.settings import peer_url


class OwnEtcdAdmin:
    """`EtcdAdmin` at the own member's endpoint."""

    def __init__(self, endpoint: str) -> None:
        self._client = EtcdClient((endpoint,))

    async def voters(self) -> tuple[Voter, ...]:
        """All members."""
        peers = await list_members(self._client)
        return tuple(_voter(peer) for peer in peers)

    async def add(self, address: str, *, is_tls: bool, is_learner: bool) -> Voter:
        """Add a member; as a voter where this version of etcd may lose promotions."""
        if is_learner:
            is_learner = keeps_promotions((await member_status(self._client)).version)
        return _voter(await add_member(self._client, peer_url(address, is_tls=is_tls), is_learner=is_learner))

    async def promote(self, voter_id: str) -> None:
        """Make a learner a voter."""
        await promote_member(self._client, int(voter_id, 16))

    async def remove(self, voter_id: str) -> None:
        """Remove a member."""
        await remove_member(self._client, int(voter_id, 16))

    async def move(self, voter_id: str, address: str, reach: Reach) -> None:
        """Change the peer URLs of a member."""
        await update_member(self._client, int(voter_id, 16), *peer_urls(address, reach))

    async def db_bytes(self) -> int:
        """The size of the data in bytes, which counts against the quota."""
        return (await member_status(self._client)).size

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()


def _voter(peer: EtcdPeer) -> Voter:
    urls = [urlsplit(url) for url in peer.peer_urls]
    schemes = {url.scheme for url in urls}
    reach = Reach.BY_TLS if schemes == {"https"} else Reach.BY_BOTH if "https" in schemes else Reach.IN_PLAIN_TEXT
    address = urls[0].netloc if urls else ""
    return Voter(id=f"{peer.id:x}", name=peer.name, address=address, reach=reach, is_learner=peer.is_learner)
