"""Runs one plan: agents start, users and the nemesis act, faults stop, and the cluster must settle."""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import ParamSpec

import msgspec

from yurt.sdk.errors import YurtError
from yurt.server.log.event_buffer import Event
from yurt.testing.sim.agents import (
    AnyAgent,
    ClientAgent,
    Directory,
    ServerAgent,
    ServerChecks,
    SimServer,
    World,
    member,
)
from yurt.testing.sim.checks import Checks, Violation
from yurt.testing.sim.convergence import IN_TIME, draining, newest_state, problems_of, problems_of_devices
from yurt.testing.sim.csi.checks import problems_at_rest, unmounted_below
from yurt.testing.sim.csi.plugin import CsiChecks, CsiNode, CsiNodes
from yurt.testing.sim.driver import RunChecks
from yurt.testing.sim.etcd import SimEtcd
from yurt.testing.sim.foreign.boards import BOARDS
from yurt.testing.sim.foreign.plugins import NOTHING_FOREIGN, Foreign
from yurt.testing.sim.hardware import IDS
from yurt.testing.sim.histories import SimClients
from yurt.testing.sim.host import simulated_machine
from yurt.testing.sim.loop import PROCESS, SimLoop, run_on
from yurt.testing.sim.nemesis import Nemesis
from yurt.testing.sim.network import SimNetwork
from yurt.testing.sim.plan import Plan
from yurt.testing.sim.transcript import Transcript
from yurt.testing.sim.volumes.checks import missing_mount
from yurt.testing.sim.watchers import EventReaders, Terms, TrimmedLog, WaitingNodes, leaks_of
from yurt.testing.sim.workload import Users

P = ParamSpec("P")

MEMORY = Path("/dev/shm")
LOOK_S = 3.7
"""The pause between two looks at a cluster that settles; it divides no period of the workload: looks each 5 s would all
see the end of tasks that run for 60 s and began at a look."""
LOOK_OFTEN_S = 0.25
START_S = 60.0


@dataclass
class Report:
    """The result of a run; `problem` is "" for a clean one."""

    plan: Plan
    problem: str
    digest: str
    virtual_s: float
    cpu_s: float
    index: int
    counts: Counter[str]
    coverage: Counter[str] = field(repr=False, default_factory=Counter)
    transcript: list[str] = field(repr=False, default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether the run found no problem."""
        return not self.problem


class Cluster:
    """The agents of a run, its users and its nemesis."""

    def __init__(
        self, plan: Plan, loop: SimLoop, folder: Path, foreign: Foreign = NOTHING_FOREIGN, *, csi: CsiNodes
    ) -> None:
        hosts = tuple(f"10.0.0.{number + 1}" for number in range(plan.servers))
        network = loop.network = SimNetwork(loop, plan.seed)
        self.plan = plan
        if plan.has_devices and foreign.devices is None:
            foreign = foreign._replace(devices=BOARDS)
        self.loop = loop
        etcd = SimEtcd(network, hosts, plan.seed, on_write=self._noted(Terms().wrote))
        self.world = World(
            loop, network, etcd, folder, plan.seed, plan.has_acl, foreign, plan.schedulers, plan.failover_ttl_s,
            has_volumes="volumes" in plan.features, splits_job_types=plan.splits_job_types,
            csi=csi if "csi" in plan.features else None,
        )  # fmt: skip
        self.transcript = Transcript(loop)
        is_sound = not plan.has_devices and "driver-fails" not in plan.faults and "client-stop" not in plan.features
        self.checks = Checks(
            self.transcript,
            are_hosts_sound=is_sound,
            are_plugins_sound="csi-fails" not in plan.faults,
            folder=str(folder),
        )
        directory = Directory(tuple(member(f"srv{at}", host) for at, host in enumerate(hosts, 1)))
        own_etcd, checks = plan.has_own_etcd, self.checks
        self.readers = EventReaders()
        csi.checks = CsiChecks(self._noted(partial(checks.published, csi)), self._noted(self._unmounted))
        server_checks = ServerChecks(
            self._noted(checks.applied), self._noted(checks.restored), self._noted(self._got_event)
        )
        stopped = self._noted(checks.stopped)
        run_checks = RunChecks(self._noted(checks.started), self._noted(checks.ended), stopped, loop.failures.append)
        self.servers = [
            ServerAgent(self.world, f"srv{at}", host, directory, has_own_etcd=own_etcd, checks=server_checks)
            for at, host in enumerate(hosts, 1)
        ]
        addresses = tuple(f"{host}:4647" for host in hosts)
        self.clients = [
            ClientAgent(self.world, f"node{at}", f"10.0.{1 + at // 250}.{at % 250}", addresses, checks=run_checks)
            for at in range(1, plan.clients + 1)
        ]
        servers, clients = self.servers, self.clients
        self.trimmed, self.waiting = TrimmedLog(self.world.etcd, servers), WaitingNodes()
        self.nemesis = Nemesis(
            self.world, plan, self.transcript, servers=servers, clients=clients, coverage=self.checks.coverage
        )
        self.users = Users(plan, self.transcript, self.checks, servers=servers, clients=clients, foreign=foreign)
        self.users.csi_has_controller = csi.has_controller

    def _unmounted(self, node: CsiNode, path: str) -> None:
        host = next(each.machine for each in self.clients if each.machine.csi is node)
        if problem := unmounted_below(host, path):
            raise Violation(problem)

    def _got_event(self, server: SimServer, event: Event, is_first: bool) -> None:
        if problem := self.readers.got(server, event, is_first):
            raise Violation(problem)

    def _noted(self, check: Callable[P, None]) -> Callable[P, None]:
        """Wrap a check so that a violation ends the run instead of the code under check."""

        def run(*args: P.args, **kwargs: P.kwargs) -> None:
            try:
                check(*args, **kwargs)
            except Exception as error:
                self.loop.failures.append(_error_text(error))

        return run

    async def run(self) -> None:
        """Run from the first start until the cluster has settled; raises Violation."""
        agents: list[AnyAgent] = [*self.servers, *self.clients]
        for agent in agents:
            agent.start()
        await self._wait_until(self._is_ready, START_S, "the cluster does not start")
        await self.users.begin()
        async with asyncio.TaskGroup() as group:
            acting = [group.create_task(self.users.run())]
            histories = SimClients(self.servers, self.plan) if "histories" in self.plan.features else None
            driving = group.create_task(histories.drive()) if histories is not None else None
            if self.plan.faults:
                acting.append(group.create_task(self.nemesis.run()))
            await self._watch(self.plan.active_s)
            for task in acting:
                task.cancel()
            self.transcript.note("nemesis", "calm")
            await self.nemesis.calm()
            if histories is not None and driving is not None:
                histories.finish()
                await self._wait_until(driving.done, self.plan.calm_s, "clients do not finish")
        await self._wait_until(self._is_ready, self.plan.calm_s, "the cluster does not recover")
        await self._end_drains()
        await self.users.end_launches()
        await self.users.settle_nodes()
        if self.world.foreign.devices is not None:
            await self._break_devices()
        await self._settle(awaits_deployments=not self.plan.rest_actions)
        self.world.etcd.slow_s = self.plan.rest_slow_s
        for left in reversed(range(self.plan.rest_actions)):
            await self.users.act_at_rest()
            await self._settle(awaits_deployments=not left)
        if leaks := leaks_of(self.servers, self.clients, self.world.folder):
            raise Violation("; ".join(leaks))
        self.checks.finish(server.server for server in self.servers if server.server is not None)
        if histories is not None and (problem := histories.problem()):
            raise Violation(f"L1 no order explains a history: {problem}")

    def _is_ready(self) -> bool:
        servers = [each.server for each in self.servers]
        is_led = all(each is not None and each.leader_name for each in servers)
        return is_led and all(map(_is_ready, self.clients))

    def _not_ready(self) -> str:
        """The names of the agents that are not ready."""
        found = [each.name for each in self.servers if each.server is None or not each.server.leader_name]
        return ", ".join([*found, *(each.name for each in self.clients if not _is_ready(each))])

    async def _watch(self, seconds: float) -> None:
        """Let time pass; ends the run early at the first problem."""
        end_s = self.loop.time() + seconds
        while self.loop.time() < end_s:
            await asyncio.sleep(LOOK_OFTEN_S)
            self._look()

    def _look(self) -> None:
        if self.loop.failures:
            raise Violation(self.loop.failures[0])
        if problem := self.trimmed.problem(self.loop.time()):
            raise Violation(problem)
        state = newest_state(self.servers)
        if problem := self.waiting.problem(state, self.nemesis.unhindered, self.loop.time()):
            raise Violation(problem)
        if self.world.has_volumes and (problem := missing_mount(state, (each.machine for each in self.clients))):
            raise Violation(problem)
        for agent in self.servers:
            server = agent.server
            if server is not None and agent.is_up and server.is_leader:
                self.checks.leads(server, server.leader.leadership.epoch, self.loop.time())

    async def _wait_until(self, condition: object, limit_s: float, text: str) -> None:
        end_s = self.loop.time() + limit_s
        while not condition():  # type: ignore[operator]
            await self._watch(0.5)
            if self.loop.time() > end_s:
                raise Violation(f"{text} within {limit_s:g} s: {self._not_ready()}")

    async def _end_drains(self) -> None:
        """D7: a drain with a deadline completes."""
        end_s = self.loop.time() + self.plan.calm_s
        while left := draining(self.servers):
            if self.loop.time() > end_s:
                raise Violation(f"D7 {self.plan.calm_s:g} s after the last fault the drains of {left} have not ended")
            await self._watch(LOOK_S)

    async def _break_devices(self) -> None:
        """P3: the servers learn that a device of each node breaks while nothing else fails."""
        for client in self.clients:
            client.machine.hardware.set_state(IDS[0], "it is too hot")
        end_s = self.loop.time() + self.plan.calm_s
        while problems := problems_of_devices(self.servers, self.clients):
            if self.loop.time() > end_s:
                raise Violation(f"{problems[0]}, {self.plan.calm_s:g} s after it changed")
            await self._watch(0.5)
        for client in self.clients:
            client.machine.hardware.mend()

    async def _settle(self, *, awaits_deployments: bool = True) -> None:
        """Wait for the cluster to settle within the plan's time; raises what is left then.

        A service whose tasks end each minute keeps its deployment in time for ever, and is never at rest for long: such
        deployments are waited for as long as the plan says, and other problems count once each look of that time found
        some.
        """
        begin_s = rested_s = self.loop.time()
        calm_s, has_devices = self.plan.calm_s, self.world.foreign.devices is not None
        while problems := self._problems(has_devices=has_devices):
            now_s, left = self.loop.time(), [each for each in problems if not each.endswith(IN_TIME)]
            if not left:
                rested_s = now_s
                if not awaits_deployments or now_s > begin_s + calm_s:
                    return
            elif now_s > rested_s + calm_s:
                raise Violation(f"{calm_s:g} s after the last fault: {'; '.join(left[:5])}")
            await self._watch(LOOK_S)

    def _problems(self, *, has_devices: bool) -> list[str]:
        found = problems_of(self.servers, self.clients, failed=self.checks.failed, has_devices=has_devices)
        csi, state = self.world.csi, newest_state(self.servers)
        if csi is not None:
            found += problems_at_rest(state, csi, (each.node_id for each in self.clients))
        return found


def _is_ready(client: ClientAgent) -> bool:
    return client.client is not None and client.client.is_ready


class _Errors(logging.Handler):
    """A log handler that collects unexpected failures."""

    def __init__(self, loop: SimLoop) -> None:
        super().__init__(logging.ERROR)
        self._loop = loop

    def emit(self, record: logging.LogRecord) -> None:
        """Fail the run for a logged exception outside the closed set; logs of dead processes are ignored."""
        process = PROCESS.get()
        error = record.exc_info[1] if record.exc_info else None
        if error is None or isinstance(error, YurtError) or (process is not None and process.is_dead):
            return
        place = "".join(traceback.format_exception(error)[-6:])
        self._loop.failures.append(f"{self._loop.time():.6f} {record.getMessage()}: {error!r}\n{place}")


def run_plan(plan: Plan, foreign: Foreign = NOTHING_FOREIGN) -> Report:
    """Run a plan, optionally with third-party plugins; problems found are in the report, never raised."""
    loop, begin = SimLoop(plan.seed), time.process_time()
    folder = Path(tempfile.mkdtemp(prefix="yurt-sim-", dir=MEMORY if MEMORY.is_dir() else None))
    errors, logger = _Errors(loop), logging.getLogger("yurt")
    level, propagates = logger.level, logger.propagate
    problem, cluster = "", None
    logger.addHandler(errors)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        csi = CsiNodes(loop, plan.seed)
        with simulated_machine(folder, plan.seed, turn_s=plan.turn_s, csi=csi), warnings.catch_warnings():
            warnings.simplefilter("always", RuntimeWarning)
            warnings.showwarning = lambda message, *_: _warned(loop, str(message))
            cluster = Cluster(plan, loop, folder, foreign, csi=csi)
            try:
                run_on(loop, cluster.run())
            except BaseExceptionGroup as group:
                problem = _first(group)
            except Exception as error:
                problem = _error_text(error)
            problem = problem or (loop.failures[0] if loop.failures else "")
    finally:
        logger.removeHandler(errors)
        logger.setLevel(level)
        logger.propagate = propagates
        for agent in cluster.servers if cluster is not None else ():
            agent.close_files()
        shutil.rmtree(folder, ignore_errors=True)
    transcript = cluster.transcript
    return Report(
        plan=plan,
        problem=problem,
        digest=transcript.digest,
        virtual_s=loop.time(),
        cpu_s=time.process_time() - begin,
        index=cluster.checks.last_index,
        counts=transcript.counts,
        coverage=cluster.checks.coverage.counts,
        transcript=transcript.lines,
    )


def report_text(report: Report) -> str:
    """The result of a run as text, with the command that repeats it."""
    head = (
        f"seed {report.plan.seed}: {report.problem or 'clean'}\n  digest {report.digest}, {report.index} commits, "
        f"{report.virtual_s:.0f} s virtual, {report.cpu_s:.1f} s of CPU"
    )
    if report.is_clean:
        return head
    return f"{head}\n  replay: python -m yurt.testing.sim --plan '{msgspec.json.encode(report.plan).decode()}'"


def _warned(loop: SimLoop, text: str) -> None:
    if "never awaited" in text:
        loop.failures.append(text)


def _first(group: BaseExceptionGroup[BaseException]) -> str:
    """The first exception within nested groups."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            return _first(error)
        return _error_text(error)
    return str(group)


def _error_text(error: BaseException) -> str:
    if isinstance(error, Violation):
        return str(error)
    return "".join(traceback.format_exception(error)[-8:])
