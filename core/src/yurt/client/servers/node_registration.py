"""The registration of this node as a state machine: unknown, initializing or ready.

    unknown -registered-> initializing -allowed, and a server agrees-> ready
    ready -a server disagrees, or does not know the node-> initializing, everything is fetched and reported again

The client allows ready once its allocations are fetched, restored and reported (invariant E1). A server that missed the
node's heartbeats revokes that: the client then repeats all of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from yurt.lifecycle import heartbeats
from yurt.lifecycle.heartbeats import Contact
from yurt.rpc.peer import ConnectionLost
from yurt.runtime.env import Env
from yurt.sdk.errors import Unavailable, YurtError
from yurt.structs.node import DeviceMark
from yurt.structs.rpc import NodeReply
from yurt.structs.status import NODE_INIT, NODE_READY

REFUSALS_MAX = 1
"""The number of refusals in a row after which ready is requested with the next heartbeat instead of at once."""


class ListIndexes(Protocol):
    """The indexes of the lists of this node's allocations."""

    @property
    def seen_index(self) -> int:
        """The newest one."""
        ...

    def note_registration(self, index: int, seen_before: int, cluster_id: str = "") -> None:
        """Note the index of a registration; `seen_before` is `seen_index` before it was requested."""
        ...


class NodeRegistration:
    """The state of one node's registration; `on_lost` is called with the index that the next list must reach."""

    def __init__(
        self,
        env: Env,
        *,
        beat_due: asyncio.Event,
        on_lost: Callable[[int], None],
        on_marks: Callable[[Mapping[str, DeviceMark]], None] = lambda _: None,
        lists: ListIndexes | None = None,
        is_dev: bool = False,
    ) -> None:
        """`on_marks` is called with the servers' marks of the node's devices in each answer; `lists` takes the index of
        each registration."""
        self.contact = Contact(is_dev=is_dev, last_ok_s=env.monotonic())
        self.status = NODE_INIT
        self.registered_index = 0
        self.known_loss = 0
        """The index of the last loss after which everything is reported (`NodeReply.lost_at`)."""
        self.registered = asyncio.Event()
        self.ready = asyncio.Event()
        """Set once the servers have accepted the status ready for the first time."""
        self._env = env
        self._beat_due = beat_due
        self._on_lost = on_lost
        self._on_marks = on_marks
        self._lists = lists
        self._is_allowed = False
        self._is_forgotten = False
        self._cluster_id = ""
        """The ID of the cluster of the last registration, or the first one that an answer named after it."""
        self._refusals = 0

    @property
    def silence_s(self) -> float:
        """The seconds since a server last answered."""
        return max(0.0, self._env.monotonic() - self.contact.last_ok_s)

    @property
    def seen_index(self) -> int:
        """The newest index of a list of allocations."""
        return 0 if self._lists is None else self._lists.seen_index

    @property
    def desired_status(self) -> str:
        """The status to request in the next heartbeat."""
        return NODE_READY if self._is_allowed else NODE_INIT

    @property
    def is_behind(self) -> bool:
        """Whether ready is allowed and the servers have not confirmed it."""
        return self._is_allowed and self.status == NODE_INIT

    def allow_ready(self) -> None:
        """Request the status ready at once: all allocations are fetched, restored and reported."""
        self._is_allowed = True
        if self._refusals <= REFUSALS_MAX:
            self._beat_due.set()

    def answered(self, reply: NodeReply) -> None:
        """Note that a server has answered."""
        self.contact = heartbeats.answered(self.contact, ttl_s=reply.heartbeat_ttl_s, now_s=self._env.monotonic())
        if reply.device_marks:
            self._on_marks(reply.device_marks)

    def take_registration(self, reply: NodeReply, *, seen_before: int) -> None:
        """Process a registration's answer; `seen_before`: the newest index of a list before it was requested."""
        self.registered_index = reply.index
        if self._lists is not None:
            self._lists.note_registration(reply.index, seen_before, reply.cluster_id)
        if not self.registered.is_set():
            self.known_loss = reply.lost_at  # nothing has been reported yet
            self.registered.set()
        if self._is_forgotten or self.is_of_other_cluster(reply):
            self._is_forgotten = False
            self._start_again(reply)
        self._cluster_id = reply.cluster_id or self._cluster_id
        if reply.node_status != self.status:
            self._beat_due.set()

    def is_of_other_cluster(self, reply: NodeReply) -> bool:
        """Whether another cluster answers than at the last registration, as far as both have named their IDs."""
        return bool(reply.cluster_id and self._cluster_id) and reply.cluster_id != self._cluster_id

    def forget(self) -> None:
        """Note that the servers do not know the node, or only from a snapshot.

        After the next registration everything is reported again.
        """
        self._is_forgotten = True

    def take_beat(self, desired_status: str, reply: NodeReply) -> None:
        """Process the answer to a heartbeat that requested a status."""
        self._cluster_id = self._cluster_id or reply.cluster_id
        status = reply.node_status or desired_status
        if desired_status == NODE_READY and status != NODE_READY:
            # The first refusal after another loss only tells of it; it is none of a row.
            self._refusals = self._refusals + 1 if reply.lost_at == self.known_loss else 1
            self._start_again(reply)
        elif status == NODE_READY:
            self._refusals = 0
            self.status = NODE_READY
            self.ready.set()

    def _start_again(self, reply: NodeReply) -> None:
        self.status = NODE_INIT
        self.known_loss = reply.lost_at
        self._is_allowed = False
        self._on_lost(reply.index)

    def registration_retry_s(self) -> float:
        """The delay after a failed registration in seconds."""
        return heartbeats.register_retry(self.contact, self._env.random())

    def beat_retry_s(self, error: YurtError) -> float:
        """The delay after a failed heartbeat in seconds; servers without a leader are retried soon."""
        return heartbeats.heartbeat_retry(
            self.contact,
            has_leader=isinstance(error, ConnectionLost) or not isinstance(error, Unavailable),
            now_s=self._env.monotonic(),
            chance=self._env.random(),
        )
