"""The record of the other servers that outlives a restart: where they answer, and which rules they apply."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from yurt.agent.cluster.cluster_files import SERVERS_FILE, KnownServers, load, save
from yurt.agent.cluster.membership import Membership
from yurt.sdk.errors import Invalid
from yurt.structs.member import LEFT

log = logging.getLogger(__name__)


class KnownServersRecord:
    """Persists the addresses and rules of other servers whenever they change."""

    def __init__(self, folder: Path, membership: Membership) -> None:
        self._path = folder / SERVERS_FILE
        self._membership = membership
        self._is_kept = True
        self._known = self._loaded()
        self._at_start = self._known
        membership.subscribe(self._follow)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The last known addresses of other servers, from before this start too."""
        return self._known.addresses

    def _loaded(self) -> KnownServers:
        """The remembered servers; a damaged list does not prevent a start, because other servers send it again."""
        try:
            return load(self._path, KnownServers)
        except Invalid as error:
            log.warning("the list of known servers is lost, the other servers tell it again: %s", error)
            return KnownServers()

    def forget(self) -> None:
        """Delete the addresses after this server has left, so that it does not rejoin by itself."""
        self._is_kept = False
        save(self._path, KnownServers())

    def published_rules(self) -> Mapping[str, int]:
        """The newest rules of the region's servers that have not left, by name; as recorded of those not heard yet.

        A leader that has just started may not have heard of a server that reads its log all the same.
        """
        membership = self._membership
        known = membership.members()
        heard = {each.name: each for each in known if each.region == membership.own.region}
        recorded = self._at_start.rules
        if not recorded and len(known) == 1:  # the version before recorded addresses only
            recorded = dict.fromkeys(self._at_start.addresses, 0)
        unheard = recorded.keys() - heard.keys() - membership.forgotten
        rules = {name: recorded[name] for name in unheard}
        return rules | {each.name: each.rules for each in heard.values() if each.status != LEFT}

    def _follow(self) -> None:
        if not self._is_kept:
            return
        own = self._membership.own
        there = [each for each in self._membership.members() if each.status != LEFT and each.name != own.name]
        rules = {each.name: each.rules for each in there if each.region == own.region}
        known = KnownServers(addresses=tuple(each.address for each in there), rules=rules)
        if known != self._known and known.addresses:
            self._known = known
            save(self._path, known)
