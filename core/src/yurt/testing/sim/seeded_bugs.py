"""Bugs planted on purpose: the simulator must find each of them, or it would find no real one like it.

A bug is one or more replacements of text in modules of Yurt. They are made while the modules are imported, in a process
of their own (`install`), so the source on disk never changes. A text that no longer occurs exactly once fails
`tests/sim/test_planted_bugs.py`: whoever changes such a place gives the bug its new text.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, Final, NamedTuple

from yurt.sdk.value import no_entries


class Patch(NamedTuple):
    """A replacement in one module."""

    module: str
    old: str
    new: str


class Bug(NamedTuple):
    """What is wrong, and the plans in which it is looked for: what is fixed of each seed's plan."""

    patches: tuple[Patch, ...]
    finds: tuple[str, ...]
    """The beginnings of the problems by which it counts as found; empty for any."""
    plan: Mapping[str, Any] = no_entries()


SMALL: Final = {"clients": 2, "users": 3, "active_s": 40.0, "user_pause_s": 0.6, "fault_pause_s": 4.0, "calm_s": 200.0}
CALM_USERS: Final = SMALL | {"faults": (), "active_s": 25.0}
BUGS: Final[dict[str, Bug]] = {
    "apply-reads-its-own-clock": Bug(
        (Patch("yurt.fsm.allocs", "modify_time=command.now)", "modify_time=command.now + id(edit) % 1000)"),),
        ("A2",),
        CALM_USERS | {"features": ("service", "stop")},
    ),
    "unknown-append-counts-as-stored": Bug(
        (
            Patch(
                "yurt.storage.etcd.appending",
                'raise Unavailable(f"an append failed, {UNKNOWN}: {error}") from error',
                "term.head = head\n            return",
            ),
        ),
        ("A1", "A2", "E7", "D"),
        SMALL | {"faults": ("etcd-lost-answers",), "fault_pause_s": 3.0},
    ),
    "final-status-is-taken-back": Bug(
        (
            Patch(
                "yurt.fsm.allocs",
                "if is_client_terminal(alloc) and update.client_status != alloc.client_status:",
                "if update.client_status == alloc.client_status:",
            ),
        ),
        ("E7", "D"),
        SMALL | {"faults": ("cut-client", "pause-client"), "features": ("service", "batch"), "active_s": 150.0},
    ),
    "ports-of-others-are-forgotten": Bug(
        (
            Patch("yurt.scheduler.capacity.ports", "bits = self.bits(address)\n", "bits = 0\n"),
            Patch(
                "yurt.scheduler.plan_check",
                'if _is_shared(in_use, coming, "port") or _takes_reserved(node, coming):',
                "if _takes_reserved(node, coming):",
            ),
            Patch(
                "yurt.scheduler.capacity.ports",
                "port = low + self.salt % (high - low + 1)",
                "port = low + self.salt % 3",
            ),
        ),
        ("C2",),
        CALM_USERS | {"features": ("service", "update")},
    ),
    "capacity-is-not-checked-again": Bug(
        (
            Patch(
                "yurt.scheduler.plan_check", "if used[column] > offered[column]:\n                return name", "pass"
            ),
            Patch(
                "yurt.scheduler.plan_check",
                "frozenset([ids[row] for row in fits",
                "frozenset([ids[row] for row in touched",
            ),
        ),
        ("C1",),
        SMALL
        | {"servers": 5, "features": ("service", "batch", "update"), "users": 6, "user_pause_s": 0.1, "faults": ()},
    ),
    "stopped-job-runs-on": Bug(
        (Patch("yurt.scheduler.reconcile.job", "if job is None or job.stop:", "if job is None:"),),
        ("D8", "200 s after"),
        CALM_USERS | {"features": ("service", "stop")},
    ),
    "dispatch-token-is-forgotten": Bug(
        (Patch("yurt.fsm.children", "if token and edit.tx.count_where(", "if not token and edit.tx.count_where("),),
        ("D9",),
        CALM_USERS | {"features": ("batch", "dispatch"), "active_s": 60.0},
    ),
    "snapshot-leaves-a-table-out": Bug(
        (
            Patch(
                "yurt.fsm.snapshot",
                "    for table in state.tables():\n        codec =",
                '    for table in state.tables():\n        if table.name == "evals":\n            continue\n        codec =',
            ),
            Patch(
                "yurt.fsm.snapshot",
                "sum(len(table) for table in state.tables())))",
                'sum(len(table) for table in state.tables() if table.name != "evals")))',
            ),
        ),
        ("A7", "A2"),
        SMALL | {"faults": ("snapshot", "kill-server"), "fault_pause_s": 1.5},
    ),
    "blocked-evaluation-lost-on-failover": Bug(
        (
            Patch(
                "yurt.server.scheduling.eval_queue",
                "        for evaluation in blocked:\n            self._block(evaluation, now)\n",
                "",
            ),
        ),
        ("200 s after",),
        SMALL
        | {
            "faults": ("resign", "kill-server", "etcd-leader"),
            "fault_pause_s": 1.5,
            "clients": 1,
            "features": ("service", "batch", "stop", "update"),
        },
    ),
    "pending-evaluation-lost-on-failover": Bug(
        (
            Patch(
                "yurt.server.scheduling.eval_queue",
                'for evaluation in state.evals.where("status", status.EVAL_PENDING):\n            self._route',
                "for evaluation in ():\n            self._route",
            ),
        ),
        ("200 s after",),
        SMALL | {"faults": ("resign", "kill-server", "etcd-lost-answers"), "fault_pause_s": 1.5, "user_pause_s": 0.2},
    ),
    "restarted-agent-forgets-its-tasks": Bug(
        (
            Patch(
                "yurt.client.tasks.task_recovery",
                "elif await _is_found(runner, driver, record.handle, env):",
                "elif False:",
            ),
        ),
        ("E3", "200 s after"),
        SMALL | {"faults": ("kill-client",), "features": ("service",), "fault_pause_s": 2.0},
    ),
    "failed-stop-is-not-repeated": Bug(
        (
            Patch(
                "yurt.client.tasks.driver_calls",
                "failure = str(error)\n                await wait_or_sleep",
                'return ""\n                await wait_or_sleep',
            ),
        ),
        ("E3", "200 s after"),
        SMALL | {"faults": ("driver-fails",), "features": ("service", "stop", "update"), "fault_pause_s": 1.0},
    ),
    "report-lost-with-its-server": Bug(
        (
            Patch(
                "yurt.client.allocations.reports",
                "error)\n            return False",
                "error)\n            self._pending.clear()\n            return True",
            ),
        ),
        ("200 s after",),
        SMALL
        | {
            "faults": ("reset-connections", "kill-server", "etcd-slow"),
            "fault_pause_s": 1.0,
            "features": ("service", "batch", "update", "alloc-stop"),
        },
    ),
    "drain-ends-early": Bug(
        (Patch("yurt.duties.drain", "    if not left.all:\n", "    if len(left.all) <= 1:\n"),),
        ("D7",),
        CALM_USERS | {"features": ("service", "drain"), "active_s": 60.0},
    ),
    "failed-deployment-never-ends": Bug(
        (
            Patch(
                "yurt.duties.deployments",
                "    failure = failure_of(state, deployment, mint.now)\n",
                "    failure = None\n",
            ),
        ),
        ("200 s after",),
        CALM_USERS | {"features": ("service", "update"), "active_s": 60.0},
    ),
    "task-starts-before-its-record": Bug(
        (
            Patch("yurt.client.tasks.task_setup", "            await saving\n", ""),
            Patch("yurt.client.tasks.task_setup", "            saving.cancel()\n", "            pass\n"),
        ),
        ("E3", "E4", "D4", "200 s after"),
        SMALL | {"faults": ("kill-client", "slow-disk"), "features": ("service", "batch"), "fault_pause_s": 0.7},
    ),
    "completed-batch-runs-again": Bug(
        (
            Patch(
                "yurt.scheduler.reconcile.replacements",
                "return alloc.client_status == CLIENT_FAILED\n\n\ndef _service",
                "return None if alloc.client_status == CLIENT_COMPLETE else alloc.client_status == CLIENT_FAILED\n\n\ndef _service",
            ),
        ),
        ("D4",),
        CALM_USERS | {"features": ("batch", "evaluate")},
    ),
    "names-are-given-twice": Bug(
        (Patch("yurt.scheduler.reconcile.alloc_names", "if index not in taken)", "if index + 1 not in taken)"),),
        ("D2",),
        CALM_USERS | {"features": ("service", "scale", "alloc-stop")},
    ),
    "evaluation-is-never-acknowledged": Bug(
        (
            Patch(
                "yurt.server.scheduling.eval_queue",
                "self.broker.ack(delivery.evaluation.id, delivery.token, now=self._env.now())",
                "pass",
            ),
        ),
        ("200 s after",),
        CALM_USERS | {"features": ("service", "update"), "user_pause_s": 0.3},
    ),
}


class _Loader(importlib.abc.SourceLoader):
    """Loads a module with its replacements."""

    def __init__(self, path: str, patches: Sequence[Patch]) -> None:
        self._path = path
        self._patches = patches

    def get_filename(self, fullname: str) -> str:
        """The file on disk."""
        return self._path

    def get_data(self, path: str) -> bytes:
        """The changed source; compiled code is never taken from disk."""
        if not path.endswith(".py"):
            raise OSError(path)
        with open(path, encoding="utf-8") as file:
            return changed(file.read(), self._patches).encode()


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, patches: Sequence[Patch]) -> None:
        self._patches = patches

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        own = [patch for patch in self._patches if patch.module == fullname]
        if not own:
            return None
        found = importlib.machinery.PathFinder.find_spec(fullname, path)
        assert found is not None and found.origin is not None, fullname
        return importlib.util.spec_from_file_location(fullname, found.origin, loader=_Loader(found.origin, own))


def changed(source: str, patches: Sequence[Patch]) -> str:
    """The source with its replacements; raises ValueError where a text does not occur exactly once."""
    for patch in patches:
        if source.count(patch.old) != 1:
            raise ValueError(f"{patch.module} has {source.count(patch.old)} times: {patch.old}")
        source = source.replace(patch.old, patch.new)
    return source


def install(name: str) -> None:
    """Plant a bug in this process, before the modules are imported."""
    patches = BUGS[name].patches
    early = {patch.module for patch in patches} & sys.modules.keys()
    assert not early, f"imported before the bug was planted: {sorted(early)}"
    sys.meta_path.insert(0, _Finder(patches))
