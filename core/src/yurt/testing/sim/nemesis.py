"""The nemesis: injects faults at random times, each for a limited time, and heals all of them at the end.

Most servers and their etcd members stay up and joined most of the time; now and then they do not.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

from yurt.sdk.errors import YurtError
from yurt.structs import status
from yurt.testing.sim.agents import AnyAgent, ClientAgent, ServerAgent, World
from yurt.testing.sim.campaign.coverage import Coverage
from yurt.testing.sim.convergence import newest_state
from yurt.testing.sim.csi.plugin import CsiFaults, CsiNode
from yurt.testing.sim.csi.requests import PLUGIN_JOB
from yurt.testing.sim.driver import KILLED, DriverFaults
from yurt.testing.sim.hardware import GONE, IDS, DeviceFaults
from yurt.testing.sim.plan import Plan
from yurt.testing.sim.transcript import Transcript

Heal = Callable[[], Awaitable[None] | None]
OUTAGE = 0.05
"""How often a fault may take more than a minority of the servers."""
LATE_S = 60.0
"""How long an agent that is to be late waits for the others to give it up."""
LOOK_S = 0.02
HINDERED_S = 30.0
"""How long a fault that nothing heals may hinder a client: as long as threads are slow at most."""
AFTERMATH_S = 5.0
"""How long a fault that nothing heals, as a change of etcd's leader, counts as going on."""


class Nemesis:
    """The faults of one run."""

    def __init__(
        self,
        world: World,
        plan: Plan,
        transcript: Transcript,
        *,
        servers: list[ServerAgent],
        clients: list[ClientAgent],
        coverage: Coverage,
    ) -> None:
        self._world = world
        self._coverage = coverage
        self._plan = plan
        self._transcript = transcript
        self._servers = servers
        self._clients = clients
        self._chance = random.Random(f"nemesis {plan.seed}")
        self._open: dict[str, Heal] = {}
        """Faults that last, by kind and target."""
        self._given_up: dict[str, Callable[[], bool]] = {}
        """Whether the others have given an agent up, by the fault of which it is late."""
        self._struck_at: dict[str, float] = {}
        """When each kind without a cure struck last: others that follow soon count as at one time with it."""
        self._damaged: set[str] = set()
        """Servers of which a snapshot was damaged."""

    async def run(self) -> None:
        """Inject faults until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                await asyncio.sleep(self._chance.expovariate(1 / self._plan.fault_pause_s))
                kind = self._chance.choice(self._plan.faults)
                key, heal = await self._strike(kind)
                if not key:
                    continue
                self._transcript.note("nemesis", kind, key.partition(" ")[2])
                self._coverage.struck(kind, self._kinds_at(now := asyncio.get_running_loop().time()))
                if heal is None:
                    self._struck_at[kind] = now
                else:
                    self._open[key] = heal
                    group.create_task(self._heal_later(key, self._chance.choice((0.5, 3.0, 12.0, 45.0))))

    def _kinds_at(self, now: float) -> Iterator[str]:
        """The kinds of faults that last, and of those that struck shortly before."""
        yield from (each.partition(" ")[0] for each in self._open)
        yield from (kind for kind, at in self._struck_at.items() if now - at <= AFTERMATH_S)

    def unhindered(self) -> list[ClientAgent]:
        """The clients that no fault may keep from being ready. One of another client does not, and slow writes of
        etcd do not."""
        now = self._world.loop.time()
        if any(now - at <= HINDERED_S for at in self._struck_at.values()):
            return []
        hit = {key.partition(" ")[2] for key in self._open if not key.startswith("etcd-slow")}
        if not hit <= {each.name for each in self._clients}:
            return []
        return [each for each in self._clients if each.name not in hit]

    async def _heal_later(self, key: str, after_s: float) -> None:
        is_given_up = self._given_up.pop(key, None)
        if is_given_up is None:
            await asyncio.sleep(after_s * (0.5 + self._chance.random()))
        else:
            await self._wait_until_late(is_given_up)
        await self._heal(key)

    async def _wait_until_late(self, is_given_up: Callable[[], bool]) -> None:
        """Wait until the others have given an agent up, or a moment longer: what they decide then is under way."""
        end_s = self._world.loop.time() + LATE_S
        while not is_given_up() and self._world.loop.time() < end_s:  # noqa: ASYNC110 - a condition on virtual time
            await asyncio.sleep(LOOK_S)
        await asyncio.sleep(self._chance.choice((0.0, 0.0, 0.05, 0.5, 5.0)) * self._chance.random())

    async def _heal(self, key: str) -> None:
        heal = self._open.pop(key, None)
        if heal is not None:
            self._transcript.note("nemesis", "heal", key)
            healing = heal()
            if healing is not None:
                await healing

    async def calm(self) -> None:
        """Heal all faults, and start every process that is down."""
        for key in tuple(self._open):
            await self._heal(key)
        self._world.network.cut.clear()
        for agent in self._servers:
            if not agent.is_up:
                agent.power_on()
        for client in self._clients:
            client.machine.faults = DriverFaults()
            client.machine.hardware.mend()
            if not client.is_up:
                client.start()

    async def _strike(self, kind: str) -> tuple[str, Heal | None]:
        """Inject a fault; returns its key ("": impossible now) and its cure (None: nothing to heal)."""
        if kind == "damage-snapshot":
            return await self._strike_snapshot()
        if kind == "late-server":
            return self._strike_leader()
        if kind.endswith("-server") or kind == "cut-one-way":
            return await self._strike_server(kind)
        if kind.endswith("-client"):
            return await self._strike_client(kind)
        if kind.startswith("etcd-") or kind in ("lose-packets", "reset-connections"):
            return self._strike_shared(kind)
        return await self._strike_any(kind)

    # Servers.

    def _spared(self) -> bool:
        """Whether another server can be taken down while a majority remains."""
        hurt = {key.partition(" ")[2] for key in self._open if "-server " in key or key.startswith("damage-")}
        return len(hurt) + 1 <= (len(self._servers) - 1) // 2 or self._chance.random() < OUTAGE

    async def _strike_server(self, kind: str) -> tuple[str, Heal | None]:
        agent, loop = self._chance.choice(self._servers), self._world.loop
        key = f"{kind} {agent.name}"
        if not agent.is_up or not self._spared() or any(agent.name in other for other in self._open):
            return "", None
        process = agent.process
        assert process is not None
        match kind:
            case "kill-server":
                await agent.kill()
                return key, agent.start
            case "power-server":
                await agent.kill(with_host=True)
                return key, agent.power_on
            case "pause-server":
                loop.pause(process)
                return key, lambda: loop.resume(process)
            case "cut-server":
                return key, self._cut(agent.host, self._hosts(), is_mutual=True)
            case "lag-server":
                return key, self._cut(agent.host, [each.host for each in self._servers], is_mutual=True)
            case _:
                others = self._chance.sample(self._hosts(), k=max(1, len(self._hosts()) // 2))
                return f"{kind} {agent.name}", self._cut(agent.host, others, is_mutual=False)

    def _strike_leader(self) -> tuple[str, Heal | None]:
        """Pause the leader until another server leads."""
        leading = [each for each in self._servers if each.is_up and each.server is not None and each.server.is_leader]
        agent = leading[0] if len(leading) == 1 else None
        if agent is None or not self._spared() or any(agent.name in other for other in self._open):
            return "", None
        process, others = agent.process, [each for each in self._servers if each is not agent]
        assert process is not None
        self._world.loop.pause(process)
        key = f"late-server {agent.name}"
        self._given_up[key] = lambda: any(each.server is not None and each.server.is_leader for each in others)
        return key, lambda: self._world.loop.resume(process)

    async def _strike_snapshot(self) -> tuple[str, Heal | None]:
        """Kill a server and damage its newest snapshot; a majority keeps undamaged snapshots."""
        victims = [each for each in self._servers[: (len(self._servers) - 1) // 2] if each.name not in self._damaged]
        agent = self._chance.choice(victims) if victims else None
        is_free = agent is not None and self._spared() and not any(agent.name in other for other in self._open)
        if agent is None or not agent.is_up or not agent.snapshots or not is_free:
            return "", None
        self._damaged.add(agent.name)
        await agent.kill()
        path = agent.snapshots[-1]
        data = bytearray(path.read_bytes())
        if self._chance.random() < 0.5:
            data = data[: self._chance.randrange(len(data))]
        else:
            data[self._chance.randrange(len(data))] ^= 0x10
        path.write_bytes(data)
        return f"damage-snapshot {agent.name}", agent.start

    def _agents(self) -> list[AnyAgent]:
        return [*self._servers, *self._clients]

    def _hosts(self) -> list[str]:
        return [each.host for each in self._agents()]

    def _cut(self, host: str, others: list[str], *, is_mutual: bool) -> Heal:
        cut, pairs = self._world.network.cut, {(host, other) for other in others if other != host}
        if is_mutual:
            pairs |= {(other, host) for _, other in tuple(pairs)}
        cut |= pairs

        def heal() -> None:
            cut.difference_update(pairs)

        return heal

    # Clients.

    async def _strike_client(self, kind: str) -> tuple[str, Heal | None]:
        client, loop = self._chance.choice(self._clients), self._world.loop
        key = f"{kind} {client.name}"
        if not client.is_up or any(client.name in other for other in self._open):
            return "", None
        process = client.process
        assert process is not None
        match kind:
            case "kill-client":
                await client.kill()
                return key, client.start
            case "power-client":
                await client.kill(with_host=True)
                return key, client.start
            case "pause-client":
                loop.pause(process)
                return key, lambda: loop.resume(process)
            case "late-client":
                self._given_up[key] = partial(self._is_missed, client)
                return key, self._cut(client.host, self._hosts(), is_mutual=True)
            case _:
                return key, self._cut(client.host, self._hosts(), is_mutual=True)

    def _is_missed(self, client: ClientAgent) -> bool:
        """Whether the servers have missed the heartbeat of a client."""
        node = newest_state(self._servers).nodes.get(client.node_id)
        return node is not None and node.status in status.NODE_UNRESPONSIVE

    # What all share.

    def _strike_shared(self, kind: str) -> tuple[str, Heal | None]:
        etcd, network = self._world.etcd, self._world.network
        if f"{kind} all" in self._open:
            return "", None
        match kind:
            case "etcd-leader":
                etcd.lead(self._chance.choice(etcd.hosts))
                return f"{kind} all", None
            case "etcd-lost-answers":
                etcd.lost_answers = self._chance.choice((0.05, 0.3))
                return f"{kind} all", lambda: setattr(etcd, "lost_answers", 0.0)
            case "etcd-slow":
                etcd.slow_s = self._chance.choice((0.05, 0.6))
                return f"{kind} all", lambda: setattr(etcd, "slow_s", 0.0)
            case "lose-packets":
                network.loss = self._chance.choice((0.01, 0.2))
                return f"{kind} all", lambda: setattr(network, "loss", 0.0)
            case _:
                network.reset_some(self._chance.choice((0.1, 0.5, 1.0)))
                return f"{kind} all", None

    # Any agent.

    async def _strike_any(self, kind: str) -> tuple[str, Heal | None]:
        agent = self._chance.choice(self._agents())
        key, process = f"{kind} {agent.name}", agent.process
        if process is None or process.is_dead or key in self._open:
            return "", None
        match kind:
            case "slow-host":
                return key, self._slow_host(agent.host)
            case "slow-threads":
                until_s = self._world.loop.time() + self._chance.uniform(1.0, 30.0)
                self._world.loop.threads.slow_until[process.name] = until_s
                return key, None
            case "clock-jump":
                process.clock_skew_s += self._chance.choice((-3600.0, -20.0, -0.5, 0.5, 20.0, 3600.0))
                return key, None
            case "resign" | "snapshot":
                return await self._strike_running_server(kind)
            case _:
                return self._strike_machine(kind)

    def _slow_host(self, host: str) -> Heal:
        slow = self._world.network.slow
        slow[host] = self._chance.choice((0.02, 0.3, 2.0))
        return lambda: slow.__delitem__(host) if host in slow else None

    async def _strike_running_server(self, kind: str) -> tuple[str, Heal | None]:
        agent = self._chance.choice(self._servers)
        server = agent.server
        if server is None or not agent.is_up or not server.log.loader.is_restored:
            return "", None
        work = (
            server.roles.resign() if kind == "resign" else server.log.snapshotter.save(keep=self._chance.randrange(50))
        )
        self._world.loop.spawn(agent.process, _quietly(work), f"{kind} {agent.name}")
        return f"{kind} {agent.name}", None

    def _strike_csi(self, key: str, client: ClientAgent) -> tuple[str, Heal | None]:
        """Let the plugin of a node fail, or end its tasks."""
        node, machine = client.machine.csi, client.machine
        if node is None:
            return "", None
        choice = self._chance.choice
        node.faults = CsiFaults(choice((0.0, 0.3, 1.0)), choice((0.0, 0.5)))
        if self._chance.random() < 0.3:
            for run in machine.live():
                if run.job_id == PLUGIN_JOB:
                    machine.end(run.handle.task_id, KILLED)
        return key, partial(_heal_csi, node)

    def _strike_machine(self, kind: str) -> tuple[str, Heal | None]:
        client = self._chance.choice(self._clients)
        key, faults, hardware = f"{kind} {client.name}", client.machine.faults, client.machine.hardware
        match kind:
            case "device-breaks":
                hardware.set_state(self._chance.choice(IDS), self._chance.choice(("it is too hot", GONE)))
                return key, hardware.mend
            case "device-fails":
                choice = self._chance.choice
                hardware.faults = DeviceFaults(choice((0.0, 0.4)), choice((0.0, 0.2)), breaks_off=choice((True, False)))
                return key, lambda: setattr(hardware, "faults", DeviceFaults())
            case "csi-fails":
                return self._strike_csi(key, client)
            case "slow-disk":
                client.disk.slow_s = self._chance.choice((0.05, 0.5, 3.0))
                return key, lambda: setattr(client.disk, "slow_s", 0.0)
            case "driver-fails":
                faults.start_fails, faults.call_fails = 0.3, self._chance.choice((0.0, 0.2))
                faults.end_lost = self._chance.choice((0.0, 0.2))
            case _:
                faults.start_slow = 0.7
        return key, lambda: setattr(client.machine, "faults", DriverFaults())


def _heal_csi(node: CsiNode) -> None:
    node.faults = CsiFaults()


async def _quietly(work: Awaitable[None]) -> None:
    """Run an action that may be refused while there is no leader."""
    try:
        await work
    except YurtError:
        return
