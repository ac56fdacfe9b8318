"""The schema of job files: one table of blocks.

A line of a block's table holds the name in the file, the field of the API, and the kind. A kind that ends in `?`
leaves the field out when it is not set, one that ends in `!` makes the argument required, any other starts from the
kind's zero value. Where the name is `-` the field cannot be set in a file but is part of the job as it is sent. A
field that starts with `-` is a short form that `finish` turns into others.

    label           the block's labels, in order
    string int bool duration durations strings ints ...  arguments
    map multimap    string values by name, as a block or as an argument
    free            whatever the driver understands
    block X         at most one block X;  blocks X: any number of them
    keyed X         any number of blocks X, kept by their label

To add a field of a job: add its line here, and its rule in `finish` if it needs one.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from . import schema_services

TABLE = {
    "Job": """
        name                                ID                              label
        region                              Region                          string?
        namespace                           Namespace                       string?
        id                                  ID                              string?
        name                                Name                            string?
        type                                Type                            string?
        priority                            Priority                        int?
        all_at_once                         AllAtOnce                       bool?
        datacenters                         Datacenters                     strings
        node_pool                           NodePool                        string?
        constraint                          Constraints                     blocks Constraint
        affinity                            Affinities                      blocks Affinity
        group                               TaskGroups                      blocks TaskGroup
        update                              Update                          block UpdateStrategy
        multiregion                         Multiregion                     block Multiregion
        spread                              Spreads                         blocks Spread
        periodic                            Periodic                        block PeriodicConfig
        parameterized                       ParameterizedJob                block ParameterizedJobConfig
        reschedule                          Reschedule                      block ReschedulePolicy
        migrate                             Migrate                         block MigrateStrategy
        requeue                             Requeue                         block Requeue
        checkpoint                          Checkpoint                      block Checkpoint
        meta                                Meta                            map
        ui                                  UI                              block JobUIConfig
        -                                   Dispatched                      bool
        task                                -tasks                          blocks Task
        vault                               -vault                          block Vault
        secret                              -secrets                        blocks Secret
    """,
    "Constraint": """
        attribute                           LTarget                         string
        value                               RTarget                         string
        operator                            Operand                         string
        regexp                              -                               string?
        version                             -                               string?
        semver                              -                               string?
        set_contains                        -                               string?
        set_contains_any                    -                               string?
        set_contains_all                    -                               string?
        distinct_hosts                      -                               bool?
        distinct_property                   -                               string?
        is_set                              -                               bool?
        is_not_set                          -                               bool?
    """,
    "Affinity": """
        attribute                           LTarget                         string
        value                               RTarget                         string
        operator                            Operand                         string
        weight                              Weight                          int8?
        regexp                              -                               string?
        version                             -                               string?
        semver                              -                               string?
        set_contains                        -                               string?
        set_contains_any                    -                               string?
        set_contains_all                    -                               string?
    """,
    "TaskGroup": """
        name                                Name                            label
        count                               Count                           int?
        constraint                          Constraints                     blocks Constraint
        affinity                            Affinities                      blocks Affinity
        task                                Tasks                           blocks Task
        spread                              Spreads                         blocks Spread
        volume                              Volumes                         keyed VolumeRequest
        restart                             RestartPolicy                   block RestartPolicy
        disconnect                          Disconnect                      block DisconnectStrategy
        reschedule                          ReschedulePolicy                block ReschedulePolicy
        ephemeral_disk                      EphemeralDisk                   block EphemeralDisk
        update                              Update                          block UpdateStrategy
        migrate                             Migrate                         block MigrateStrategy
        network                             Networks                        blocks NetworkResource
        meta                                Meta                            map
        service                             Services                        blocks Service
        shutdown_delay                      ShutdownDelay                   duration?
        max_run_duration                    MaxRunDuration                  duration?
        stop_after_client_disconnect        StopAfterClientDisconnect       duration?
        max_client_disconnect               MaxClientDisconnect             duration?
        scaling                             Scaling                         block ScalingPolicy
        gang                                Gang                            block Gang
        requeue                             Requeue                         block Requeue
        checkpoint                          Checkpoint                      block Checkpoint
        consul                              Consul                          block Consul
        vault                               -vault                          block Vault
        prevent_reschedule_on_lost          PreventRescheduleOnLost         bool?
    """,
    "Task": """
        name                                Name                            label
        driver                              Driver                          string
        user                                User                            string
        lifecycle                           Lifecycle                       block TaskLifecycle
        config                              Config                          free
        constraint                          Constraints                     blocks Constraint
        affinity                            Affinities                      blocks Affinity
        env                                 Env                             map
        service                             Services                        blocks Service
        resources                           Resources                       block Resources
        restart                             RestartPolicy                   block RestartPolicy
        meta                                Meta                            map
        kill_timeout                        KillTimeout                     duration?
        logs                                LogConfig                       block LogConfig
        artifact                            Artifacts                       blocks TaskArtifact
        vault                               Vault                           block Vault
        consul                              Consul                          block Consul
        template                            Templates                       blocks Template
        dispatch_payload                    DispatchPayload                 block DispatchPayloadConfig
        volume_mount                        VolumeMounts                    blocks VolumeMount
        csi_plugin                          CSIPluginConfig                 block TaskCSIPluginConfig
        leader                              Leader                          bool
        shutdown_delay                      ShutdownDelay                   duration
        kill_signal                         KillSignal                      string
        kind                                Kind                            string
        scaling                             ScalingPolicies                 blocks TaskScalingPolicy
        secret                              Secrets                         blocks Secret
        identity                            Identities                      blocks WorkloadIdentity
        action                              Actions                         blocks Action
        schedule                            Schedule                        block TaskSchedule
    """,
    "TaskLifecycle": """
        hook                                Hook                            string!
        sidecar                             Sidecar                         bool
    """,
    "Resources": """
        cpu                                 CPU                             int?
        cores                               Cores                           int?
        memory                              MemoryMB                        int?
        memory_max                          MemoryMaxMB                     int?
        disk                                DiskMB                          int?
        network                             Networks                        blocks NetworkResource
        device                              Devices                         blocks RequestedDevice
        numa                                NUMA                            block NUMAResource
        secrets                             SecretsMB                       int?
        iops                                IOPS                            int?
    """,
    "NetworkResource": """
        mode                                Mode                            string
        device                              Device                          string
        cidr                                CIDR                            string
        ip                                  IP                              string
        dns                                 DNS                             block DNSConfig
        reserved_ports                      ReservedPorts                   blocks Port
        port                                DynamicPorts                    blocks Port
        hostname                            Hostname                        string
        mbits                               MBits                           int?
        cni                                 CNI                             block CNIConfig
    """,
    "DNSConfig": """
        servers                             Servers                         strings
        searches                            Searches                        strings
        options                             Options                         strings
    """,
    "Port": """
        name                                Label                           label
        static                              Value                           int
        to                                  To                              int
        host_network                        HostNetwork                     string
        ignore_collision                    IgnoreCollision                 bool
    """,
    "CNIConfig": """
        args                                Args                            map
    """,
    "RequestedDevice": """
        name                                Name                            label
        count                               Count                           count?
        constraint                          Constraints                     blocks Constraint
        affinity                            Affinities                      blocks Affinity
        ids                                 -ids                            strings?
        first_available                     FirstAvailable                  blocks RequestedDevice
        topology                            Topology                        block DeviceTopology
        share                               Share                           string?
        memory                              MemoryMB                        size?
        compute                             Compute                         uint8?
        on_failure                          OnFailure                       string?
        idle                                Idle                            block IdlePolicy
    """,
    "IdlePolicy": """
        below                               Below                           uint8?
        gpus                                Gpus                            string?
        window                              Window                          duration?
        first                               First                           duration?
        warn                                Warn                            durations?
        action                              Action                          string?
        grace                               Grace                           duration?
        when                                When                            string?
        interactive                         Interactive                     block InteractivePolicy
    """,
    "InteractivePolicy": """
        window                              Window                          duration?
        keep                                Keep                            uint8?
        hours                               Hours                           block InteractiveHours
    """,
    "InteractiveHours": """
        start                               Start                           string
        end                                 End                             string
        timezone                            Timezone                        string
    """,
    "DeviceTopology": """
        nvlink                              NVLink                          string?
        numa                                NUMA                            string?
    """,
    "NUMAResource": """
        affinity                            Affinity                        string
        devices                             Devices                         strings
    """,
    "LogConfig": """
        max_files                           MaxFiles                        int?
        max_file_size                       MaxFileSizeMB                   int?
        enabled                             Enabled                         bool?
        disabled                            Disabled                        bool?
    """,
    "VolumeMount": """
        volume                              Volume                          string?
        destination                         Destination                     string?
        read_only                           ReadOnly                        bool?
        propagation_mode                    PropagationMode                 string?
        selinux_label                       SELinuxLabel                    string?
    """,
    "WorkloadIdentity": """
        name                                Name                            string
        aud                                 Audience                        strings
        change_mode                         ChangeMode                      string
        change_signal                       ChangeSignal                    string
        env                                 Env                             bool
        file                                File                            bool
        filepath                            Filepath                        string
        service_name                        ServiceName                     string
        ttl                                 TTL                             duration
        extra_claims                        ExtraClaims                     strings
    """,
    "RestartPolicy": """
        interval                            Interval                        duration?
        attempts                            Attempts                        int?
        delay                               Delay                           duration?
        mode                                Mode                            string?
        render_templates                    RenderTemplates                 bool?
    """,
    "TaskArtifact": """
        source                              GetterSource                    string?
        options                             GetterOptions                   map
        headers                             GetterHeaders                   map
        mode                                GetterMode                      string?
        insecure                            GetterInsecure                  bool?
        destination                         RelativeDest                    string?
        chown                               Chown                           bool
    """,
    "Vault": """
        policies                            Policies                        strings
        role                                Role                            string
        namespace                           Namespace                       string?
        cluster                             Cluster                         string
        env                                 Env                             bool?
        disable_file                        DisableFile                     bool?
        change_mode                         ChangeMode                      string?
        change_signal                       ChangeSignal                    string?
        allow_token_expiration              AllowTokenExpiration            bool?
    """,
    "Template": """
        source                              SourcePath                      string?
        destination                         DestPath                        string?
        data                                EmbeddedTmpl                    string?
        change_mode                         ChangeMode                      string?
        change_script                       ChangeScript                    block ChangeScript
        change_signal                       ChangeSignal                    string?
        once                                Once                            bool?
        splay                               Splay                           duration?
        perms                               Perms                           string?
        uid                                 Uid                             int?
        gid                                 Gid                             int?
        left_delimiter                      LeftDelim                       string?
        right_delimiter                     RightDelim                      string?
        env                                 Envvars                         bool?
        vault_grace                         VaultGrace                      duration?
        wait                                Wait                            block WaitConfig
        error_on_missing_key                ErrMissingKey                   bool?
    """,
    "ChangeScript": """
        command                             Command                         string?
        args                                Args                            strings
        timeout                             Timeout                         duration?
        fail_on_error                       FailOnError                     bool?
        run_on_first_render                 RunOnFirstRender                bool?
    """,
    "WaitConfig": """
        min                                 Min                             duration?
        max                                 Max                             duration?
    """,
    "DispatchPayloadConfig": """
        file                                File                            string
    """,
    "TaskCSIPluginConfig": """
        id                                  ID                              string
        type                                Type                            string
        mount_dir                           MountDir                        string
        stage_publish_base_dir              StagePublishBaseDir             string
        health_timeout                      HealthTimeout                   duration
    """,
    "ScalingPolicy": """
        min                                 Min                             int?
        max                                 Max                             int!
        policy                              Policy                          free
        enabled                             Enabled                         bool?
        type                                Type                            string
        -                                   ID                              string
        -                                   Namespace                       string
        -                                   CreateIndex                     uint
        -                                   ModifyIndex                     uint
    """,
    "TaskScalingPolicy": """
        name                                -                               label
        min                                 Min                             int?
        max                                 Max                             int!
        policy                              Policy                          free
        enabled                             Enabled                         bool?
        type                                Type                            string
        -                                   ID                              string
        -                                   Namespace                       string
        -                                   CreateIndex                     uint
        -                                   ModifyIndex                     uint
    """,
    "Secret": """
        name                                Name                            label
        provider                            Provider                        string
        path                                Path                            string
        config                              Config                          free
        env                                 Env                             map
    """,
    "Action": """
        name                                Name                            label
        command                             Command                         string!
        args                                Args                            strings
    """,
    "TaskSchedule": """
        cron                                Cron                            block TaskScheduleCron
    """,
    "TaskScheduleCron": """
        start                               Start                           string
        end                                 End                             string
        timezone                            Timezone                        string
    """,
    "Spread": """
        attribute                           Attribute                       string
        weight                              Weight                          int8?
        target                              SpreadTarget                    blocks SpreadTarget
    """,
    "SpreadTarget": """
        name                                Value                           label
        percent                             Percent                         uint8
    """,
    "VolumeRequest": """
        name                                Name                            label
        type                                Type                            string
        source                              Source                          string
        read_only                           ReadOnly                        bool
        sticky                              Sticky                          bool
        access_mode                         AccessMode                      string
        attachment_mode                     AttachmentMode                  string
        mount_options                       MountOptions                    block CSIMountOptions
        per_alloc                           PerAlloc                        bool
    """,
    "CSIMountOptions": """
        fs_type                             FSType                          string
        mount_flags                         MountFlags                      strings
    """,
    "DisconnectStrategy": """
        lost_after                          LostAfter                       duration?
        stop_on_client_after                StopOnClientAfter               duration?
        replace                             Replace                         bool?
        reconcile                           Reconcile                       string?
    """,
    "ReschedulePolicy": """
        attempts                            Attempts                        int?
        interval                            Interval                        duration?
        delay                               Delay                           duration?
        delay_function                      DelayFunction                   string?
        max_delay                           MaxDelay                        duration?
        unlimited                           Unlimited                       bool?
    """,
    "Gang": """
        min                                 Min                             int
        elastic                             Elastic                         bool?
        rendezvous                          Rendezvous                      block Rendezvous
    """,
    "Rendezvous": """
        framework                           Framework                       string?
        port                                Port                            string
        interface                           Interface                       string?
        barrier                             Barrier                         duration?
    """,
    "Requeue": """
        attempts                            Attempts                        int?
        delay                               Delay                           duration?
        delay_function                      DelayFunction                   string?
        max_delay                           MaxDelay                        duration?
    """,
    "Checkpoint": """
        signal                              Signal                          string?
        grace                               Grace                           duration?
        interval                            Interval                        duration?
        path                                Path                            string?
    """,
    "EphemeralDisk": """
        sticky                              Sticky                          bool?
        migrate                             Migrate                         bool?
        size                                SizeMB                          int?
    """,
    "UpdateStrategy": """
        stagger                             Stagger                         duration?
        max_parallel                        MaxParallel                     int?
        health_check                        HealthCheck                     string?
        min_healthy_time                    MinHealthyTime                  duration?
        healthy_deadline                    HealthyDeadline                 duration?
        progress_deadline                   ProgressDeadline                duration?
        canary                              Canary                          int?
        auto_revert                         AutoRevert                      bool?
        auto_promote                        AutoPromote                     bool?
    """,
    "MigrateStrategy": """
        max_parallel                        MaxParallel                     int?
        health_check                        HealthCheck                     string?
        min_healthy_time                    MinHealthyTime                  duration?
        healthy_deadline                    HealthyDeadline                 duration?
    """,
    "Multiregion": """
        strategy                            Strategy                        block MultiregionStrategy
        region                              Regions                         blocks MultiregionRegion
    """,
    "MultiregionStrategy": """
        max_parallel                        MaxParallel                     int?
        on_failure                          OnFailure                       string?
    """,
    "MultiregionRegion": """
        name                                Name                            label
        count                               Count                           int?
        datacenters                         Datacenters                     strings
        node_pool                           NodePool                        string
        meta                                Meta                            map
    """,
    "PeriodicConfig": """
        enabled                             Enabled                         bool?
        cron                                Spec                            string?
        crons                               Specs                           strings
        prohibit_overlap                    ProhibitOverlap                 bool?
        time_zone                           TimeZone                        string?
    """,
    "ParameterizedJobConfig": """
        payload                             Payload                         string
        meta_required                       MetaRequired                    strings
        meta_optional                       MetaOptional                    strings
    """,
    "JobUIConfig": """
        description                         Description                     string
        link                                Links                           blocks JobUILink
    """,
    "JobUILink": """
        label                               Label                           string
        url                                 URL                             string
    """,
}

_ZEROS: dict[str, Any] = {"string": "", "bool": False, "duration": 0}
_NESTED = ("block", "blocks", "keyed")
_MAPS = ("map", "multimap", "free")
_LISTS = ("strings", "ints", "durations")


ApiObject = dict[str, Any]
"""An object of a job in the API's spelling."""


class Field(NamedTuple):
    """An argument: its API field and kind; None for a field that always has a value."""

    field: str
    kind: str
    required: bool
    nullable: bool


class ChildBlock(NamedTuple):
    """A nested block: its API field, how it is stored, and the name of its table ("" for maps)."""

    field: str
    kind: str
    block: str


class BlockSchema(NamedTuple):
    """The parsed table of a block."""

    name: str
    labels: tuple[str, ...]
    attributes: dict[str, Field]
    blocks: dict[str, ChildBlock]
    zeros: dict[str, Any]
    required: tuple[str, ...]


_READ: dict[str, BlockSchema] = {}


def schema_of(name: str) -> BlockSchema:
    """The schema of a block; tables are parsed on demand."""
    schema = _READ.get(name)
    if schema is None:
        schema = _READ[name] = _read(name)
    return schema


_UNUSUAL_HOMES = ("sidecar_task", "multiregion")
"""Blocks that repeat what others have, and are seldom meant."""


@cache
def homes() -> dict[str, tuple[str, ...]]:
    """For each argument and block of a job file the words of the blocks that may hold it, the outermost first."""
    found: dict[str, list[str]] = {}
    waiting, seen = [("job", "Job")], {"Job"}
    for word, name in waiting:
        schema = schema_of(name)
        for key in (*schema.attributes, *schema.blocks):
            found.setdefault(key, []).append(word)
        for key, child in schema.blocks.items():
            if child.block and child.block not in seen and key not in _UNUSUAL_HOMES:
                seen.add(child.block)
                waiting.append((key, child.block))
    return {key: tuple(dict.fromkeys(words)) for key, words in found.items()}


def block_names() -> tuple[str, ...]:
    """The names of all blocks with a table."""
    return (*TABLE, *schema_services.TABLE)


def _read(name: str) -> BlockSchema:
    labels: list[str] = []
    attributes: dict[str, Field] = {}
    blocks: dict[str, ChildBlock] = {}
    zeros: dict[str, Any] = {}
    text = TABLE.get(name)
    for line in (schema_services.TABLE[name] if text is None else text).strip().splitlines():
        key, field, kind, *rest = line.split()
        if field == "-":
            field = f"-{key}"
        if kind == "label":
            labels.append(field)
        elif kind in _NESTED or kind in _MAPS:
            blocks[key] = ChildBlock(field, kind, rest[0] if rest else "")
        else:
            base = kind.rstrip("?!")
            if key != "-":
                nullable = kind.endswith("?") or base in _LISTS
                attributes[key] = Field(field, base, kind.endswith("!"), nullable)
            if base == kind and base not in _LISTS:
                zeros[field] = _ZEROS.get(base, 0)
    required = tuple(key for key, field_ in attributes.items() if field_.required)
    return BlockSchema(name, tuple(labels), attributes, blocks, zeros, required)
