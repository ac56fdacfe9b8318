"""`yurt operator scheduler get-config`."""

from __future__ import annotations

from typing import Any

from yurt.cli.command import JSON_FLAGS, Command, Invocation
from yurt.cli.terminal.data import show_data, wants_data

Json = dict[str, Any]


def run(call: Invocation) -> int:
    """Show it."""
    is_json = wants_data(call)
    answer: Json = call.api.get("/v1/operator/scheduler/configuration")
    if is_json:
        return show_data(call, answer)
    config: Json = answer.get("SchedulerConfig") or {}
    preemption = config.get("PreemptionConfig") or {}
    call.screen.pairs(
        [
            ("Scheduler Algorithm", config.get("SchedulerAlgorithm")),
            ("Memory Oversubscription", bool(config.get("MemoryOversubscriptionEnabled"))),
            ("Reject Job Registration", bool(config.get("RejectJobRegistration"))),
            ("Pause Eval Broker", bool(config.get("PauseEvalBroker"))),
            ("Preemption System Scheduler", bool(preemption.get("SystemSchedulerEnabled"))),
            ("Preemption Service Scheduler", bool(preemption.get("ServiceSchedulerEnabled"))),
            ("Preemption Batch Scheduler", bool(preemption.get("BatchSchedulerEnabled"))),
            ("Preemption SysBatch Scheduler", bool(preemption.get("SysBatchSchedulerEnabled"))),
            ("Node Limit For Feasibility Checks", config.get("NodeLimitForFeasibilityChecks") or 0),
            ("Modify Index", config.get("ModifyIndex") or 0),
        ]
    )
    return 0


COMMAND = Command("operator scheduler get-config", "Show the scheduler's configuration.", run, JSON_FLAGS)
