"""Status values of Nomad's API, and named sets of them.

Each set of words is a Literal. Code that branches over all of them matches them and ends with `assert_never`, so that
mypy finds the places where a new word is missing. They are not enums: a decoded Literal is always the same object, so
comparing and hashing it costs less than for a StrEnum, and the log and the API hold the plain words.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, get_args

EvalType = Literal["service", "batch", "system", "sysbatch", "_core"]
NodeStatus = Literal["initializing", "ready", "down", "disconnected"]
Eligibility = Literal["eligible", "ineligible"]
DesiredStatus = Literal["run", "stop", "evict"]
ClientStatus = Literal["pending", "running", "complete", "failed", "lost", "unknown"]
TaskStatus = Literal["pending", "running", "dead"]
EvalStatus = Literal["blocked", "pending", "complete", "failed", "canceled"]
Trigger = Literal[
    "job-register", "job-deregister", "periodic-job", "node-drain", "node-update", "alloc-stop", "scheduled",
    "rolling-update", "deployment-watcher", "failed-follow-up", "max-plan-attempts", "alloc-failure", "queued-allocs",
    "preemption", "job-scaling", "max-disconnect-timeout", "reconnect", "alloc-reschedule",
]  # fmt: skip
"""The reason why an evaluation was created."""
DeploymentStatus = Literal[
    "running", "paused", "failed", "successful", "cancelled", "initializing", "pending", "blocked", "unblocking",
]  # fmt: skip
NotGiven = Literal[""]

EVAL_TYPES: Final[Mapping[str, EvalType]] = MappingProxyType({each: each for each in get_args(EvalType)})
NODE_STATUSES: Final[Mapping[str, NodeStatus]] = MappingProxyType({each: each for each in get_args(NodeStatus)})
ELIGIBILITIES: Final[Mapping[str, Eligibility]] = MappingProxyType({each: each for each in get_args(Eligibility)})
"""The valid eligibilities by the text of a user or a client, which may be an invalid one."""


JOB_SERVICE: Final = "service"
JOB_BATCH: Final = "batch"
JOB_SYSTEM: Final = "system"
JOB_SYSBATCH: Final = "sysbatch"
JOB_CORE: Final = "_core"
JOB_TYPES: Final = (JOB_SERVICE, JOB_BATCH, JOB_SYSTEM, JOB_SYSBATCH)
CORE_PRIORITY: Final = 32767
JOB_PENDING: Final = "pending"
JOB_RUNNING: Final = "running"
JOB_DEAD: Final = "dead"

NODE_INIT: Final = "initializing"
NODE_READY: Final = "ready"
NODE_DOWN: Final = "down"
NODE_DISCONNECTED: Final = "disconnected"
NODE_UNRESPONSIVE: Final = frozenset({NODE_DOWN, NODE_DISCONNECTED})
DRAIN_COMPLETE: Final = "complete"
ELIGIBLE: Final = "eligible"
INELIGIBLE: Final = "ineligible"

DESIRED_RUN: Final = "run"
DESIRED_STOP: Final = "stop"
DESIRED_EVICT: Final = "evict"
CLIENT_PENDING: Final = "pending"
CLIENT_RUNNING: Final = "running"
CLIENT_COMPLETE: Final = "complete"
CLIENT_FAILED: Final = "failed"
CLIENT_LOST: Final = "lost"
CLIENT_UNKNOWN: Final = "unknown"
CLIENT_TERMINAL: Final = frozenset({CLIENT_COMPLETE, CLIENT_FAILED, CLIENT_LOST})
SERVER_TERMINAL: Final = frozenset({DESIRED_STOP, DESIRED_EVICT})

TASK_PENDING: Final = "pending"
TASK_RUNNING: Final = "running"
TASK_DEAD: Final = "dead"

EVAL_BLOCKED: Final = "blocked"
EVAL_PENDING: Final = "pending"
EVAL_COMPLETE: Final = "complete"
EVAL_FAILED: Final = "failed"
EVAL_CANCELED: Final = "canceled"
EVAL_TERMINAL: Final = frozenset({EVAL_COMPLETE, EVAL_FAILED, EVAL_CANCELED})

TRIGGER_JOB_REGISTER: Final = "job-register"
TRIGGER_JOB_DEREGISTER: Final = "job-deregister"
TRIGGER_PERIODIC: Final = "periodic-job"
TRIGGER_NODE_DRAIN: Final = "node-drain"
TRIGGER_NODE_UPDATE: Final = "node-update"
TRIGGER_ALLOC_STOP: Final = "alloc-stop"
TRIGGER_SCHEDULED: Final = "scheduled"
TRIGGER_ROLLING_UPDATE: Final = "rolling-update"
TRIGGER_DEPLOYMENT_WATCHER: Final = "deployment-watcher"
TRIGGER_FAILED_FOLLOW_UP: Final = "failed-follow-up"
TRIGGER_MAX_PLANS: Final = "max-plan-attempts"
TRIGGER_RETRY_FAILED_ALLOC: Final = "alloc-failure"
TRIGGER_QUEUED_ALLOCS: Final = "queued-allocs"
TRIGGER_PREEMPTION: Final = "preemption"
TRIGGER_SCALING: Final = "job-scaling"
TRIGGER_MAX_DISCONNECT: Final = "max-disconnect-timeout"
TRIGGER_RECONNECT: Final = "reconnect"
TRIGGER_ALLOC_RESCHEDULE: Final = "alloc-reschedule"
TRIGGERS: Final[frozenset[Trigger]] = frozenset(get_args(Trigger))

DEPLOYMENT_RUNNING: Final = "running"
DEPLOYMENT_PAUSED: Final = "paused"
DEPLOYMENT_FAILED: Final = "failed"
DEPLOYMENT_SUCCESSFUL: Final = "successful"
DEPLOYMENT_CANCELLED: Final = "cancelled"
DEPLOYMENT_INITIALIZING: Final = "initializing"
DEPLOYMENT_PENDING: Final = "pending"
DEPLOYMENT_BLOCKED: Final = "blocked"
DEPLOYMENT_UNBLOCKING: Final = "unblocking"
DEPLOYMENT_ACTIVE: Final = frozenset(
    {
        DEPLOYMENT_RUNNING, DEPLOYMENT_PAUSED, DEPLOYMENT_INITIALIZING, DEPLOYMENT_PENDING, DEPLOYMENT_BLOCKED,
        DEPLOYMENT_UNBLOCKING,
    }
)  # fmt: skip
