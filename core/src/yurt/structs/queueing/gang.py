"""Gangs with a rendezvous: their members and ranks."""

from __future__ import annotations

from typing import Final, Literal

from yurt.sdk.value import Value

GangKey = tuple[str, str, str]
"""The namespace, job and group of a gang."""
GangStatus = Literal["waiting", "formed", "over"]
WAITING: Final = "waiting"
FORMED: Final = "formed"
OVER: Final = "over"
LATEST: Final = -1
"""The number that stands for the gang's last generation, for an allocation whose client has lost the real one."""


class GangMember(Value):
    """A member; its rank is its position in the roster."""

    alloc_id: str
    name: str
    """The allocation's name, `job.group[index]`."""
    node_id: str
    address: str
    port: int
    devices: int = 0
    """The number of device instances of its tasks."""


class GangRoster(Value):
    """The members of one generation of a gang by rank; each change of members starts a new generation."""

    namespace: str
    job_id: str
    group: str
    generation: int
    """The index of the command that formed it: it grows and is never repeated, even if the job is deleted."""
    members: tuple[GangMember, ...]
    create_index: int = 0
    modify_index: int = 0

    @property
    def key(self) -> GangKey:
        """The key of the gang."""
        return self.namespace, self.job_id, self.group

    def rank_of(self, alloc_id: str) -> int:
        """The rank of a member; -1 for an allocation that is not a member."""
        return next((rank for rank, member in enumerate(self.members) if member.alloc_id == alloc_id), -1)


class GangQuery(Value):
    """A node's query about the gang of one allocation.

    Before the start of a run: is there a generation above `generation`, the last one that the allocation ran in? While
    it runs (`is_running`): is the generation over? The answer comes when it is so, or after `timeout_s`. Of a run that
    an earlier agent started, `generation` is `LATEST`.
    """

    node_id: str
    alloc_id: str
    generation: int = 0
    is_running: bool = False
    timeout_s: float = 25.0


class GangAnswer(Value):
    """The answer to a `GangQuery`; `formed` has the roster, `over` has the reason."""

    status: GangStatus
    roster: GangRoster | None = None
    reason: str = ""
    missing: tuple[str, ...] = ()
    """The names of members that are placed but not set up yet."""
    unplaced: int = 0
    """The number of further members that the gang needs."""
    generation: int = 0
    """The generation to name in the next query, if this one named `LATEST`."""
    is_busy: bool = False
    """Whether another generation runs, whose end the allocation must await."""
