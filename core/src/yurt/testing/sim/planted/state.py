"""Bugs in the state machine: what commands do to the state, and what they refuse."""

from __future__ import annotations

from typing import Final

from yurt.testing.sim.planted.patch import (
    CALM_USERS,
    CONCURRENT_PLANS,
    LATE_CLIENTS,
    REQUESTS,
    RESTING,
    SMALL,
    Bug,
    Patch,
)

BUGS: Final[dict[str, Bug]] = {
    "apply-reads-its-own-clock": Bug(
        (Patch("yurt.fsm.allocs", "modify_time=command.now)", "modify_time=command.now + id(edit) % 1000)"),),
        ("A2",),
        CALM_USERS | {"features": ("service", "stop")},
    ),
    "final-status-is-taken-back": Bug(
        (
            Patch(
                "yurt.fsm.allocs",
                "if is_client_terminal(alloc) and update.client_status != alloc.client_status:",
                "if update.client_status == alloc.client_status:",
            ),
        ),
        (),  # an assertion of the state machine is first
        SMALL | {"faults": ("cut-client", "pause-client"), "features": ("service", "batch"), "active_s": 150.0},
    ),
    "cluster-gets-a-second-id": Bug(
        (
            Patch(
                "yurt.fsm.cluster",
                '    if existing is not None:\n        return conflict(f"the cluster has',
                '    if False:\n        return conflict(f"the cluster has',
            ),
            Patch("yurt.server.log.cluster_identity", "return bool(cluster_id_of(self._writer.state)) or", "return"),
        ),
        ("A12",),
        CALM_USERS | {"features": ("service",)},
    ),
    "dispatch-token-is-forgotten": Bug(
        (Patch("yurt.fsm.children", "if token and edit.tx.count_where(", "if not token and edit.tx.count_where("),),
        ("D9",),
        CALM_USERS | {"features": ("batch", "dispatch"), "active_s": 60.0},
    ),
    "registration-checks-then-acts": Bug(
        (Patch("yurt.server.resources.jobs", '                expectation(state, "jobs", job.key),\n', ""),),
        ("L1",),
        REQUESTS | {"histories": ("job",)},
    ),
    "lock-is-given-twice": Bug(
        (
            Patch(
                "yurt.fsm.variables",
                "    if existing is not None and existing.lock is not None and existing.lock.id != variable.lock.id:\n"
                '        return conflict("variable is already locked")\n',
                "",
            ),
        ),
        ("L1",),
        REQUESTS | {"histories": ("variable",)},
    ),
    "lock-is-ignored-by-deletion": Bug(
        (
            Patch(
                "yurt.fsm.variables",
                "    refused = _refused(existing, command.check_index, command.lock_id)\n"
                "    if refused is None and existing",
                "    unlocked = existing and replace(existing, lock=None)\n"
                '    refused = _refused(unlocked, command.check_index, "")\n'
                "    if refused is None and existing",
            ),
        ),
        ("L1",),
        REQUESTS | {"histories": ("variable",)},
    ),
    "lock-is-released-by-anyone": Bug(
        (
            Patch(
                "yurt.fsm.variables",
                "if existing.lock is None or existing.lock.id != command.lock_id:",
                "if existing.lock is None:",
            ),
        ),
        ("L1",),
        REQUESTS | {"histories": ("variable",)},
    ),
    "check-index-zero-is-none": Bug(
        (
            Patch(
                "yurt.fsm.variables",
                "if check_index is not None and check_index != at:",
                "if check_index and check_index != at:",
            ),
        ),
        ("L1",),
        REQUESTS | {"histories": ("variable",)},
    ),
    "revoked-token-is-accepted": Bug(
        (
            Patch(
                "yurt.acl.resolver",
                "return (state.acl_tokens, state.acl_roles, state.acl_policies, alloc)",
                "return (state.acl_roles, state.acl_policies, alloc)",
            ),
        ),
        ("L1",),
        REQUESTS | {"histories": ("ACL token",), "has_acl": True},
    ),
    "plan-for-a-stopped-job": Bug(
        (
            Patch(
                "yurt.fsm.plans",
                "if job is None or job.job_modify_index > index:",
                "if job is None:",
            ),
        ),
        ("D8",),
        CALM_USERS | {"features": ("service", "batch", "stop"), "users": 6, "user_pause_s": 0.1, "active_s": 40.0},
    ),
    "returned-node-loses-its-tasks": Bug(
        (Patch("yurt.fsm.plans", "    plan = _without_returned(edit, plan)\n", ""),),
        (),
        LATE_CLIENTS,
    ),
    "replacement-is-not-linked": Bug(
        (
            Patch(
                "yurt.fsm.plans",
                "        if placement.previous_allocation:\n            _link(edit, placement)\n",
                "        if placement.previous_allocation and plan.deployment is not None:\n"
                "            _link(edit, placement)\n",
            ),
        ),
        ("D2", "D3", "D4", "200 s after"),
        CALM_USERS | {"features": ("service", "batch", "update"), "active_s": 60.0},
    ),
    "scaling-is-not-evaluated": Bug(
        (
            Patch(
                "yurt.fsm.scaling",
                "rejected = store_job(edit, scaled) or put_job_evaluation(edit, job.key, command.evaluation)",
                "rejected = store_job(edit, scaled)",
            ),
        ),
        ("200 s after",),
        CALM_USERS | {"features": ("service", "scale")},
    ),
    "stop-is-not-evaluated": Bug(
        (
            Patch(
                "yurt.fsm.jobs",
                "return store_job(edit, stopped) or put_evaluations(edit, (evaluation,))",
                "return store_job(edit, stopped)",
            ),
        ),
        ("200 s after",),
        RESTING | {"features": ("service", "stop")},
    ),
    "purge-is-not-evaluated": Bug(
        (
            Patch(
                "yurt.fsm.jobs",
                "        _delete(edit, job)\n        return put_evaluations(edit, (evaluation,))",
                "        _delete(edit, job)\n        return None",
            ),
        ),
        ("200 s after",),
        RESTING | {"features": ("service", "purge")},
    ),
    "drain-is-over-while-allocations-come": Bug(
        (
            Patch("yurt.fsm.plans", "if node is None or not is_ready(node):", "if node is None:"),
            Patch(
                "yurt.fsm.nodes",
                "if command.strategy is not None or node.drain_strategy is None or not is_end:",
                "if command.strategy is not None or node.drain_strategy is None or is_end:",
            ),
        ),
        ("D7", "C3"),
        CONCURRENT_PLANS | {"features": ("service", "batch", "drain", "update"), "turn_s": 0.002},
    ),
}
