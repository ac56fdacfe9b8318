"""Adds repair advice to servers' refusals of a job, whose wire texts keep Nomad's wording."""

from __future__ import annotations

import re
from functools import cache

from yurt.cli.advice import UNKNOWN_PLACES

_FIXES = (
    (
        "^Missing job task groups",
        'Add a group with a task: group "app" { task "main" { driver = "..." } }.',
    ),
    (
        "Missing tasks for task group",
        'Add a task to the group: task "main" { driver = "..." config { ... } }.',
    ),
    (
        "Missing task driver",
        'Add driver = "docker", "exec", "raw_exec", ...; `yurt node status -verbose NODE` lists what a node has.',
    ),
    (
        "no node has shown which options driver",
        "`yurt plugin list` shows the drivers of an agent; `yurt node status -verbose NODE` those of a node.",
    ),
    (
        "can't be negative|can not be less than zero",
        "Write 0 or more.",
    ),
    (
        "only ask for 'cpu' or 'cores'",
        "Leave out cpu (MHz of shared cores) or cores (whole cores).",
    ),
    (
        r'^Unsupported restart mode|restart mode: "',
        "Use fail (the allocation has failed, and is replaced) or delay (try again in the next interval).",
    ),
    (
        "^Periodic can only|Periodic can only be",
        'Write type = "batch", or leave out the periodic block.',
    ),
    (
        "can't restart the TaskGroup",
        "Raise interval, or lower attempts or delay: attempts x delay must fit into interval.",
    ),
    (
        "can only make .* attempts",
        "Raise interval, or lower attempts or delay.",
    ),
    (
        "Minimum healthy time must be less",
        "Lower min_healthy_time or raise healthy_deadline (5m unless given).",
    ),
    (
        "Healthy deadline must be less",
        "Lower healthy_deadline or raise progress_deadline (10m unless given).",
    ),
    (
        "Must specify a destination for the template",
        'Add destination = "local/FILE", a path in the task\'s folder.',
    ),
    (
        "source must be specified",
        'Add source = "https://...", or another place that artifacts come from.',
    ),
    (
        "references undefined volume",
        'Declare it in the group: volume "NAME" { type = "host" source = "..." }.',
    ),
    (
        "references an empty volume",
        'Write volume = "NAME", the name of a volume block of the group.',
    ),
    (
        "has an empty source",
        'Write source = "...", the name of the volume on the nodes.',
    ),
    (
        "priority must be between",
        "Write a number from 1 (last) to 100 (first).",
    ),
    *UNKNOWN_PLACES,
    (
        "has no main task",
        "Take the lifecycle block out of the task that does the work.",
    ),
    (
        "KillTimeout must be a positive",
        'Write for example kill_timeout = "5s".',
    ),
    (
        "Spread target percentage",
        "Write a whole number from 0 to 100.",
    ),
    (
        "vault is not available",
        "Secrets of a job are variables: yurt var put nomad/jobs/JOB KEY=VALUE, read by a template with nomadVar.",
    ),
    (
        "percentages must not be greater",
        "Lower the percentages: together at most 100.",
    ),
    (
        "Service name .* valid|Service name must",
        "Use letters, digits and dashes, at most 63.",
    ),
    (
        "interval must be|interval cannot be",
        'Write for example interval = "10s".',
    ),
    (
        "timeout must be|timeout cannot be",
        'Write for example timeout = "2s".',
    ),
    (
        "must have http path|relative http path",
        'Add path = "/health", or what the service answers at.',
    ),
    (
        "Missing job datacenters|without datacenters",
        'Write datacenters = ["*"] for all.',
    ),
    (
        "must specify at least one .* cron|no cron",
        'Write crons = ["0 3 * * *"] for three o\'clock each night.',
    ),
    (
        r'cron (\w+ )?"',
        'For example crons = ["*/15 * * * *"] every 15 minutes, or ["@daily"].',
    ),
    (
        "MemoryMaxMB value",
        "Write memory_max larger than memory, or leave it out.",
    ),
    (
        "Job ID contains a space",
        "Write the name of the job without spaces, for example with dashes.",
    ),
    (
        "Version constraint is invalid",
        'Write a comparison with a number, for example ">= 1.2".',
    ),
    (
        "maximum count must not be less",
        "Lower min or raise max of the scaling block.",
    ),
    (
        "invalid name .* for action",
        'Write a name without spaces, such as "run-tests".',
    ),
    (
        "command cannot be empty for action",
        'Add command = "..." to the action.',
    ),
    (
        "Parameterized job can only be used",
        'Write type = "batch", or leave out the parameterized block.',
    ),
    (
        "meta keys should be disjoint",
        "Name each key in one of meta_required and meta_optional.",
    ),
    (
        "minimum CPU value|MemoryMB value|minimum Mem",
        "Write at least cpu = 1 and memory = 10.",
    ),
    (
        r"log storage \(",
        "Raise size of ephemeral_disk, or lower max_files or max_file_size of logs.",
    ),
    (
        "(defined|used|declared) more than once|redefines '|Duplicate (default )?identities",
        "Rename one of the two.",
    ),
    (
        "escapes (the |)(allocation|task)",
        "Use a path without .. that stays in the task's folder.",
    ),
    (
        "[Pp]arameterized .* (periodic|system)",
        "A parameterized job is a batch job without a periodic block.",
    ),
    (
        "payload, only dispatched",
        "Leave out the payload; register the job, and send it with: yurt job dispatch JOB FILE",
    ),
    (
        'Task name "alloc" is reserved',
        "Give the task another name.",
    ),
    (
        "Static port .* already reserved by",
        "Choose another port, or leave out static for one that is free.",
    ),
    (
        "Auto Promote requires",
        "Add canary = 1 to the update block, or leave out auto_promote.",
    ),
    (
        "does not allow (update|migrate) block",
        'Leave out the block: only jobs with type = "service" are replaced step by step and drained so.',
    ),
    (
        "has no destination$",
        'Add destination = "/data", the path at which the task sees the volume.',
    ),
    (
        "Only a single network block",
        "Put all ports of the group into one network block.",
    ),
    (
        "Service provider must be",
        'Write provider = "nomad" for a service that the cluster itself registers.',
    ),
    (
        "must have a count of 1 or more",
        "Write count = 1, or leave it out.",
    ),
    (
        "no node is in datacenter",
        'Write datacenters = ["*"] for all; `yurt node status` shows those of the nodes.',
    ),
    (
        "has invalid port",
        "Leave out static for a port that the scheduler chooses.",
    ),
)
"""Patterns of messages, and the fix; the first match applies."""


@cache
def _table() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(pattern), fix) for pattern, fix in _FIXES)


def fix_of(message: str) -> str | None:
    """The fix for a message; None when the message has it or none is known."""
    return next((fix for pattern, fix in _table() if pattern.search(message)), None)
