"""Rules for tasks and the blocks inside them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from yurt.rules.no_effect import constraint_doubts, not_available, task_no_effects
from yurt.rules.problems import duplicates, escapes, is_open, is_signal, near_hint, nested, one_of
from yurt.rules.task_schedule import schedule_problems
from yurt.rules.validation.device import device_problems, mig_problems
from yurt.rules.validation.identity import identity_doubts, identity_problems
from yurt.rules.validation.policies import affinity_problems, constraint_problems, restart_problems
from yurt.structs.job import Job, TaskGroup
from yurt.structs.resources import Resources
from yurt.structs.task import Task, TaskArtifact, TaskCSIPluginConfig, Template
from yurt.structs.volumes.request import SELINUX_LABELS

ACTION_NAME = re.compile(r"[^\0\s]{1,128}\Z")
SECRET_NAME = re.compile(r"[a-zA-Z0-9_]{1,128}\Z")
PERMISSIONS = re.compile(r"[0-7]{1,5}\Z")
TEMPLATE_CHECKED_MAX = 16 * 1024
"""The maximum length of a template that is parsed at registration; a longer one is parsed when it is rendered."""
TEMPLATES_CHECKED_MAX = 128 * 1024
"""The maximum length of all templates of a task that are parsed at registration; further ones are parsed when
rendered."""
CHANGE_MODES = ("noop", "restart", "signal")
ARTIFACT_MODES = ("any", "file", "dir")
LIFECYCLE_HOOKS = ("prestart", "poststart", "poststop")
NUMA_AFFINITIES = ("none", "prefer", "require")
CSI_TYPES = ("node", "controller", "monolith")
VERTICAL = ("vertical_cpu", "vertical_mem")
TASK_DEPTH = 1
"""The depth of a task's directory inside its allocation's directory."""


def task_problems(job: Job, group: TaskGroup, task: Task) -> Iterator[str]:
    """Problems inside one task."""
    yield from _basic_problems(group, task)
    yield from _resource_problems(task.resources)
    yield from constraint_problems(task.constraints, "Constraint")
    for constraint in task.constraints:
        if constraint.operand in ("distinct_hosts", "distinct_property"):
            yield f"Constraint has disallowed Operand at task level: {constraint.operand}"
    yield from affinity_problems(task.affinities, "Affinity", job.type)
    if task.restart_policy != group.restart_policy:
        yield from restart_problems(task.restart_policy)
    yield from _log_problems(group, task)
    yield from _template_problems(task)
    for number, artifact in enumerate(task.artifacts, start=1):
        yield from nested(f"Artifact {number}", _artifact_problems(artifact))
    yield from _mount_problems(group, task)
    yield from _lifecycle_problems(task)
    yield from _attachment_problems(task)
    yield from identity_problems(task)
    yield from schedule_problems(task.schedule)


def _basic_problems(group: TaskGroup, task: Task) -> Iterator[str]:
    if "/" in task.name or "\\" in task.name:
        yield "Task name cannot include slashes"
    if "\0" in task.name:
        yield "Task name cannot include null characters"
    if task.name == "alloc":
        yield 'Task name "alloc" is reserved: it names the shared directory of the allocation'
    if task.name in (".", ".."):
        yield f'Task name "{task.name}" cannot be used: it names a directory'
    if not task.driver:
        yield "Missing task driver"
    if task.kill_timeout < 0:
        yield "KillTimeout must be a positive value"
    elif group.update is not None and 0 < group.update.progress_deadline < task.kill_timeout:
        yield "KillTimeout is longer than the group's ProgressDeadline"
    if task.shutdown_delay < 0:
        yield "ShutdownDelay must be a positive value"


def _resource_problems(resources: Resources) -> Iterator[str]:
    if resources.cores > 0 and resources.cpu > 0:
        yield "Task can only ask for 'cpu' or 'cores' resource, not both."
    elif resources.cores < 0 or (resources.cores == 0 and resources.cpu < 1):
        yield f"minimum CPU value is 1; got {resources.cpu}"
    if resources.memory_mb < 10:
        yield f"minimum MemoryMB value is 10; got {resources.memory_mb}"
    if resources.memory_max_mb not in (0, -1) and resources.memory_max_mb < resources.memory_mb:
        yield (
            f"MemoryMaxMB value ({resources.memory_max_mb}) should be larger than "
            f"MemoryMB value ({resources.memory_mb})"
        )
    if resources.secrets_mb > max(resources.memory_mb, 0):
        yield f"SecretsMB value ({resources.secrets_mb}) cannot be larger than MemoryMB value ({resources.memory_mb})"
    for device in resources.devices:
        yield from device_problems(device)
    yield from mig_problems(resources.devices)
    if resources.numa is not None and resources.numa.affinity not in ("", *NUMA_AFFINITIES):
        word = resources.numa.affinity
        hint = near_hint(word, NUMA_AFFINITIES)
        yield f'numa affinity "{word[:64]}" is not one of {", ".join(NUMA_AFFINITIES)}{hint}'


def _log_problems(group: TaskGroup, task: Task) -> Iterator[str]:
    logs = task.log_config
    if logs.disabled:
        return
    if logs.max_files < 1:
        yield f"minimum number of files is 1; got {logs.max_files}"
    if logs.max_file_size_mb < 1:
        yield f"minimum file size is 1MB; got {logs.max_file_size_mb}"
    used = logs.max_files * logs.max_file_size_mb
    if used >= group.ephemeral_disk.size_mb > 0:
        yield f"log storage ({used} MB) must be less than requested disk capacity ({group.ephemeral_disk.size_mb} MB)"


def _template_problems(task: Task) -> Iterator[str]:
    checked = 0
    for number, template in enumerate(task.templates, start=1):
        problems = list(_one_template(template))
        if len(template.embedded_tmpl) <= min(TEMPLATE_CHECKED_MAX, TEMPLATES_CHECKED_MAX - checked):
            checked += len(template.embedded_tmpl)
            problems.extend(_syntax_problems(template))
        yield from nested(f"Template {number}", problems)
    for path in duplicates(template.dest_path for template in task.templates if template.dest_path):
        yield f"Template destination {path!r} is used more than once"


def _one_template(template: Template) -> Iterator[str]:
    if not template.source_path and not template.embedded_tmpl:
        yield "Must specify a source path or have an embedded template"
    if not template.dest_path:
        yield "Must specify a destination for the template"
    elif not is_open(template.dest_path) and escapes(template.dest_path, depth=TASK_DEPTH):
        yield "template destination escapes allocation directory"
    mode = template.change_mode
    if mode not in (*CHANGE_MODES, "script"):
        hint = near_hint(mode, (*CHANGE_MODES, "script"))
        yield f'Invalid change mode "{mode[:64]}": use noop, restart, signal or script{hint}'
    if template.change_mode == "signal" and not template.change_signal:
        yield "Must specify signal value when change mode is signal"
    if template.change_mode == "signal" and template.envvars:
        yield "cannot use signals with env var templates"
    if template.change_mode == "script" and template.change_script is None:
        yield "must specify change script configuration value when change mode is script"
    if template.change_script is not None and not template.change_script.command:
        yield "must specify script path value when change mode is script"
    if template.splay < 0:
        yield "Must specify positive splay value"
    if template.perms and not PERMISSIONS.match(template.perms):
        yield f'Failed to parse {template.perms[:16]!r} as octal permissions, like "0644"'
    if template.wait is not None and 0 < template.wait.max < template.wait.min:
        yield "wait min must be less than max"


def _syntax_problems(template: Template) -> Iterator[str]:
    from yurt.gotemplate import TemplateError, check_syntax

    try:
        check_syntax(template.embedded_tmpl, left=template.left_delim, right=template.right_delim)
    except TemplateError as error:
        yield f"the template does not parse at its line {error.line}, column {error.column}: {error.problem}"


def _artifact_problems(artifact: TaskArtifact) -> Iterator[str]:
    if not artifact.getter_source:
        yield "source must be specified"
    mode = artifact.getter_mode
    if mode not in ARTIFACT_MODES:
        hint = near_hint(mode, ARTIFACT_MODES)
        yield f'invalid artifact mode "{mode[:64]}"; must be one of: {", ".join(ARTIFACT_MODES)}{hint}'
    if not is_open(artifact.relative_dest) and escapes(artifact.relative_dest, depth=TASK_DEPTH):
        yield "destination escapes allocation directory"


def _mount_problems(group: TaskGroup, task: Task) -> Iterator[str]:
    for number, mount in enumerate(task.volume_mounts):
        if not mount.volume:
            yield f"Volume Mount ({number}) references an empty volume"
        elif mount.volume not in group.volumes:
            yield f'Volume Mount ({number}) references undefined volume "{mount.volume[:64]}"'
        if not mount.destination:
            yield f"Volume Mount ({number}) has no destination"
        if mount.propagation_mode not in ("", "private", "host-to-task", "bidirectional"):
            yield f'Volume Mount ({number}) has an invalid propagation mode: "{mount.propagation_mode[:64]}"'


def _lifecycle_problems(task: Task) -> Iterator[str]:
    lifecycle = task.lifecycle
    if lifecycle is None:
        return
    if lifecycle.hook not in LIFECYCLE_HOOKS:
        hint = near_hint(lifecycle.hook, LIFECYCLE_HOOKS)
        yield f'invalid lifecycle hook "{lifecycle.hook[:64]}": use {one_of(LIFECYCLE_HOOKS)}{hint}'
    if task.leader:
        yield "a task with a lifecycle cannot be the leader"


def _attachment_problems(task: Task) -> Iterator[str]:
    """Problems of the dispatch payload, actions, CSI plugin, scaling, secrets and vault blocks."""
    payload = task.dispatch_payload
    if payload is not None and payload.file and not is_open(payload.file) and escapes(payload.file):
        yield "dispatch payload file escapes the task's local directory"
    for action in task.actions:
        if not ACTION_NAME.match(action.name):
            yield f"invalid name {action.name[:64]!r} for action: 1 to 128 characters without spaces"
        if not action.command:
            yield f"command cannot be empty for action {action.name[:64]!r}"
    for name in duplicates(action.name for action in task.actions):
        yield f"action {name[:64]!r} is defined more than once"
    if task.csi_plugin_config is not None:
        yield from _csi_problems(task.csi_plugin_config)
    for policy in task.scaling_policies:
        if policy.type not in VERTICAL:
            hint = near_hint(policy.type, VERTICAL)
            yield f'scaling policy type "{policy.type[:64]}" is not valid for a task: use {one_of(VERTICAL)}{hint}'
    for secret in task.secrets:
        if not SECRET_NAME.match(secret.name):
            yield f"secret name {secret.name[:64]!r} may hold letters, digits and _, 1 to 128"
        if not secret.provider or not secret.path:
            yield f"secret {secret.name[:64]!r} needs a provider and a path"
    vault = task.vault
    if vault is not None:
        yield from _change_problems("Vault", vault.change_mode, vault.change_signal)


def _csi_problems(plugin: TaskCSIPluginConfig) -> Iterator[str]:
    if not plugin.id:
        yield "CSIPluginConfig must have a non-empty PluginID"
    if plugin.type not in CSI_TYPES:
        choices, hint = ", ".join(CSI_TYPES), near_hint(plugin.type, CSI_TYPES)
        yield f'CSIPluginConfig PluginType must be one of {choices}, got: "{plugin.type[:64]}"{hint}'


def _change_problems(what: str, mode: str, signal: str) -> Iterator[str]:
    if mode not in ("", *CHANGE_MODES):
        hint = near_hint(mode, CHANGE_MODES)
        yield f'Unknown {what} change mode "{mode[:64]}": use {one_of(CHANGE_MODES)}{hint}'
    if mode == "signal" and not signal:
        yield f"{what} must specify a signal when its change mode is signal"


def _label_doubts(task: Task) -> Iterator[str]:
    for mount in task.volume_mounts:
        label, name = mount.selinux_label, mount.volume[:64]
        if label in SELINUX_LABELS:
            yield f'volume_mount "{name}": selinux_label has an effect only with drivers of containers'
        elif label:
            yield (
                f'volume_mount "{name}": selinux_label "{label[:64]}" has no effect: '
                'write "z" to share the volume among containers, or "Z" to give it to one'
            )


def _signal_doubts(task: Task) -> Iterator[str]:
    named = (("kill_signal", task.kill_signal), *(("change_signal", each.change_signal) for each in task.templates))
    for field, name in named:
        if name and not is_open(name) and not is_signal(name):
            yield f'{field} "{name[:64]}" is not a valid signal; write a name such as "SIGTERM"'


def task_warnings(group: TaskGroup, task: Task) -> Iterator[str]:
    """Valid but probably unintended settings."""
    yield from task_no_effects(group, task)
    yield from (f"{what} is not available in this version: it will not start" for what in not_available(group, task))
    yield from constraint_doubts(task.constraints)
    yield from _label_doubts(task)
    yield from _signal_doubts(task)
    for number, template in enumerate(task.templates, start=1):
        if template.source_path and template.embedded_tmpl:
            yield f"Template {number} has both data and source: data is ignored; leave out one of the two"
    yield from identity_doubts(task)
    if task.resources.disk_mb:
        yield "disk in resources has no effect: a group's disk is ephemeral_disk { size = ... }, in MB"
    if task.resources.networks:
        yield "task network resources have been deprecated: use a network block at the group level"
