"""Records durably whether this server's etcd member has begun, and publishes it to the other servers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from yurt.agent.cluster import cluster_files
from yurt.agent.cluster.membership import Membership
from yurt.sdk.value import replace
from yurt.structs.member import LEFT

NO_MEMBER: Mapping[str, object] = {
    "founding": {}, "awaited": (), "is_joining": False, "joining": {}, "learner_id": "", "has_begun": False,
    "etcd_port": 0, "has_peer_tls": None,
}  # fmt: skip
"""The record of an etcd member whose data is gone."""


class FoundingRecord:
    """The record of one server; `now` is its present content."""

    def __init__(self, folder: Path, membership: Membership) -> None:
        """Raises Invalid when the file is damaged."""
        self._path = folder / cluster_files.CLUSTER_FILE
        self.now = cluster_files.load(self._path, cluster_files.Founding)
        self._membership = membership
        self._seen: set[str] = set()

    def change(self, **changes: object) -> None:
        """Write the record before it is published."""
        changed = replace(self.now, **changes)
        if changed != self.now:
            cluster_files.save(self._path, changed)
            self.now = changed
        self._membership.found(changed)

    def follow_members(self) -> None:
        """Track from now on which founders have begun, and which servers might found with this one."""
        self._membership.found(self.now)
        self._membership.subscribe(self._note)

    def _note(self) -> None:
        begun = {each.name for each in self._membership.members() if each.has_data}
        awaited = tuple(name for name in self.now.awaited if name not in begun)
        founding = self.now.founding if awaited or not self.now.has_begun else {}
        self.change(awaited=awaited, founding=founding, met=self._met())

    def _met(self) -> tuple[str, ...]:
        own, by_name = self._membership.own, {each.name: each for each in self._membership.members()}
        if own.has_data:
            return ()
        pruned = self._seen - by_name.keys()
        self._seen = set(by_name)
        near = {each.name for each in by_name.values() if each.region == own.region and each.expect > 1}
        excluded = {name for name, each in by_name.items() if each.status == LEFT or each.expect <= 1}
        return tuple(sorted((near | set(self.now.met)) - excluded - pruned - {own.name}))
