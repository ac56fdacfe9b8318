"""One server's part in its cluster: membership, its own etcd member, and operators' requests about both.

Order up: the port for servers, then exchange and joins, then etcd once a cluster is formed or joined; the server's
log is opened after that. Order down, once the server has stopped: etcd (which leaves its cluster first when the server
is to leave), goodbye, the port.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from yurt import __version__
from yurt.agent.addresses import bracketed, host_of, with_port
from yurt.agent.blocks.cluster import ALONE, OWN_ETCD, SERF_PORT
from yurt.agent.cluster.certificate_probe import CertificateProbe
from yurt.agent.cluster.dead_servers import DeadServerCleanup
from yurt.agent.cluster.exchange import ASK_INTERVAL_S, Exchange
from yurt.agent.cluster.formation import lost_majority
from yurt.agent.cluster.joining import Joiner
from yurt.agent.cluster.known_servers import KnownServersRecord
from yurt.agent.cluster.local_server import LocalServer
from yurt.agent.cluster.log_peers import LogPeers
from yurt.agent.cluster.members_listener import MembersListener
from yurt.agent.cluster.members_port import MemberAdmission
from yurt.agent.cluster.membership import Membership
from yurt.agent.cluster.own_etcd import ADVICE_AFTER_S, OwnEtcd, etcd_address
from yurt.agent.cluster.peer_address import OtherServers, PeerAddress
from yurt.agent.cluster.security import ServerSecurity
from yurt.agent.cluster.voters import Admitter, EtcdAdmin, leave, put_out
from yurt.agent.config import AgentConfig
from yurt.agent.tls import TlsSettings
from yurt.http.cluster import Joined, LogPeer, ServerView
from yurt.runtime.env import Env
from yurt.runtime.supervise import supervised
from yurt.sdk.errors import YurtError
from yurt.structs.cluster import AutopilotConfiguration
from yurt.structs.member import ALIVE, FAILED, LEFT, Member
from yurt.structs.rules import RULES_VERSION

log = logging.getLogger(__name__)

GAUGE_LIMIT_S = 1.0


class ServerCluster:
    """The cluster of servers as this server sees and changes it."""

    def __init__(
        self, config: AgentConfig, folder: Path, *, engine: str, env: Env, tls: TlsSettings, local: LocalServer
    ) -> None:
        self.formed = asyncio.Event()
        self._local = local
        self._twins: tuple[str, ...] = ()
        self._config = config
        self._env = env
        self._tls = tls
        self._security = ServerSecurity(tls)
        self._membership = Membership(own_member(config, engine, tls), env=env, applied_index=lambda: local.index)
        self._exchange = Exchange(self._membership, security=self._security, env=env)
        self._etcd: OwnEtcd | None = None
        self._admin: EtcdAdmin | None = None
        admission: MemberAdmission | None = None
        if engine == OWN_ETCD:
            from yurt.agent.cluster.etcd_admin import OwnEtcdAdmin

            self._etcd = OwnEtcd(config, folder, membership=self._membership, exchange=self._exchange, env=env, tls=tls)
            self._admin = OwnEtcdAdmin(self._etcd.endpoint)
            admission = Admitter(self._admin, self._membership, self._autopilot, env=env, rules=lambda: local.rules)
        elif engine in ALONE:
            self._membership.subscribe(self._warn_of_twins)
        self._listener = MembersListener(self._membership, security=self._security, admission=admission, counts=local)
        self._log_peers = LogPeers(self._membership, admin=self._admin, env=env, local=local)
        self._memory = KnownServersRecord(folder, self._membership, env, is_alone=engine in ALONE)
        self._joiner = Joiner(
            config.cluster, membership=self._membership, exchange=self._exchange, peers=self._memory.addresses
        )

    # The directory.

    @property
    def own_endpoint(self) -> str:
        """The address of this server's own etcd member; "" without one."""
        return self._etcd.endpoint if self._etcd is not None else ""

    def members(self) -> tuple[Member, ...]:
        """All servers by name."""
        return self._membership.members()

    def shown_members(self) -> tuple[Member, ...]:
        """All servers by name, as operators see them (`Membership.shown_members`)."""
        return self._membership.shown_members()

    def published_rules(self) -> Mapping[str, int]:
        """The newest rules of the region's servers that have not left, by name."""
        return self._memory.published_rules()

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Register a callback for changes of the members."""
        self._membership.subscribe(on_change)

    @property
    def run_id(self) -> str:
        """The secret by which the other servers recognize this one on their RPC port; only servers receive it."""
        return self._membership.run_id

    def run_of(self, name: str) -> str:
        """The run identifier by which another server identifies itself; "" before it was heard."""
        return self._membership.run_of(name)

    def _warn_of_twins(self) -> None:
        """Warn of two servers that each keep their own state of one region: they are two clusters."""
        own = self._membership.own
        twins = tuple(
            each.name
            for each in self.members()
            if each.region == own.region and each.status == ALIVE and each.has_data and each.name != own.name
        )
        if twins and twins != self._twins:
            log.error(
                "another server keeps a state of its own for this region: give one of them another region, "
                "or make them one cluster (bootstrap_expect = 3): servers=%s region=%s",
                ", ".join(twins),
                own.region,
            )
        self._twins = twins

    def _autopilot(self) -> AutopilotConfiguration:
        return self._local.autopilot

    # Life.

    async def start(self) -> None:
        """Listen for other servers; raises Invalid when the port or etcd is unavailable."""
        config = self._config
        if self._etcd is not None:
            self._security.check_host(host_of(config.advertise_serf))
            await self._etcd.check()
            if config.cluster.expect > 0 and config.cluster.expect % 2 == 0:
                log.warning(
                    "bootstrap_expect is %d: an even number of servers bears no more failures than one less",
                    config.cluster.expect,
                )
        port = await self._listener.start(f"{bracketed(config.serf_address)}:{config.serf_port}")
        log.info("servers may join at port %d", port)

    async def run(self) -> None:
        """Take part in the cluster until cancelled; raises Unavailable when joining was required and failed."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._exchange.run(), name="membership")
            group.create_task(self._joiner.run(), name="joins")
            group.create_task(self._run_etcd(), name="etcd")
            if self._tls.is_used:
                supervised(group, "ends of certificates", self._publish_certificate_ends())

    async def _publish_certificate_ends(self) -> None:
        from yurt.agent.tls_expiry import ends_over_time

        async for ends in ends_over_time(self._tls, self._env):
            self._membership.change_own(certificate_ends=ends.certificate, authority_ends=ends.authority)

    async def _run_etcd(self) -> None:
        if self._etcd is not None:
            await self._etcd.form()
        self.formed.set()
        if self._etcd is None or self._admin is None:
            return
        minder = DeadServerCleanup(
            membership=self._membership,
            etcd=self._admin,
            env=self._env,
            leads=lambda: self._local.leader_name == self._membership.own.name,
            config=self._autopilot,
        )
        probe = CertificateProbe(self._exchange.hello, security=self._security, region=self._config.region)
        servers = OtherServers(self.members, self._configured_addresses, probe)
        address = PeerAddress(self._etcd, self._admin, own=self._membership.own, servers=servers, env=self._env)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._etcd.run(), name="own etcd member")
            supervised(group, "servers that are gone", minder.run())
            supervised(group, "own peer address", address.run())
            supervised(group, "majority with data", self._warn_of_lost_majority())

    def _configured_addresses(self) -> tuple[str, ...]:
        """The addresses of servers to join, and those remembered, without this server's own."""
        settings, own = self._config.cluster, self._membership.own.address
        found = dict.fromkeys((*settings.start_join, *settings.retry_join, *self._memory.addresses))
        return tuple(address for address in found if address != own)

    async def _warn_of_lost_majority(self) -> None:
        """Log the operator's next step when a majority of the servers has lost its data."""
        seen = logged = ""
        while True:
            await self._env.sleep(ADVICE_AFTER_S)
            advice = lost_majority(self._membership.own, self.members(), self._membership.awaited)
            if advice and advice == seen and advice != logged:
                log.error("no leader can be found: %s", advice)
                logged = advice
            seen = advice

    async def stop(self, *, leaves: bool) -> None:
        """Stop etcd and announce the departure; `run` was cancelled and the server has stopped."""
        etcd, name = self._etcd, self._membership.own.name
        if etcd is not None:
            has_left = (
                leaves
                and self.formed.is_set()
                and self._admin is not None
                and await leave(self._admin, name, self._env, is_removed=lambda: etcd.was_removed)
            )
            await (etcd.forget() if has_left else etcd.stop())
        if leaves:
            await self._exchange.leave()
            if not self._config.cluster.rejoins:
                self._memory.forget()
        await self._listener.stop()
        if self._admin is not None:
            await self._admin.close()

    # What operators ask.

    def views(self) -> tuple[ServerView, ...]:
        """The servers of this region that have not left."""
        membership = self._membership
        return tuple(
            ServerView(
                member=each,
                overdue_s=max(0.0, membership.silent_s(each.name) - ASK_INTERVAL_S),
                index=membership.index_of(each.name),
                trailing=membership.trailing.get(each.name, 0),
                stable_s=membership.status_age_s(each.name),
            )
            for each in self.members()
            if each.region == self._config.region and each.status != LEFT
        )

    async def join(self, addresses: tuple[str, ...]) -> Joined:
        """Exchange records with the servers at these addresses, so that all join one cluster."""
        return await self._joiner.join(tuple(with_port(address, SERF_PORT) for address in addresses))

    async def force_leave(self, name: str, *, forget: bool) -> None:
        """Force a server out (`Membership.force_leave`); raises NotFound or Unavailable."""
        names = {each.name for each in self.members()}
        full = name if name in names else f"{name}.{self._config.region}"
        is_gone = all(each.status in (FAILED, LEFT) for each in self.members() if each.name == full)
        if full in self._memory.unheard:
            self._memory.drop(full)
        else:
            self._membership.force_leave(full, forget=forget)
        if self._admin is not None and is_gone and full.endswith(f".{self._config.region}"):
            voters = [voter for voter in await self._admin.voters() if voter.name == full]
            for voter in voters:
                await put_out(self._admin, voter.id, self._env)

    async def log_peers(self) -> tuple[LogPeer, ...]:
        """The servers that keep the log."""
        return await self._log_peers.all()

    async def remove_log_peer(self, requested: str) -> None:
        """Remove a server from the voters of the log."""
        await self._log_peers.remove(requested)

    async def transfer_leadership(self, requested: str) -> tuple[LogPeer, LogPeer]:
        """Transfer leadership to another server; call it on the leader."""
        return await self._log_peers.transfer(requested)

    async def gauges(self) -> dict[str, float]:
        """The number of servers by status, and the size of etcd's data."""
        counts = Counter(each.status for each in self.members())
        found = {"members.alive": float(counts["alive"]), "members.failed": float(counts[FAILED])}
        if self._admin is not None and self.formed.is_set():
            try:
                async with self._env.timeout(GAUGE_LIMIT_S):
                    found["etcd.db_bytes"] = float(await self._admin.db_bytes())
            except (YurtError, TimeoutError):
                log.debug("etcd does not tell the size of its data")
        return found


def own_member(config: AgentConfig, engine: str, tls: TlsSettings) -> Member:
    """What the agent of this configuration publishes about itself to the other servers."""
    return Member(
        name=f"{config.name}.{config.region}",
        region=config.region,
        datacenter=config.datacenter,
        version=__version__,
        address=config.advertise_serf,
        rpc_addr=config.advertise_rpc,
        http_addr=config.advertise_http,
        etcd_addr=etcd_address(config) if engine == OWN_ETCD else "",
        expect=config.cluster.expect if engine == OWN_ETCD else int(engine in ALONE),
        has_data=engine != OWN_ETCD,
        has_tls=tls.rpc,
        rules=RULES_VERSION,
    )
