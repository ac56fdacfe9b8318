"""The members of an etcd cluster: queries and changes through etcd's calls."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Final

import msgspec

from yurt.sdk.errors import Unavailable
from yurt.sdk.value import Value
from yurt.storage.etcd.client import ALARM_NOSPACE, EtcdClient
from yurt.storage.etcd.messages import Message, message

log = logging.getLogger(__name__)

STATUS_LIMIT_S: Final = 2.0
MEMBERS_BYTES_MAX: Final = 64 * 1024
PROMOTION_FLOORS: Final = {(3, 5): 26, (3, 6): 5}
"""The first patch versions that keep promotions, where not all do."""
MOVE_LIMIT_S: Final = 2.0
"""The caller's time limit: etcd abandons a move after an election's time, but answers only at this limit."""


class EtcdPeer(Value, rename=None):
    """One member; its name is "" before its first start."""

    id: int
    name: str
    peer_urls: tuple[str, ...] = ()
    is_learner: bool = False


class EtcdStatus(Value, rename=None):
    """A member's status; ids are 0 for none, sizes are bytes, `revision` is the member's newest."""

    member_id: int
    leader_id: int
    version: str
    raft_term: int
    raft_index: int
    applied_index: int
    size: int
    size_in_use: int
    revision: int = 0
    errors: tuple[str, ...] = ()
    is_learner: bool = False

    @property
    def is_leader(self) -> bool:
        """Whether the member leads its cluster, as far as it knows."""
        return self.leader_id != 0 and self.leader_id == self.member_id


async def list_members(client: EtcdClient) -> tuple[EtcdPeer, ...]:
    """All members, by name; raises Unavailable."""
    answer = await client.read("Cluster", "MemberList", message("MemberListRequest"))
    return tuple(sorted((_peer(each) for each in answer.members), key=lambda peer: (peer.name, peer.id)))


async def add_member(client: EtcdClient, peer_url: str, *, is_learner: bool = False) -> EtcdPeer:
    """Add a member, which must start with `initial-cluster-state existing`; raises Conflict or Unavailable."""
    request = message("MemberAddRequest", peerURLs=[peer_url], isLearner=is_learner)
    return _peer((await client.write("Cluster", "MemberAdd", request)).member)


async def promote_member(client: EtcdClient, member_id: int) -> None:
    """Make a learner a voter; raises NotFound, Unavailable, or Conflict when it is a voter already or not in sync.

    The members do not check that the learner runs: a voter that does not run costs a cluster of one its majority.
    """
    await client.write("Cluster", "MemberPromote", message("MemberPromoteRequest", ID=member_id))


def keeps_promotions(version: str) -> bool:
    """Whether a member of this version keeps the promotion of a learner when it restarts or is upgraded.

    3.5.1 to 3.5.19 keep it where 3.6 does not read it: a voter is a learner again after the upgrade (etcd's issues
    19557 and 20793, repaired by 3.5.26). The first versions of 3.6 lose one of a member that was added again (20340).
    """
    try:
        major, minor, patch = (int(part) for part in version.partition("-")[0].split("."))
    except ValueError:
        return False
    return patch >= PROMOTION_FLOORS.get((major, minor), 0)


async def remove_member(client: EtcdClient, member_id: int) -> None:
    """Remove a member permanently; raises NotFound, Conflict or Unavailable."""
    await client.write("Cluster", "MemberRemove", message("MemberRemoveRequest", ID=member_id))


async def update_member(client: EtcdClient, member_id: int, *peer_urls: str) -> None:
    """Change the peer URLs of a member; raises NotFound, Conflict or Unavailable.

    The others try several in turn, so they reach the member as long as one of them is right. Not for a learner: etcd
    up to 3.6 takes it for a voter from then on, without counting it, and cannot promote it.
    """
    await client.write("Cluster", "MemberUpdate", message("MemberUpdateRequest", ID=member_id, peerURLs=peer_urls))


async def move_leader(client: EtcdClient, member_id: int) -> None:
    """Transfer etcd's leadership to a member; must be sent to the leader. Raises Conflict or Unavailable."""
    request = message("MoveLeaderRequest", targetID=member_id)
    await client.write("Maintenance", "MoveLeader", request, timeout_s=MOVE_LIMIT_S)


async def member_status(client: EtcdClient, endpoint: str = "", *, timeout_s: float = STATUS_LIMIT_S) -> EtcdStatus:
    """The status of the member at an endpoint; raises Unavailable."""
    answer = await client.status(endpoint, timeout_s=timeout_s)
    return EtcdStatus(
        member_id=answer.header.member_id,
        leader_id=answer.leader,
        version=answer.version,
        raft_term=answer.raftTerm,
        raft_index=answer.raftIndex,
        applied_index=answer.raftAppliedIndex,
        size=answer.dbSize,
        size_in_use=answer.dbSizeInUse,
        revision=answer.header.revision,
        errors=tuple(answer.errors),
        is_learner=answer.isLearner,
    )


async def defragment(client: EtcdClient, endpoint: str) -> int:
    """Defragment a member and return its id. It is unavailable meanwhile. Raises Unavailable."""
    before = await member_status(client, endpoint)
    await client.defragment(endpoint)
    after = await member_status(client, endpoint)
    log.warning("etcd at %s was defragmented: %d bytes before, %d now", endpoint, before.size, after.size)
    return after.member_id


async def no_space_alarms(client: EtcdClient) -> tuple[Message, ...]:
    """The alarms of members with an exhausted quota."""
    return tuple(alarm for alarm in await client.alarms() if alarm.alarm == ALARM_NOSPACE)


async def recorded_peer_urls(address: str) -> Mapping[str, tuple[str, ...]]:
    """The peer URLs of the members by name, from a member that listens on a peer address without TLS.

    It answers from its own data, with no quorum; it names none until it has read that much. Raises Unavailable.
    """
    try:
        async with asyncio.timeout(STATUS_LIMIT_S):
            found = await _fetch_members(address)
    except (OSError, TimeoutError) as error:
        problem = str(error) or f"no answer within {STATUS_LIMIT_S:g} s"
        raise Unavailable(f"etcd at {address} does not list its members: {problem}") from None
    return {each.name: each.peerURLs for each in found}


async def _fetch_members(address: str) -> list[_TellingPeer]:
    """The members as listed by a peer port; raises OSError.

    The answer ends with its JSON array: etcd may keep the connection open for 5 s after that.
    """
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    try:
        writer.write(b"GET /members HTTP/1.0\r\n\r\n")
        answer = b""
        while len(answer) < MEMBERS_BYTES_MAX and (chunk := await reader.read(MEMBERS_BYTES_MAX)):
            answer += chunk
            with contextlib.suppress(msgspec.DecodeError):
                return msgspec.json.decode(answer.partition(b"\r\n\r\n")[2], type=list[_TellingPeer])
        raise OSError(f"the answer is not a list of members: {answer[:200]!r}")
    finally:
        writer.close()


class _TellingPeer(Value, rename=None):
    """A member as described by etcd's peer port."""

    name: str = ""
    peerURLs: tuple[str, ...] = ()  # noqa: N815 (etcd's name)


def _peer(member: Message) -> EtcdPeer:
    return EtcdPeer(id=member.ID, name=member.name, peer_urls=tuple(member.peerURLs), is_learner=member.isLearner)
