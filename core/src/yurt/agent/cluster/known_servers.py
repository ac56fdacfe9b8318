"""The durable record of the other servers: their addresses, and the rules that they apply."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from yurt.agent.cluster.cluster_files import SERVERS_FILE, KnownServers, load, save
from yurt.agent.cluster.membership import Membership
from yurt.runtime.env import Env
from yurt.sdk.errors import Invalid
from yurt.sdk.value import replace
from yurt.structs.member import LEFT, Member

log = logging.getLogger(__name__)

ADDRESSES_TRUSTED_S: Final = 60.0
"""How long after a start recorded addresses without rules count as servers: those that run answer sooner."""


class KnownServersRecord:
    """Persists the addresses and rules of other servers whenever they change."""

    def __init__(self, folder: Path, membership: Membership, env: Env, *, is_alone: bool = False) -> None:
        """`is_alone`: no other server reads the log of this one."""
        self._is_alone = is_alone
        self._path = folder / SERVERS_FILE
        self._membership = membership
        self._is_recording = True
        self._record = self._loaded()
        self._env = env
        self._unruled = () if self._record.has_rules else self._record.addresses
        self._trusted_until_s = env.monotonic() + ADDRESSES_TRUSTED_S
        membership.subscribe(self._follow)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The last recorded addresses of other servers, from before this start too."""
        return self._record.addresses

    def _loaded(self) -> KnownServers:
        """The recorded servers; a damaged list does not prevent a start, because other servers send it again."""
        try:
            return load(self._path, KnownServers)
        except Invalid as error:
            log.warning("the list of known servers is lost, the other servers tell it again: %s", error)
            return KnownServers()

    def forget(self) -> None:
        """Delete the addresses after this server has left, so that it does not rejoin by itself."""
        self._is_recording = False
        save(self._path, KnownServers())

    @property
    def unheard(self) -> Mapping[str, int]:
        """The recorded rules of servers of this region that have not been heard since the start, by name."""
        heard = {each.name for each in self._of_region()}
        return {name: rules for name, rules in self._record.rules.items() if name not in heard}

    def published_rules(self) -> Mapping[str, int]:
        """The newest rules of the region's servers that have not left, by name; as recorded of those not heard yet.

        A leader that has just started may not have heard of a server that reads its log all the same.
        """
        if self._is_alone:
            return {self._membership.own.name: self._membership.own.rules}
        heard = {each.name: each.rules for each in self._of_region() if each.status != LEFT}
        return {**self.unheard, **self._addresses_alone, **heard}

    def drop(self, name: str) -> None:
        """Delete the rules of a server that an operator forced to leave before it was heard."""
        rules = {each: version for each, version in self._record.rules.items() if each != name}
        self._save(replace(self._record, rules=rules))

    @property
    def _addresses_alone(self) -> Mapping[str, int]:
        """The addresses that a version without rules recorded, until a server of this region is heard."""
        is_alone = len(self._of_region()) == 1 and self._env.monotonic() < self._trusted_until_s
        return dict.fromkeys(self._unruled, 0) if is_alone else {}

    def _of_region(self) -> tuple[Member, ...]:
        membership = self._membership
        return tuple(each for each in membership.members() if each.region == membership.own.region)

    def _follow(self) -> None:
        membership = self._membership
        there = [each for each in membership.members() if each.status != LEFT and each.name != membership.own.name]
        heard = {each.name: each.rules for each in there if each.region == membership.own.region}
        rules = {name: each for name, each in self.unheard.items() if name not in membership.forgotten}
        addresses = tuple(each.address for each in there)
        # Without any address this server would not find the others again: the last ones remain.
        self._save(
            KnownServers(addresses=addresses or self._record.addresses, rules={**rules, **heard}, has_rules=True)
        )

    def _save(self, record: KnownServers) -> None:
        if self._is_recording and record != self._record:
            self._record = record
            save(self._path, record)
