"""Bugs in the scheduler, the broker, the plan check and the duties of the leader."""

from __future__ import annotations

from typing import Final

from yurt.testing.sim.planted.patch import (
    CALM_USERS,
    CONCURRENT_PLANS,
    LATE_CLIENTS,
    RESTING,
    SLOWLY_RESTING,
    SMALL,
    Bug,
    Patch,
)

VOLUMES: Final = ("service", "batch", "update", *("volumes",) * 3)
FOLLOWERS_SCHEDULE: Final = {
    "splits_job_types": True, "servers": 5, "has_own_etcd": False, "users": 6, "user_pause_s": 0.5,
    "fault_pause_s": 1.5, "active_s": 60.0, "features": ("service", "batch", "update", "evaluate"),
}  # fmt: skip
"""Leaders that hand evaluations to the workers of followers."""
BUGS: Final[dict[str, Bug]] = {
    "ports-of-others-are-forgotten": Bug(
        (
            Patch("yurt.scheduler.capacity.ports", "bits = self.bits(address)\n", "bits = 0\n"),
            Patch(
                "yurt.scheduler.plan_check",
                'if _is_shared(in_use, exclusive, "port") or _takes_reserved(node, exclusive):',
                "if _takes_reserved(node, exclusive):",
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
        CONCURRENT_PLANS | {"clients": 1},
    ),
    "stopped-job-runs-on": Bug(
        (Patch("yurt.scheduler.reconcile.job", "if job is None or job.stop:", "if job is None:"),),
        ("D8", "200 s after"),
        CALM_USERS | {"features": ("service", "stop")},
    ),
    "blocked-evaluation-lost-on-failover": Bug(
        (
            Patch(
                "yurt.server.scheduling.eval_queue",
                "        for evaluation in blocked:\n            self._block(evaluation, now)\n",
                "",
            ),
        ),
        ("B2", "200 s after"),
        SMALL
        | {
            "faults": ("resign", "kill-server", "etcd-leader"),
            "fault_pause_s": 1.5,
            "clients": 1,
            "users": 6,
            "user_pause_s": 0.3,
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
    "drain-ends-early": Bug(
        (
            Patch("yurt.duties.drain", "    if not left.all:\n", "    if len(left.all) <= 1:\n"),
            Patch("yurt.fsm.nodes", "node.drain_strategy is None or not is_end:", "True:"),
        ),
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
    "completed-batch-runs-again": Bug(
        (
            Patch(
                "yurt.scheduler.reconcile.replacements",
                "return alloc.client_status == CLIENT_FAILED\n\n\ndef _service",
                "return None if alloc.client_status == CLIENT_COMPLETE else alloc.client_status == CLIENT_FAILED\n"
                "\n"
                "\n"
                "def _service",
            ),
        ),
        ("D4",),
        CALM_USERS | {"features": ("batch", "evaluate")},
    ),
    "names-are-given-twice": Bug(
        (Patch("yurt.scheduler.reconcile.alloc_names", "if index not in used)", "if index + 1 not in used)"),),
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
    "plan-on-an-old-snapshot": Bug(
        (
            Patch(
                "yurt.server.scheduling.plan_applier",
                "state, view = self._writer.state, self.predicted_state()",
                "state = view = self._writer.state",
            ),
        ),
        (),
        CONCURRENT_PLANS,
    ),
    "both-stay-on-reconnect": Bug(
        (
            Patch(
                "yurt.scheduler.reconcile.disconnects",
                "                if alloc.name == original.name\n                and alloc.id != original.id\n",
                "                if alloc.id == original.next_allocation\n"
                "                and alloc.client_status == CLIENT_UNKNOWN\n",
            ),
        ),
        ("D2", "D3"),
        LATE_CLIENTS
        | {
            "faults": ("late-client", "cut-client"),
            "features": ("service", "disconnect", "update", "stop", *("evaluate",) * 30),
            "active_s": 200.0,
            "user_pause_s": 3.0,
        },
    ),
    "node-is-ready-before-its-allocations": Bug(
        (
            Patch(
                "yurt.duties.nodes",
                "return asked if _has_reported(state, node) else status.NODE_INIT",
                "return asked",
            ),
        ),
        ("E1",),
        LATE_CLIENTS | {"features": ("service", "system")},
    ),
    "quota-is-overrun": Bug(
        (
            Patch(
                "yurt.scheduler.plan_check",
                "if is_limited:",
                "if rejected and is_limited:",
            ),
        ),
        ("C6",),
        SMALL
        | {
            "schedulers": 4,
            "features": ("service", "batch", "update", "quota"),
            "clients": 4,
            "users": 6,
            "faults": ("etcd-slow",),
            "fault_pause_s": 1.0,
        },
    ),
    "gang-is-half-placed": Bug(
        (
            Patch(
                "yurt.scheduler.job_types.gangs",
                "if part.members + part.placed < part.least:\n",
                "if part.members + part.placed < part.least and not part.placed:\n",
            ),
            Patch(
                "yurt.scheduler.job_types.gangs",
                '            assert name not in draft.failed or is_whole, (name, "below its minimum")\n'
                "            if missing := sum(max(0, part.least - part.members) for part in parts):\n",
                "            if is_whole and (missing := sum(max(0, part.least - part.members) for part in parts)):\n",
            ),
            Patch(  # in `apply` too, which refuses whatever would enlarge a gang in part
                "yurt.fsm.plans",
                "found, least = enlarged.get(group, (members[group], named))",
                "found, least = members[group], named",
            ),
        ),
        ("B6",),
        CALM_USERS | {"features": ("service", "batch", "update", "gang"), "user_pause_s": 0.3},
    ),
    "missed-unblock-is-not-seen": Bug(
        (
            Patch(
                "yurt.broker.blocked",
                "return at_node > evaluation.snapshot_index or self._known.unblocks(evaluation)",
                "return at_node > evaluation.snapshot_index",
            ),
        ),
        ("200 s after",),
        SLOWLY_RESTING,
    ),
    "ended-allocation-frees-nothing": Bug(
        (
            Patch(
                "yurt.server.scheduling.unblock_events",
                "    if after is None or is_client_terminal(after):\n        return True\n",
                "    if after is None:\n        return True\n",
            ),
        ),
        ("200 s after",),
        RESTING | {"features": ("service", "batch", "stop", "update"), "clients": 1},
    ),
    "freed-node-is-not-known": Bug(
        (Patch("yurt.server.scheduling.unblock_events", "        self._freed.note(node_ids, index)\n", ""),),
        ("200 s after",),
        RESTING | {"features": ("service", "batch", "stop", "update"), "clients": 1},
    ),
    "quota-stays-full": Bug(
        (
            Patch(
                "yurt.scheduler.job_types.full_limits",
                "    if not dimensions or (admitted and text != metric.gang):\n        return None\n",
                "",
            ),
        ),
        ("200 s after",),
        RESTING | {"features": ("service", "batch", "stop", "update", "quota")},
    ),
    "unblocked-evaluation-lost-at-its-ack": Bug(
        (
            Patch(
                "yurt.broker.eval_broker",
                "        if entry.requeued is not None:\n            self.enqueue(entry.requeued, now=now)\n",
                "",
            ),
        ),
        ("B2", "200 s after"),
        SMALL
        | {
            "faults": ("etcd-slow",),
            "features": ("service", "batch", "stop", "update"),
            "clients": 1,
            "user_pause_s": 0.2,
        },
    ),
    "returned-evaluation-is-lost": Bug(
        (
            Patch(
                "yurt.broker.eval_broker",
                "            self._delay(evaluation, entry.queue, now + delay)\n",
                "            del delay\n",
            ),
        ),
        ("B2", "200 s after"),
        SMALL | FOLLOWERS_SCHEDULE | {"faults": ("cut-server", "etcd-slow"), "user_pause_s": 0.4},
    ),
    "follower-lacks-the-last-plan": Bug(
        (
            Patch(
                "yurt.broker.eval_broker",
                "return max(self.evaluation.modify_index, self.stored_index)",
                "return self.evaluation.modify_index",
            ),
            Patch("yurt.fsm.plans", "rejected = _made_without_earlier(edit, plan)\n", "rejected = None\n"),
        ),
        ("D2", "200 s after"),
        SMALL | FOLLOWERS_SCHEDULE | {"faults": ("kill-server", "resign", "cut-server", "etcd-slow")},
    ),
    "superfluous-evaluation-stays": Bug(
        (Patch("yurt.broker.eval_broker", "        self._cancelable.update(job.pending)\n", ""),),
        ("B2", "200 s after"),
        CALM_USERS | {"features": ("service", "update", "evaluate"), "user_pause_s": 0.1, "users": 6},
    ),
    "blocked-evaluations-pile-up": Bug(
        (
            Patch(
                "yurt.broker.blocked",
                "            if new is current:\n                return False\n",
                "            if new is current:\n                self._superseded.pop()\n"
                "                return False\n",
            ),
            Patch(
                "yurt.broker.blocked",
                "return tuple(taken)",
                "return tuple(each for each in taken if each.evaluation.node_id)",
            ),
        ),
        ("B2", "200 s after"),
        CALM_USERS | {"features": ("service", "update", "evaluate"), "clients": 1, "user_pause_s": 0.2},
    ),
    "collector-takes-what-lives": Bug(
        (
            Patch(
                "yurt.duties.gc",
                "if not is_terminal(alloc) or alloc.modify_time > cutoff or",
                "if alloc.modify_time > cutoff or",
            ),
            Patch("yurt.fsm.evals", "if alloc is not None and is_terminal(alloc):", "if alloc is not None:"),
        ),
        ("D9",),
        SMALL
        | {
            "features": ("service", "batch", "stop", "gc", "purge", "disconnect"),
            "faults": ("late-client", "driver-slow"),
            "active_s": 60.0,
        },
    ),
    "equals-are-preempted": Bug(
        (
            Patch(
                "yurt.scheduler.placing.preemption",
                "and alloc.job.priority <= job.priority - PRIORITY_DELTA",
                "and alloc.job.priority <= job.priority",
            ),
            Patch(
                "yurt.scheduler.placing.preemption",
                "assert all(alloc.job is not None and alloc.job.priority < job.priority",
                "assert all(alloc.job is not None and alloc.job.priority <= job.priority",
            ),
        ),
        ("C5",),
        CALM_USERS | {"features": ("service", "batch", "update", "preemption"), "clients": 1},
    ),
    "launches-overlap": Bug(
        (
            Patch(
                "yurt.fsm.children",
                "if heeds_overlap and parent.periodic.prohibit_overlap and _has_live_child(edit, parent):",
                "if heeds_overlap and parent.periodic.prohibit_overlap and parent.stop:",
            ),
        ),
        ("D8",),
        CALM_USERS | {"features": ("batch", "periodic"), "active_s": 200.0, "user_pause_s": 5.0},
    ),
    "stopped-system-allocation-is-not-renewed": Bug(
        (
            Patch(
                "yurt.scheduler.job_types.system_diff",
                "is_renewed = is_wanted and node is not None and is_ready(node)",
                "is_renewed = job.type == JOB_SYSBATCH and is_wanted",
            ),
        ),
        ("200 s after",),
        RESTING | {"features": ("system", "alloc-stop")},
    ),
    "second-writer-is-placed": Bug(
        (
            Patch(
                "yurt.structs.volumes.host_access",
                "any(is_single_writer(volume, each) for each in (one, other))",
                "all(is_single_writer(volume, each) for each in (one, other))",
            ),
        ),
        ("C2",),
        CALM_USERS | {"features": VOLUMES, "clients": 1, "active_s": 60.0},
    ),
    "volume-in-use-is-deleted": Bug(
        (Patch("yurt.server.resources.host_volumes", "    if ids:\n", "    if len(ids) > 5:\n"),),
        ("D9",),
        CALM_USERS | {"features": VOLUMES, "clients": 1, "active_s": 60.0},
    ),
}
