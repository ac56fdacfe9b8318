"""A task of a group, and the blocks in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from yurt.sdk.value import Duration, Value, no_entries
from yurt.structs.constraint import Affinity, Constraint
from yurt.structs.policies import RestartPolicy
from yurt.structs.resources import LogConfig, Resources
from yurt.structs.service import DEFAULT_IDENTITY, Service, WorkloadIdentity
from yurt.structs.volumes.request import VolumeMount


class TaskLifecycle(Value):
    """The time at which a task runs relative to the main tasks; a sidecar runs alongside them."""

    hook: str = ""
    sidecar: bool = False


class DispatchPayloadConfig(Value):
    """The file that receives a dispatched job's payload."""

    file: str = ""


class ChangeScript(Value):
    """The command run when a template changed."""

    command: str = ""
    args: tuple[str, ...] = ()
    timeout: Duration = Duration(0)
    fail_on_error: bool = False
    run_on_first_render: bool = False


class WaitConfig(Value):
    """The time for which a template waits until its inputs stop changing."""

    min: Duration = Duration(0)
    max: Duration = Duration(0)


class Template(Value):
    """A file rendered into the task directory."""

    source_path: str = ""
    dest_path: str = ""
    embedded_tmpl: str = ""
    change_mode: str = ""
    change_script: ChangeScript | None = None
    change_signal: str = ""
    once: bool = False
    splay: Duration = Duration(0)
    perms: str = ""
    uid: int | None = None
    gid: int | None = None
    left_delim: str = ""
    right_delim: str = ""
    envvars: bool = False
    vault_grace: Duration = Duration(0)
    wait: WaitConfig | None = None
    err_missing_key: bool = False


class TaskArtifact(Value):
    """A file to download before the task starts."""

    getter_source: str = ""
    getter_options: Mapping[str, str] = no_entries()
    getter_headers: Mapping[str, str] = no_entries()
    getter_mode: str = ""
    getter_insecure: bool = False
    relative_dest: str = ""
    chown: bool = False


class Vault(Value):
    """Access to Vault."""

    policies: tuple[str, ...] = ()
    role: str = ""
    namespace: str = ""
    cluster: str = ""
    env: bool = False
    disable_file: bool = False
    change_mode: str = ""
    change_signal: str = ""
    allow_token_expiration: bool = False


class Consul(Value):
    """Access to Consul."""

    namespace: str = ""
    cluster: str = ""
    partition: str = ""


class Secret(Value):
    """A secret that a provider makes available to the task."""

    name: str = ""
    provider: str = ""
    path: str = ""
    config: Mapping[str, Any] = no_entries()
    env: Mapping[str, str] = no_entries()


class Action(Value):
    """A named command that a user may run inside the task."""

    name: str = ""
    command: str = ""
    args: tuple[str, ...] = ()


class TaskScheduleCron(Value):
    """The start and end times of a time-scheduled task."""

    start: str = ""
    end: str = ""
    timezone: str = ""


class TaskSchedule(Value):
    """The schedule of a time-scheduled task."""

    cron: TaskScheduleCron | None = None


class TaskCSIPluginConfig(Value):
    """Marks a task as a CSI plugin."""

    id: str = ""
    type: str = ""
    mount_dir: str = ""
    stage_publish_base_dir: str = ""
    health_timeout: Duration = Duration(0)


class ScalingPolicy(Value):
    """The bounds and the autoscaler policy of a group's count."""

    min: int = 0
    max: int = 0
    policy: Mapping[str, Any] = no_entries()
    enabled: bool = False
    type: str = ""
    id: str = ""
    namespace: str = ""
    target: Mapping[str, str] = no_entries()
    create_index: int = 0
    modify_index: int = 0


class Task(Value):
    """One process, container or machine of a group, run by a driver."""

    name: str = ""
    driver: str = ""
    user: str = ""
    lifecycle: TaskLifecycle | None = None
    config: Mapping[str, Any] = no_entries()
    constraints: tuple[Constraint, ...] = ()
    affinities: tuple[Affinity, ...] = ()
    env: Mapping[str, str] = no_entries()
    services: tuple[Service, ...] = ()
    resources: Resources = Resources()
    restart_policy: RestartPolicy = RestartPolicy()
    meta: Mapping[str, str] = no_entries()
    kill_timeout: Duration = Duration(5_000_000_000)
    log_config: LogConfig = LogConfig()
    artifacts: tuple[TaskArtifact, ...] = ()
    vault: Vault | None = None
    consul: Consul | None = None
    templates: tuple[Template, ...] = ()
    dispatch_payload: DispatchPayloadConfig | None = None
    volume_mounts: tuple[VolumeMount, ...] = ()
    csi_plugin_config: TaskCSIPluginConfig | None = None
    leader: bool = False
    shutdown_delay: Duration = Duration(0)
    kill_signal: str = ""
    kind: str = ""
    scaling_policies: tuple[ScalingPolicy, ...] = ()
    secrets: tuple[Secret, ...] = ()
    identity: Annotated[WorkloadIdentity | None, msgspec.Meta(extra={"implied": DEFAULT_IDENTITY})] = None
    """The default identity; None: as the server defaults it, which the HTTP API writes in full."""
    identities: tuple[WorkloadIdentity, ...] = ()
    actions: tuple[Action, ...] = ()
    schedule: TaskSchedule | None = None
