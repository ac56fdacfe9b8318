"""This server's own etcd member: founds or joins a cluster, is kept running, and leaves.

`form` returns when etcd runs. What it does until then is `forming.decide`'s matter; here it is carried out, and what
must survive a crash in between is remembered first:

- before a server founds, with whom; so it begins with the same founders after a crash, and can tell them to others;
- before it joins, that it does, and as which of the members. A start that finds a join cut short goes on with it at the
  same address, since the cluster may need this member for its majority already; at another one only when its files tell
  that it is a member. Otherwise, or when that fails, it asks again, and its files give way to those of the next member;
- when etcd can go on from its files, and the others have promoted it to a voter, that it has begun: from then on its
  data counts, and should it be gone, the server is a new one;
- whether its etcd takes TLS connections only. A member that was formed without goes on in plain text when TLS is turned
  on, until `peer_address` has the others know both of its URLs; the order of restarts makes no difference.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from pathlib import Path

from yurt.agent.addresses import bracketed, host_of, is_in_use, reachable
from yurt.agent.blocks.cluster import ETCD_FOLDER
from yurt.agent.cluster.cluster_files import Founding
from yurt.agent.cluster.exchange import Exchange
from yurt.agent.cluster.formation import Founds, Joins, Waits, decide, lost_majority, token_of
from yurt.agent.cluster.founding_record import NO_MEMBER, FoundingRecord
from yurt.agent.cluster.members_port import AdmissionAnswer
from yurt.agent.cluster.membership import Membership
from yurt.agent.cluster.promotion import Promotion
from yurt.agent.cluster.start_progress import DATA_LOOK_S, wait_founded, wait_joined, wait_promoted
from yurt.agent.cluster.voters import Reach, peer_urls
from yurt.agent.config import AgentConfig
from yurt.agent.tls import TlsSettings
from yurt.rpc.certificates import SERVER, role_name
from yurt.runtime.env import Env
from yurt.sdk.errors import Conflict, Invalid, Unavailable, YurtError
from yurt.storage.etcd.member_files.check import DamagedMember, check_has_no_database, holds_entries
from yurt.storage.etcd.member_files.joining import join_progress
from yurt.storage.etcd.member_process import EtcdMember
from yurt.storage.etcd.membership import recorded_peer_urls
from yurt.storage.etcd.settings import (
    ELECTION_MS,
    HEARTBEAT_MS,
    EtcdMemberConfig,
    EtcdSecurity,
    has_member_data,
    peer_url,
)
from yurt.structs.member import Member

log = logging.getLogger(__name__)

LOOK_INTERVAL_S = 0.5
"""How often a waiting server checks again when it receives nothing new."""
LEARN_LIMIT_S = 10.0
"""The time to wait for etcd's list of members before the log names this wait."""
ADMIT_PAUSE_S = 1.0
ADVICE_AFTER_S = 10.0
"""How long too few servers must have data before the operator is advised; the condition may be transient."""
ADMIT_LIMIT_S = 15.0
"""How long another server may take to admit this one."""


class OwnEtcd:
    """The etcd member of this server."""

    def __init__(
        self,
        config: AgentConfig,
        folder: Path,
        *,
        membership: Membership,
        exchange: Exchange,
        env: Env,
        tls: TlsSettings,
    ) -> None:
        self.folder = folder / ETCD_FOLDER
        self._record = FoundingRecord(folder, membership)
        self._config = config
        self._membership = membership
        self._exchange = exchange
        self._promotion = Promotion(exchange, membership, env)
        self._env = env
        self._tls = tls
        self._learns = False
        self._member = self._make_member({membership.own.name: self.peer_url}, is_new=False)
        self._reported = ""
        self._refused_since: float | None = None
        if self._record.now.has_begun and not self.has_begun:
            check_has_no_database(self.folder)
            log.warning("the data of this server's etcd member is gone: it joins its cluster as a new server")
            self._record.change(**NO_MEMBER)
        membership.change_own(has_data=self.has_begun or bool(self._record.now.founding))
        self._record.follow_members()

    @property
    def endpoint(self) -> str:
        """The member's address on this machine."""
        return self._member.config.client_endpoint

    @property
    def settings(self) -> EtcdMemberConfig:
        """The settings with which the member is started."""
        return self._member.config

    @property
    def has_peer_tls(self) -> bool:
        """Whether other members reach it by TLS; the configuration decides for a member that has not begun."""
        recorded = self._record.now.has_peer_tls
        return (self._tls.rpc and not self._learns) if recorded is None else recorded

    @property
    def peer_url(self) -> str:
        """The URL by which other members reach it."""
        return peer_url(self._membership.own.etcd_addr, is_tls=self.has_peer_tls)

    @property
    def pid(self) -> int:
        """The pid of etcd; 0 while it does not run."""
        return self._member.pid

    @property
    def was_removed(self) -> bool:
        """Whether etcd has ended because its cluster removed it."""
        return self._member.was_removed

    @property
    def has_begun(self) -> bool:
        """This server is part of a cluster, or of one that is being founded."""
        record = self._record.now
        if record.founding and not record.has_begun:
            return not record.is_joining and holds_entries(self.folder)
        return has_member_data(str(self.folder)) and not record.is_joining

    async def check(self) -> None:
        """Raises Invalid when etcd cannot be run here."""
        if self.has_begun:
            _check_tls(self._record.now, self._tls)
        await self._member.version()

    async def form(self) -> None:
        """Found a cluster, join one, or continue from the last run; etcd runs when this returns."""
        while True:
            try:
                if self.has_begun:
                    await self._resume()
                    return
                if await self._form_once():
                    return
            except Unavailable as error:
                self._report(f"the etcd member cannot start yet: {error}")
                await self._env.sleep(ADMIT_PAUSE_S)

    async def _form_once(self) -> bool:
        """Take one step; whether etcd runs now."""
        decision: Waits | Founds | Joins
        if self._record.now.founding:
            decision = Founds(founders=self._record.now.founding)
        else:
            decision = decide(
                self._membership.own, self._membership.members(), self._membership.reports, self._record.now.met
            )
        if not isinstance(decision, Joins):
            self._refused_since = None
        match decision:
            case Waits(reason=reason):
                self._report(reason)
                await self._membership.wait_change(LOOK_INTERVAL_S)
                return False
            case Founds(founders=founders):
                await self._found(dict(founders))
                return True
            case Joins(through=through):
                return await self._resume_join() or await self._join(through)

    async def _found(self, founders: dict[str, str]) -> None:
        own = self._membership.own.name
        log.info("a cluster is founded by %s", ", ".join(sorted(founders)))
        awaited, port = tuple(sorted(set(founders) - {own})), self._config.cluster.etcd_port
        if has_member_data(str(self.folder)):
            # What a start that was cut short has left goes before the record, from which on the log of etcd counts.
            await self._env.in_thread(shutil.rmtree, self.folder, ignore_errors=True)
        self._record.change(
            founding=founders, awaited=awaited, is_joining=False, has_peer_tls=self.has_peer_tls, etcd_port=port
        )
        self._membership.change_own(has_data=True)
        self._membership.publish()
        urls = {name: peer_url(address, is_tls=self.has_peer_tls) for name, address in founders.items()}
        await self._start(urls, is_new=True)

    async def _join(self, through: tuple[Member, ...]) -> bool:
        refusals, own = [], self._membership.own
        for server in through:
            try:
                admission: AdmissionAnswer = await self._exchange.ask_once(
                    server.address, server.region, lambda port: port.admit(own, knows_learners=True),
                    limit_s=ADMIT_LIMIT_S,
                )  # fmt: skip
            except YurtError as error:
                refusals.append(f"{server.name}: {error}")
                continue
            if admission.waits_for:
                self._refused_since = None
                self._report(_queue_text(admission.waits_for))
                await self._env.sleep(ADMIT_PAUSE_S)
                return False
            log.info("admitted to the cluster by %s: members %s", server.name, ", ".join(sorted(admission.cluster)))
            urls = _urls(admission, is_tls=self._tls.rpc)
            # What a join that was cut short has left goes before the record, by which a start goes on with this one.
            await self._env.in_thread(shutil.rmtree, self.folder, ignore_errors=True)
            own_url = urls.get(self._membership.own.name, "")
            self._record.change(
                is_joining=True,
                joining=urls,
                learner_id=admission.learner_id,
                has_peer_tls=own_url.startswith("https:"),
            )
            await self._start(urls, is_new=False)
            return True
        now = self._env.monotonic()
        self._refused_since = now if self._refused_since is None else self._refused_since
        is_lasting = now - self._refused_since >= ADVICE_AFTER_S
        advice = lost_majority(self._membership.own, self._membership.members()) if is_lasting else ""
        problem = f"no server admits this one yet: {'; '.join(refusals)}"
        self._report(f"{problem}. To the operator: {advice}" if advice else problem)
        await self._env.sleep(ADMIT_PAUSE_S)
        return False

    async def _resume_join(self) -> bool:
        """Go on with a join that was cut short; whether that succeeded."""
        record, name, cluster = self._record.now, self._membership.own.name, self._record.now.joining
        if not record.is_joining or not cluster:
            return False
        try:
            if cluster.get(name) != self.peer_url:
                if not (await self._env.in_thread(join_progress, self.folder)).is_member:
                    return False
                cluster = {name: self.peer_url}  # A member reaches the others, and tells them its address.
            log.info("etcd member goes on with its join: members=%s", ", ".join(sorted(record.joining)))
            await self._start(cluster, is_new=False)
        except (Unavailable, DamagedMember) as error:
            log.info("etcd member asks again to be admitted: reason=%s", error)
            await self._member.stop()
            return False
        return True

    async def _resume(self) -> None:
        """Start etcd with the data that it has."""
        if self._record.now.has_peer_tls is None:
            await self._learn_peer_tls()
        _check_tls(self._record.now, self._tls)
        if not self._member.pid:
            await self._start({self._membership.own.name: self.peer_url}, is_new=False)

    async def _learn_peer_tls(self) -> None:
        """Read from etcd's data how other members reach this one, which earlier versions did not record.

        It runs for that without TLS, and goes on to run if that is right. Raises Unavailable when etcd ends before.
        """
        self._learns = True
        try:
            await self._start({self._membership.own.name: self.peer_url}, is_new=False)
            is_tls = await self._is_recorded_by_tls()
        finally:
            self._learns = False
        if is_tls:
            await self._member.stop()
        self._record.change(has_peer_tls=is_tls)

    async def _is_recorded_by_tls(self) -> bool:
        """Whether other members reach this one by TLS according to etcd's data, however long it takes to read them.

        A guess could part this member from the others for good: none reaches one whose record is wrong. Only data that
        name no member, of one that has heard nothing of its cluster, leave nothing else.
        """
        bound = f"{reachable(self._config.serf_address)}:{self._config.cluster.etcd_port}"
        limit_s = self._env.monotonic() + LEARN_LIMIT_S
        while self._member.pid:
            is_late = self._env.monotonic() > limit_s
            try:
                urls = await recorded_peer_urls(bound)
                known = urls.get(self._membership.own.name) or next(iter(urls.values()), ())
                if known or is_late:
                    return all(url.startswith("https:") for url in known) if known else self._tls.rpc
            except Unavailable as error:
                if is_late:
                    self._report(f"waiting for etcd to tell how other members reach this one: {error}")
            await self._env.sleep(DATA_LOOK_S)
        raise Unavailable("etcd ended before its list of members could be read")

    async def turn_to_tls(self) -> None:
        """Restart etcd so that it accepts TLS connections only; `peer_address` says when that is safe.

        It relies on what etcd has applied, so the record follows an orderly end, which writes that to the disk. A kill
        before the record leaves a member in plain text, which tries again.
        """
        log.info("the etcd member turns to TLS: address=%s", self._membership.own.etcd_addr)
        name, address = self._membership.own.name, self._membership.own.etcd_addr
        made = self._make_member({name: peer_url(address, is_tls=True)}, is_new=False, has_peer_tls=True)
        if await self._member.renew(made.config):
            self._record.change(has_peer_tls=True)
        else:
            log.warning("the etcd member did not end in order, it goes on in plain text and turns to TLS later")

    async def _start(self, cluster: Mapping[str, str], *, is_new: bool) -> None:
        self._member = self._make_member(cluster, is_new=is_new)
        try:
            await self._member.start()
        except Unavailable:
            _check_port(self._config)
            raise
        if is_new:
            await wait_founded(self._member, self.folder, self._env)
        elif self._record.now.is_joining:
            await wait_joined(self._member, self.folder, self._env)
            if self._record.now.learner_id:
                await wait_promoted(self._member, self._promotion, self._record.now.learner_id)
        port = self._config.cluster.etcd_port
        self._record.change(has_begun=True, is_joining=False, joining={}, learner_id="", etcd_port=port)
        self._membership.change_own(has_data=True)

    async def run(self) -> None:
        """Keep etcd running until cancelled; a member that was removed rejoins as a new one."""
        while True:
            try:
                await self._member.run()
            except Conflict as error:
                log.warning("etcd member joins again without its old data: %s", error)
                await self._member.stop()
                await self._forget()
                await self.form()

    async def stop(self) -> None:
        """End etcd."""
        await self._member.stop()

    async def forget(self) -> None:
        """Discard the member's data after it has left its cluster."""
        await self._member.stop()
        await self._forget()

    async def _forget(self) -> None:
        # A kill before the files are gone leaves an unfinished join on record: the next start asks to join again.
        self._record.change(**{**NO_MEMBER, "is_joining": True})
        await self._env.in_thread(shutil.rmtree, self.folder, ignore_errors=True)
        self._record.change(**NO_MEMBER)
        self._membership.change_own(has_data=False)

    def _report(self, text: str) -> None:
        """A line for the operator, once."""
        if text != self._reported:
            log.info("etcd member not running yet: reason=%s", text)
        self._reported = text

    def _make_member(self, cluster: Mapping[str, str], *, is_new: bool, has_peer_tls: bool | None = None) -> EtcdMember:
        own, config = self._membership.own, self._config
        is_tls = self.has_peer_tls if has_peer_tls is None else has_peer_tls
        bound = f"{bracketed(config.serf_address)}:{config.cluster.etcd_port}"
        security = None
        if self._tls.rpc:
            security = EtcdSecurity(
                ca_file=self._tls.ca_file, cert_file=self._tls.cert_file, key_file=self._tls.key_file
            )
        settings = EtcdMemberConfig(
            name=own.name,
            data_dir=str(self.folder),
            peer_url=peer_url(bound, is_tls=is_tls),
            advertise_peer_url=peer_url(own.etcd_addr, is_tls=is_tls),
            initial_cluster=cluster,
            token=token_of(self._record.now.founding),
            is_new_cluster=is_new,
            peer_security=security,
            peer_name=role_name(SERVER, config.region) if security is not None else "",
            heartbeat_ms=HEARTBEAT_MS * config.cluster.time_factor,
            election_ms=ELECTION_MS * config.cluster.time_factor,
            quota_bytes=config.cluster.quota_bytes,
        )
        return EtcdMember(settings, env=self._env)


def etcd_address(config: AgentConfig) -> str:
    """The address at which other servers reach this server's etcd member."""
    return f"{bracketed(host_of(config.advertise_serf))}:{config.cluster.etcd_port}"


def _queue_text(joining: str) -> str:
    return (
        f"{joining} joins the cluster at this moment, and servers join one after the other; should it not come "
        "forward, see its log, or put its etcd member out with `yurt operator raft remove-peer`"
    )


def _urls(admission: AdmissionAnswer, *, is_tls: bool) -> dict[str, str]:
    """The URLs of the members by name; `is_tls` applies to answers that do not say it for each member."""
    by_tls = admission.by_tls
    if by_tls is None:
        by_tls = tuple(admission.cluster) if is_tls else ()

    def reach(name: str) -> Reach:
        return Reach.BY_TLS if name in by_tls else Reach.BY_BOTH if name in admission.by_both else Reach.IN_PLAIN_TEXT

    return {name: ",".join(peer_urls(address, reach(name))) for name, address in admission.cluster.items()}


def _check_port(config: AgentConfig) -> None:
    """Raises Unavailable when another process has the port of this member."""
    address, port = config.serf_address, config.cluster.etcd_port
    if is_in_use(address, port):
        raise Unavailable(
            f"port {port} on {address} is in use by another process, perhaps the etcd member of another server on "
            "this machine: stop that one, or choose another port with `ports { etcd = ... }` (without it, the "
            "port is that of `ports { serf }` plus one)"
        )


def _check_tls(record: Founding, tls: TlsSettings) -> None:
    """Raises Invalid when the members of the cluster speak TLS and this server's configuration has none."""
    if record.has_peer_tls and not tls.rpc:
        raise Invalid(
            "the etcd members of this cluster reach each other by TLS, and `tls { rpc = true }` is not in this "
            "server's configuration: put it back with its files. A cluster without TLS is a new one: save its "
            "state with `yurt operator snapshot save FILE`, stop all servers, start them with empty data_dirs "
            "and without tls, and restore it with `yurt operator snapshot restore FILE`"
        )
