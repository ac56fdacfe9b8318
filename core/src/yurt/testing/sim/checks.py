"""Invariants that hold at every commit, server and host; a violation ends the run.

Commits are checked once, when the first server applies them, and compared on the others. Numbers are those of the list
of invariants: A1 what was acknowledged is in the log, A2 servers agree, A3 one leader in a term, A5 indexes only grow,
A7 a restored state is the state, A12 the cluster's ID stays, B1 a job comes with its evaluation, C1 and C2 what lives
on a node fits, D2 names are unique, D4 a completed batch allocation is not run again, D7 a drain leaves nothing, D8 a
stopped job starts nothing, D9 a token makes one job, B2 no evaluation is lost, E2 tasks that the servers want are not
stopped, E7 an end is final, E10 an end has a reason; `change_checks` has those that look at more of a command's rows
together.
"""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Iterable

from yurt.fsm.snapshot import digest
from yurt.scheduler.devices.overbooking import overbooked
from yurt.sdk.value import replace
from yurt.server.scheduling.eval_queue import EvalQueue
from yurt.state import Change, Changes, Snapshot
from yurt.state.usage import usage_of
from yurt.structs import status
from yurt.structs.alloc import Allocation
from yurt.structs.commands import AnyCommand, RegisterJob
from yurt.structs.deployment import Deployment
from yurt.structs.job import Job
from yurt.structs.node import Node
from yurt.structs.predicates import is_client_terminal, is_terminal, runs_csi_plugin
from yurt.testing.sim.agents import SimServer
from yurt.testing.sim.campaign.coverage import Coverage
from yurt.testing.sim.change_checks import problem_of
from yurt.testing.sim.convergence import JobVersion
from yurt.testing.sim.csi.checks import problem_of_csi, second_publication, without_volume
from yurt.testing.sim.csi.plugin import CsiNode, CsiNodes, Mount
from yurt.testing.sim.driver import SimHost, SimTaskRun
from yurt.testing.sim.transcript import Transcript
from yurt.testing.sim.volumes.checks import problem_of_volumes, second_writer

KEPT_STATES = 2_000
"""States of the newest indexes that are kept to compare restored ones with."""
NOWHERE_S = 60.0
"""How long the end of an evaluation that left the queues may take to be stored, pauses and slow disks included."""
BATCHES = frozenset({status.JOB_BATCH, status.JOB_SYSBATCH})
JOBS_KEPT = 1_000
_job_digests: dict[int, tuple[Job, bytes]] = {}
"""Digests by the identity of a job, which is kept so that its identity is not given to another."""


Rows = list[tuple[str, object, object]]


class Violation(AssertionError):
    """An invariant does not hold."""


class Checks:
    """The checks of one run."""

    def __init__(
        self,
        transcript: Transcript,
        *,
        are_hosts_sound: bool = False,
        are_plugins_sound: bool = True,
        folder: str = "",
    ) -> None:
        """`are_hosts_sound`: no driver or device fails and no group has `stop_on_client_after`, so that agents have no
        reason of their own to stop a task. They restart a CSI plugin that is not ready within its `health_timeout`,
        unless `are_plugins_sound`. `folder` has another name in each run, which no digest may show."""
        self._folder = folder
        self._are_hosts_sound = are_hosts_sound
        self._are_plugins_sound = are_plugins_sound
        self.last_index = 0
        self.commands: dict[int, str] = {}
        """The command at each index, by its name and the row that it is about."""
        self.acknowledged: dict[int, str] = {}
        """Commands that users saw acknowledged, by the index in the answer."""
        self.starts: Counter[str] = Counter()
        """Runs of each task of an allocation, `<alloc id>/<task>`."""
        self.completed: set[str] = set()
        """Batch allocations that a commit said to be complete."""
        self.failed: set[JobVersion] = set()
        """The versions of jobs of which a deployment failed."""
        self._changes: dict[int, Rows | bytes] = {}
        """What each index changed; of old ones a digest."""
        self._digests: dict[int, bytes] = {}
        self._states: OrderedDict[int, Snapshot] = OrderedDict()
        self._indexes: dict[int, int] = {}
        self._leaders: dict[int, str] = {}
        self._nowhere_since: dict[tuple[int, str], float] = {}
        """Since when an evaluation that has not ended is in no queue of a term's leader."""
        self._tokens: dict[tuple[str, str, str], str] = {}
        """Jobs by the idempotency token that made them."""
        self.coverage = Coverage()
        self._transcript = transcript

    # Commits.

    def applied(self, server: SimServer, command: AnyCommand, changes: Changes) -> None:
        """Check a command that a server has applied."""
        state = server.state
        index = state.index
        before = self._indexes.get(id(server), 0)
        if index <= before:  # texts are made for violations only: these lines run for each command on each server
            raise Violation(f"A5 {server.config.name} went from index {before} to {index}")
        self._indexes[id(server)] = index
        name, known = _name_of(command), self._changes.get(index)
        if known is not None:
            if self.commands[index] != name:
                raise Violation(f"A1 index {index} holds {self.commands[index]} and {name}")
            is_same = self._digest_of(changes) == known if isinstance(known, bytes) else _rows_of(changes) == known
            if not is_same:
                raise Violation(f"A2 {server.config.name} changed other rows than others at index {index}: {name}")
            return
        content = self._digest_of(changes)
        _hold(index == self.last_index + 1, f"A1 index {index} follows {self.last_index}")
        self.last_index = index
        self.commands[index], self._changes[index] = name, _rows_of(changes)
        self._digests[index] = content
        before_it = self._states.get(index - 1)
        self._states[index] = state
        if len(self._states) > KEPT_STATES:
            oldest, _ = self._states.popitem(last=False)
            self._changes[oldest] = self._digests.pop(oldest)
        self._transcript.note(server.config.name.partition(".")[0], "commit", f"{index} {name} {content.hex()}")
        if isinstance(command, RegisterJob) and any(each.table == "jobs" for each in changes):
            is_started = command.evaluation is not None or command.job.stop or _waits(command)
            _hold(is_started, f"B1 job {command.job.id} was stored without an evaluation at index {index}")
        _hold(
            not self._leaders or not self._is_of_old_term(server),
            f"A3 {server.config.name} of an old term stores {index}",
        )
        self.coverage.applied(command, changes)
        self._check_changes(before_it or state, state, changes)
        if before_it is not None:
            problem = problem_of(before_it, state, command, changes)
            problem = problem or problem_of_volumes(before_it, state, changes)
            problem = problem or problem_of_csi(before_it, state, command, changes)
            _hold(not problem, problem)

    def _digest_of(self, changes: Changes) -> bytes:
        """A digest of the rows that a command wrote, over every field."""
        hasher = hashlib.blake2b(digest_size=8)
        for change in changes:
            row = change.after
            if isinstance(row, Allocation) and row.job is not None:
                hasher.update(_job_digest(row.job))
                row = replace(row, job=None)
            text = repr((change.table, change.key, row))
            hasher.update((text.replace(self._folder, "") if self._folder else text).encode())
        return hasher.digest()

    def _is_of_old_term(self, server: SimServer) -> bool:
        """Whether a server still stores commands of its term after a newer term began."""
        return server.is_leader and server.leader.leadership.epoch < max(self._leaders)

    def _check_changes(self, before: Snapshot, state: Snapshot, changes: Changes) -> None:
        """Check the changed rows, and the nodes and jobs around them; `before` is the state before the command."""
        nodes, jobs = dict[str, None](), dict[tuple[str, str], None]()
        for change in changes:
            if change.table == "allocs" and change.after is not None:
                self._check_alloc(before, state, change)
                nodes[change.after.node_id] = None
                jobs[(change.after.namespace, change.after.job_id)] = None
            elif change.table == "nodes" and change.after is not None:
                nodes[change.after.id] = None
                check_drain(state, change)
            elif change.table == "deployments" and change.after is not None:
                self._note_failed(change.after)
            elif change.table == "jobs" and change.before is None:
                self._check_token(change.after, state.index)
            elif change.table == "cluster_metadata":
                _hold(change.before is None, f"A12 the cluster has another ID since index {state.index}")
        for node_id in nodes:
            node = state.nodes.get(node_id)
            if node is not None:
                check_capacity(node, [each for each in state.allocs_of_node(node_id) if not is_terminal(each)])
        for key in jobs:
            check_names(state, state.allocs_of_job(*key))

    def _note_failed(self, deployment: Deployment) -> None:
        version = (deployment.namespace, deployment.job_id, deployment.job_create_index, deployment.job_version)
        if deployment.status == status.DEPLOYMENT_FAILED:
            self.failed.add(version)
        else:
            # A version whose failed deployment was collected may get another one, by which it must run again.
            self.failed.discard(version)

    def _check_alloc(self, earlier: Snapshot, state: Snapshot, change: Change) -> None:
        before, after = change.before, change.after
        where = f"allocation {after.id[:8]} of {after.job_id} at index {state.index}"
        if before is None:
            job = state.jobs.get((after.namespace, after.job_id))
            is_wanted = job is not None and not job.stop
            _hold(is_wanted or is_terminal(after), f"D8 {where} is new, and its job is stopped")
            self._check_run_once(earlier, after)
        elif is_client_terminal(before):
            _hold(
                after.client_status == before.client_status,
                f"E7 {where} was {before.client_status} and is {after.client_status}",
            )
        if is_client_terminal(after) and not (before is not None and is_client_terminal(before)):
            _hold(is_explained(after), f"E10 {where} is {after.client_status}, and nothing says why")
        if after.client_status == status.CLIENT_COMPLETE and after.job is not None and after.job.type in BATCHES:
            self.completed.add(after.id)

    def _check_run_once(self, before: Snapshot, new: Allocation) -> None:
        """D4: a completed batch allocation's name is not placed again in that version, unless requested.

        `before` is the state before the command, which may ask the completed one to stop as it replaces it.
        """
        job = new.job
        if job is None or job.type not in BATCHES:
            return
        for other in before.allocs_of_job(new.namespace, new.job_id):
            is_same = other.job is not None and (other.job.version, other.job.create_index) == (
                job.version, job.create_index,
            )  # fmt: skip
            is_done = other.id in self.completed and other.desired_status == status.DESIRED_RUN
            is_here = other.name == new.name and (job.type == status.JOB_BATCH or other.node_id == new.node_id)
            if is_same and is_done and is_here:
                raise Violation(
                    f"D4 {new.name} of {new.job_id} completed as {other.id[:8]}, and is placed again as {new.id[:8]}"
                )

    def _check_token(self, job: Job, index: int) -> None:
        """D9: an idempotency token creates one job while that job exists."""
        token = job.dispatch_idempotency_token
        if token:
            key = (job.namespace, job.parent_id, token)
            known = self._tokens.get(key)
            is_gone = known is None or (job.namespace, known) not in self._states[index].jobs
            _hold(is_gone, f"D9 token {token} made {known} and {job.id}")
            self._tokens[key] = job.id

    def restored(self, server: SimServer) -> None:
        """Check a state that a server restored from a snapshot, the log or another server."""
        state = server.state
        self._indexes[id(server)] = state.index
        self._transcript.note(server.config.name.partition(".")[0], "restored", f"{state.index}")
        known = self._states.get(state.index)
        if known is not None:
            _hold(digest(known) == digest(state), f"A7 {server.config.name} restored another state at {state.index}")

    def leads(self, server: SimServer, epoch: int, now_s: float) -> None:
        """Check a leader: it tracks each pending and blocked evaluation (B2), or stores its end."""
        known = self._leaders.setdefault(epoch, server.config.name)
        _hold(known == server.config.name, f"A3 {known} and {server.config.name} lead in term {epoch}")
        if server.term is not None:
            nowhere = [(epoch, eval_id) for eval_id in _nowhere(server.term.queue, server.state)]
            self._nowhere_since = {key: self._nowhere_since.get(key, now_s) for key in nowhere}
            lost = [key[1][:8] for key, since_s in self._nowhere_since.items() if now_s - since_s > NOWHERE_S]
            _hold(not lost, f"B2 evaluations {lost}, which have not ended, are nowhere at {server.config.name}")

    # Users and hosts.

    def acknowledge(self, index: int, what: str) -> None:
        """Record that a user got the index at which a command is stored."""
        self.acknowledged[index] = what

    def started(self, host: SimHost, run: SimTaskRun) -> None:
        """Check a task that a host has started."""
        self._transcript.note(host.name, "start", run.handle.task_id)
        self.starts[f"{run.alloc_id}/{run.task}"] += 1
        _hold(run.alloc_id not in self.completed, f"D4 completed allocation {run.alloc_id} is run again")
        twins = [each for each in host.live() if (each.alloc_id, each.task) == (run.alloc_id, run.task)]
        _hold(len(twins) == 1, f"E3 task {run.task} of allocation {run.alloc_id} runs {len(twins)} times")
        problem = second_writer(self._states[self.last_index], host, run) if run.written and self._states else ""
        problem = problem or without_volume(host, run)
        _hold(not problem, problem)

    def published(self, nodes: CsiNodes, node: CsiNode, mount: Mount) -> None:
        """Check a CSI volume that has been mounted."""
        self._transcript.note(node.name, "mount", f"{mount.volume_id} for {mount.alloc_id[:8]}")
        problem = second_publication(self._states[self.last_index], nodes, node, mount)
        _hold(not problem, problem)

    def ended(self, host: SimHost, run: SimTaskRun) -> None:
        """Record in the transcript that a task has ended."""
        assert run.result is not None
        self._transcript.note(host.name, "end", f"{run.handle.task_id} {run.result.exit_code}")

    def stopped(self, host: SimHost, run: SimTaskRun) -> None:
        """E2: an agent whose driver and devices work stops only tasks that the servers do not want any more."""
        alloc = self._states[self.last_index].allocs.get(run.alloc_id) if self._states else None
        is_wanted = alloc is not None and alloc.desired_status == status.DESIRED_RUN and not is_client_terminal(alloc)
        is_plugin = alloc is not None and alloc.job is not None and runs_csi_plugin(alloc.job)
        is_sound = self._are_hosts_sound and (self._are_plugins_sound or not is_plugin)
        _hold(
            not (is_wanted and is_sound),
            f"E2 {host.name} stops {run.task} of {run.alloc_id}, which the servers want to run",
        )

    # The end.

    def finish(self, servers: Iterable[SimServer]) -> None:
        """Check the end of the run, when all servers have caught up."""
        found = {(server.state.index, digest(server.state)) for server in servers}
        _hold(len(found) == 1, f"A2 servers differ at the end: {sorted(found)}")
        for index, what in self.acknowledged.items():
            stored = self.commands.get(index, "nothing")
            _hold(stored == what, f"A1 {what} was acknowledged at index {index}, where {stored} is")


def _nowhere(queue: EvalQueue, state: Snapshot) -> list[str]:
    """The ids of the evaluations that a leader should track, and does not."""
    waiting = {each.id for each in queue.blocked.all()}
    return sorted(
        each.id
        for kind in (status.EVAL_PENDING, status.EVAL_BLOCKED)
        for each in state.evals.each_where("status", kind)
        if each.id not in waiting and not queue.broker.place(each.id)
    )


def is_explained(alloc: Allocation) -> bool:
    """Whether an ended allocation tells why: by an event of each started task, or by a description."""
    states = [each for each in alloc.task_states.values() if each.started_at or each.finished_at]
    return bool(alloc.client_description or alloc.desired_description or states) and all(each.events for each in states)


def check_capacity(node: Node, allocs: list[Allocation]) -> None:
    """C1 and C2: the allocations of a node fit, and no exclusive resource is assigned twice."""
    usages = [usage_of(each) for each in allocs]
    resources, reserved = node.node_resources, node.reserved_resources
    cpu, memory = sum(each.cpu for each in usages), sum(each.memory for each in usages)
    disk = sum(each.disk for each in usages)
    _hold(cpu <= resources.cpu.cpu_shares - reserved.cpu.cpu_shares, f"C1 {node.name} gives {cpu} MHz")
    _hold(memory <= resources.memory.memory_mb - reserved.memory.memory_mb, f"C1 {node.name} gives {memory} MiB")
    _hold(disk <= resources.disk.disk_mb - reserved.disk.disk_mb, f"C1 {node.name} gives {disk} MiB of disk")
    for what in ("ports", "cores", "volumes"):
        held = [key for each in usages for key in getattr(each, what)]
        if len(held) != len(set(held)):
            raise Violation(f"C2 {node.name} gives {what} twice: {sorted(held)}")
    devices = [key for each in usages for key in each.devices]
    _hold(not overbooked(node, devices, devices), f"C2 {node.name} gives devices twice")


def check_drain(state: Snapshot, change: Change) -> None:
    """D7: when a drain is complete, no allocation that it must move is desired or runs on the node."""
    before, after = change.before, change.after
    is_ended = before is not None and before.drain_strategy is not None and after.drain_strategy is None
    if not is_ended or after.last_drain is None or after.last_drain.status != status.DRAIN_COMPLETE:
        return
    left = [
        each.id[:8]
        for each in state.allocs_of_node(after.id)
        if not is_terminal(each) and each.job is not None and each.job.type != status.JOB_SYSTEM
    ]
    _hold(not left, f"D7 the drain of {after.name} is complete at index {state.index}, and {left} are left")


def check_names(state: Snapshot, allocs: Iterable[Allocation]) -> None:
    """D2: no two allocations of one version share a name, except an allocation and its successor."""
    names = Counter(
        (each.name, each.node_id if _is_per_node(each) else "", each.job.version if each.job else 0)
        for each in allocs
        if not is_terminal(each) and each.client_status != status.CLIENT_UNKNOWN and not _has_successor(state, each)
    )
    twice = [name for name, count in names.items() if count > 1]
    _hold(not twice, f"D2 names are held twice at index {state.index}: {twice}")


def _is_per_node(alloc: Allocation) -> bool:
    return alloc.job is not None and alloc.job.type in (status.JOB_SYSTEM, status.JOB_SYSBATCH)


def _has_successor(state: Snapshot, alloc: Allocation) -> bool:
    """Whether it was replaced; the first of several replacements of a disconnected one may be collected by now."""
    return bool(alloc.next_allocation) and (bool(alloc.alloc_states) or alloc.next_allocation in state.allocs)


def _waits(command: RegisterJob) -> bool:
    """Whether the job gets no evaluation at its registration: it is periodic or parameterized."""
    return command.job.periodic is not None or command.job.parameterized_job is not None


def _name_of(command: AnyCommand) -> str:
    name = type(command).__name__
    if isinstance(command, RegisterJob):
        return f"{name} {command.job.id}"
    job_id = getattr(command, "job_id", "")
    return f"{name} {job_id}" if job_id else name


def _rows_of(changes: Changes) -> Rows:
    """The rows that a command wrote; comparing them is much cheaper than encoding them."""
    return [(change.table, change.key, change.after) for change in changes]


def _job_digest(job: Job) -> bytes:
    """A digest of a job; the allocations of a version share it, and its text is longer than all else of theirs."""
    known = _job_digests.get(id(job))
    if known is None:
        if len(_job_digests) >= JOBS_KEPT:
            _job_digests.clear()
        known = _job_digests[id(job)] = (job, hashlib.blake2b(repr(job).encode(), digest_size=8).digest())
    return known[1]


def _hold(is_held: bool, text: str) -> None:
    if not is_held:
        raise Violation(text)
