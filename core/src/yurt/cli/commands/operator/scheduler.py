"""`yurt operator scheduler`: the scheduler's configuration."""

from __future__ import annotations

from yurt.cli.commands.operator.settings import require_setting, whole_number
from yurt.cli.declaration import JSON_FLAGS, CliCommand, Invocation
from yurt.cli.errors import CliError, UsageError
from yurt.cli.flags import Flag, choice, text
from yurt.cli.json_object import Json
from yurt.cli.terminal.data import show_data, wants_data

_SWITCHES = {
    "memory-oversubscription": "MemoryOversubscriptionEnabled",
    "reject-job-registration": "RejectJobRegistration",
    "pause-eval-broker": "PauseEvalBroker",
}
_PREEMPTION = {
    "preempt-batch-scheduler": "BatchSchedulerEnabled",
    "preempt-service-scheduler": "ServiceSchedulerEnabled",
    "preempt-sysbatch-scheduler": "SysBatchSchedulerEnabled",
    "preempt-system-scheduler": "SystemSchedulerEnabled",
}
FLAGS: tuple[Flag, ...] = (
    text("check-index", "Change it only when its modify index is this one."),
    text("scheduler-algorithm", "binpack fills nodes one after another, spread keeps them equally full."),
    *(choice(name, "true or false; unset keeps the present value.") for name in (*_SWITCHES, *_PREEMPTION)),
    text("node-limit-for-feasibility-checks", "How many nodes a system evaluation checks at a time."),
)


def show_config(call: Invocation) -> int:
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


def set_config(call: Invocation) -> int:
    """Change the settings given as flags and keep the rest."""
    flags = call.flags
    require_setting(call, (flag for flag in FLAGS if flag.name != "check-index"))
    answer: Json = call.api.get("/v1/operator/scheduler/configuration")
    config: Json = answer.get("SchedulerConfig") or {}
    if flags.is_given("scheduler-algorithm"):
        algorithm = flags.text("scheduler-algorithm")
        if algorithm not in ("binpack", "spread"):
            raise UsageError(f'-scheduler-algorithm must be binpack or spread, not "{algorithm}"')
        config["SchedulerAlgorithm"] = algorithm
    for name, key in _SWITCHES.items():
        if flags.choice(name) is not None:
            config[key] = flags.choice(name)
    for name, key in _PREEMPTION.items():
        if flags.choice(name) is not None:
            config.setdefault("PreemptionConfig", {})[key] = flags.choice(name)
    limit = "node-limit-for-feasibility-checks"
    if flags.is_given(limit):
        config["NodeLimitForFeasibilityChecks"] = whole_number(limit, flags.text(limit))
    is_checked = flags.is_given("check-index")
    query = {"cas": whole_number("check-index", flags.text("check-index"))} if is_checked else {}
    changed: Json = call.api.put("/v1/operator/scheduler/configuration", config, query) or {}
    if is_checked and not changed.get("Updated"):
        raise CliError(
            "Scheduler configuration could not be atomically updated: its index has changed, please try again"
        )
    call.screen.line("Scheduler configuration updated!")
    return 0


COMMANDS = (
    CliCommand("operator scheduler get-config", "Show the configuration of the scheduler", show_config, JSON_FLAGS),
    CliCommand(
        "operator scheduler set-config",
        "Change the configuration of the scheduler",
        set_config,
        FLAGS,
        details="At least one setting is needed, besides -check-index; the others keep their values.",
    ),
)
