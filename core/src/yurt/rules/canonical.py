"""The API's defaults: turns a job as sent into its canonical form.

Clients leave out what they do not care about. Canonicalization fills in the defaults that Nomad's API documents,
level by level: the job first, because groups inherit its update, reschedule and migrate policies, then each group,
because tasks inherit its restart policy. A field that is absent or null gets its default; a field that is set stays,
whatever its value. Nothing is checked here.

Policies are merged field by field: the job type's default, then the job's policy, then the group's (and for restart,
the task's).
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any

Data = dict[str, Any]

_SECOND = 10**9
_MINUTE = 60 * _SECOND
_HOUR = 60 * _MINUTE

_JOB: Data = {
    "Region": "global",
    "Namespace": "default",
    "NodePool": "",
    "Type": "service",
    "ParentID": "",
    "Priority": 50,
    "AllAtOnce": False,
    "ConsulNamespace": "",
    "VaultNamespace": "",
    "NomadTokenID": "",
    "Status": "",
    "StatusDescription": "",
    "Stop": False,
    "Stable": False,
    "Dispatched": False,
    "Version": 0,
    "CreateIndex": 0,
    "ModifyIndex": 0,
    "JobModifyIndex": 0,
}
_UPDATE: Data = {
    "Stagger": 30 * _SECOND,
    "MaxParallel": 1,
    "HealthCheck": "checks",
    "MinHealthyTime": 10 * _SECOND,
    "HealthyDeadline": 5 * _MINUTE,
    "ProgressDeadline": 10 * _MINUTE,
    "AutoRevert": False,
    "AutoPromote": False,
    "Canary": 0,
}
_MIGRATE: Data = {
    "MaxParallel": 1,
    "HealthCheck": "checks",
    "MinHealthyTime": 10 * _SECOND,
    "HealthyDeadline": 5 * _MINUTE,
}
_RESCHEDULE: dict[str, Data] = {
    "service": {
        "Attempts": 0,
        "Interval": 0,
        "Delay": 30 * _SECOND,
        "DelayFunction": "exponential",
        "MaxDelay": _HOUR,
        "Unlimited": True,
    },
    "batch": {
        "Attempts": 1,
        "Interval": 24 * _HOUR,
        "Delay": 5 * _SECOND,
        "DelayFunction": "constant",
        "MaxDelay": 0,
        "Unlimited": False,
    },
}
_RESCHEDULE_OTHER: Data = {
    "Attempts": 0,
    "Interval": 0,
    "Delay": 0,
    "DelayFunction": "",
    "MaxDelay": 0,
    "Unlimited": False,
}
_RESTART_LASTING: Data = {
    "Delay": 15 * _SECOND,
    "Attempts": 2,
    "Interval": 30 * _MINUTE,
    "Mode": "fail",
    "RenderTemplates": False,
}
_RESTART_ENDING: Data = {
    "Delay": 15 * _SECOND,
    "Attempts": 3,
    "Interval": 24 * _HOUR,
    "Mode": "fail",
    "RenderTemplates": False,
}
_EPHEMERAL_DISK: Data = {"Sticky": False, "Migrate": False, "SizeMB": 300}
_LOGS: Data = {"MaxFiles": 10, "MaxFileSizeMB": 10, "Disabled": False}
_TEMPLATE: Data = {
    "SourcePath": "",
    "DestPath": "",
    "EmbeddedTmpl": "",
    "ChangeMode": "restart",
    "Once": False,
    "Splay": 5 * _SECOND,
    "Perms": "0644",
    "LeftDelim": "{{",
    "RightDelim": "}}",
    "Envvars": False,
    "VaultGrace": 0,
    "ErrMissingKey": False,
}
_CHANGE_SCRIPT: Data = {
    "Command": "",
    "Args": [],
    "Timeout": 5 * _SECOND,
    "FailOnError": False,
    "RunOnFirstRender": False,
}
_VAULT: Data = {
    "Env": True,
    "DisableFile": False,
    "Namespace": "",
    "ChangeMode": "restart",
    "ChangeSignal": "SIGHUP",
    "AllowTokenExpiration": False,
}
_CSI_PLUGIN: Data = {"MountDir": "/csi", "StagePublishBaseDir": "/local/csi", "HealthTimeout": 30 * _SECOND}
_VOLUME_MOUNT: Data = {"ReadOnly": False, "PropagationMode": "private", "SELinuxLabel": ""}
_PERIODIC: Data = {"Enabled": True, "Spec": "", "Specs": [], "SpecType": "cron", "ProhibitOverlap": False}
_SERVICE: Data = {"AddressMode": "auto", "OnUpdate": "require_healthy", "Provider": "consul", "Cluster": "default"}
_REQUEUE: Data = {"Attempts": -1, "Delay": 0, "DelayFunction": "exponential", "MaxDelay": _HOUR}
_CHECKPOINT: Data = {"Signal": "SIGTERM", "Grace": _MINUTE, "Interval": 0, "Path": "checkpoint"}
_RENDEZVOUS: Data = {"Framework": "none", "Barrier": 10 * _MINUTE}
_DISCONNECT: Data = {"Replace": True, "Reconcile": "best_score"}


def canonicalize_job(job: Mapping[str, Any]) -> Data:
    """A copy of the job with the API's defaults; the argument is unchanged."""
    copy: Data = _copied(job)
    return fill_in(copy)


def fill_in(result: Data) -> Data:
    """Add the API's defaults to a job in place and return it."""
    if None in result.values():
        _fill(result, _JOB)
    else:
        result.update(_JOB | result)  # the same for a job without a null, in C
    result.setdefault("ID", "")
    if result.get("Name") is None:
        result["Name"] = result["ID"]
    kind = result["Type"]
    _present(result, "Periodic", _periodic)
    _present(result, "Multiregion", _multiregion)
    if result.get("Update") is not None or kind in ("service", "system"):
        result["Update"] = _merged(_UPDATE, result.get("Update"))
    _weights(result)
    for group in result.get("TaskGroups") or ():
        _group(group, result)
    return result


# Helpers.


def _copied(value: Any) -> Any:
    """A copy of JSON data; several times as fast as deepcopy, which also checks for cycles."""
    kind = type(value)
    if kind is str or kind is int:
        return value
    if kind is list or kind is tuple:
        return [_copied(item) for item in value]
    return {key: _copied(item) for key, item in value.items()} if isinstance(value, Mapping) else value


def _fill(target: Data, defaults: Data) -> None:
    """Set absent and null fields."""
    for field, value in defaults.items():
        # Not `get`: each of these fields is looked up in every job that anybody registers.
        if field not in target or target[field] is None:
            target[field] = list(value) if type(value) is list else value


def _fill_empty(target: Data, defaults: Data) -> None:
    """Set absent, null and zero fields, for fields in which these mean the same."""
    for field, value in defaults.items():
        if not target.get(field):
            target[field] = value


def _merged(*policies: Data | None) -> Data:
    """The policies merged; a later one overrides an earlier one."""
    result: Data = {}
    for policy in policies:
        if policy:
            # Nearly all policies are our own defaults, without a null: C code copies these.
            has_null = None in policy.values()
            result.update({key: value for key, value in policy.items() if value is not None} if has_null else policy)
    return result


def _present(owner: Data, field: str, rule: Any) -> None:
    """Apply a rule to an object if it exists."""
    if owner.get(field) is not None:
        rule(owner[field])


def _each(owner: Data, field: str, rule: Any, *context: Any) -> None:
    for item in owner.get(field) or ():
        rule(item, *context)


def _drop_empty(owner: Data, *fields: str) -> None:
    """Remove empty collections, which are equivalent to absent ones."""
    for field in fields:
        if field in owner and not owner[field]:
            owner[field] = None


def _weights(owner: Data) -> None:
    for field in ("Affinities", "Spreads"):
        for item in owner.get(field) or ():
            _fill(item, {"Weight": 50})
    for affinity in owner.get("Affinities") or ():
        affinity["Operand"] = affinity.get("Operand") or "="


# Job.


def _periodic(periodic: Data) -> None:
    _fill(periodic, _PERIODIC)
    periodic["TimeZone"] = periodic.get("TimeZone") or "UTC"


def _multiregion(multiregion: Data) -> None:
    multiregion["Strategy"] = _merged({"MaxParallel": 0, "OnFailure": ""}, multiregion.get("Strategy"))
    multiregion["Regions"] = multiregion.get("Regions") or []
    for region in multiregion["Regions"]:
        _fill(region, {"Count": 1, "Datacenters": []})
        if region.get("Meta") is None:
            region["Meta"] = {}


# Group.


def _group(group: Data, job: Data) -> None:
    kind = job["Type"]
    _fill(group, {"Name": ""})
    scaling = group.get("Scaling")
    if group.get("Count") is None:
        minimum = scaling.get("Min") if scaling else None
        group["Count"] = 1 if minimum is None else minimum
    if scaling:
        _scaling(scaling, group["Count"])
    _group_policies(group, job, kind)
    _preemption_policies(group, job)
    group["EphemeralDisk"] = _merged(_EPHEMERAL_DISK, group.get("EphemeralDisk"))
    _weights(group)
    _present(group, "Gang", _gang)
    _present(group, "Disconnect", lambda disconnect: _fill(disconnect, _DISCONNECT))
    _present(group, "Consul", _consul)
    _each(group, "Networks", _network)
    _each(group, "Services", _service, f"{job['Name']}-{group['Name']}")
    for name, volume in (group.get("Volumes") or {}).items():
        volume["Name"] = volume.get("Name") or name
    _each(group, "Tasks", _task, group, job)


def _gang(gang: Data) -> None:
    _fill(gang, {"Min": 0})
    _present(gang, "Rendezvous", lambda rendezvous: _fill(rendezvous, _RENDEZVOUS))


def _group_policies(group: Data, job: Data, kind: str) -> None:
    if job.get("Update") is not None or group.get("Update") is not None:
        group["Update"] = _merged(_UPDATE, job.get("Update"), group.get("Update"))
    if kind not in ("system", "sysbatch"):
        default = _RESCHEDULE.get(kind, _RESCHEDULE_OTHER)
        group["ReschedulePolicy"] = _merged(default, job.get("Reschedule"), group.get("ReschedulePolicy"))
    elif group.get("ReschedulePolicy") is not None or job.get("Reschedule") is not None:
        group["ReschedulePolicy"] = _merged(_RESCHEDULE_OTHER, job.get("Reschedule"), group.get("ReschedulePolicy"))
    if kind == "service" or group.get("Migrate") is not None or job.get("Migrate") is not None:
        group["Migrate"] = _merged(_MIGRATE, job.get("Migrate"), group.get("Migrate"))
    restart = _RESTART_LASTING if kind in ("service", "system") else _RESTART_ENDING
    group["RestartPolicy"] = _merged(restart, group.get("RestartPolicy"))


def _preemption_policies(group: Data, job: Data) -> None:
    """A group that saves its work is requeued, and its disk migrates with it unless the work is on a volume."""
    if job.get("Checkpoint") is not None or group.get("Checkpoint") is not None:
        found = group["Checkpoint"] = _merged(_CHECKPOINT, job.get("Checkpoint"), group.get("Checkpoint"))
        if group.get("Requeue") is None:
            group["Requeue"] = {}
        if not str(found["Path"]).startswith("/"):
            group["EphemeralDisk"] = _merged({"Sticky": True, "Migrate": True}, group.get("EphemeralDisk"))
    if job.get("Requeue") is not None or group.get("Requeue") is not None:
        group["Requeue"] = _merged(_REQUEUE, job.get("Requeue"), group.get("Requeue"))


def _scaling(scaling: Data, count: int) -> None:
    _fill(scaling, {"Enabled": True})
    if scaling.get("Min") is None:
        scaling["Min"] = count
    scaling["Type"] = scaling.get("Type") or "horizontal"


def _consul(consul: Data) -> None:
    consul["Cluster"] = consul.get("Cluster") or "default"


def _network(network: Data) -> None:
    if network.get("DNS") is not None:
        _drop_empty(network["DNS"], "Servers", "Searches", "Options")


# Task.


def _task(task: Data, group: Data, job: Data) -> None:
    _fill(task, {"Name": "", "KillTimeout": 5 * _SECOND})
    lifecycle = task.get("Lifecycle")
    if lifecycle is not None and not lifecycle.get("Hook") and not lifecycle.get("Sidecar"):
        task["Lifecycle"] = None
    task["Resources"] = _resources(task.get("Resources"))
    task["LogConfig"] = _merged(_LOGS, task.get("LogConfig"))
    task["RestartPolicy"] = _merged(group["RestartPolicy"], task.get("RestartPolicy"))
    _weights(task)
    _present(task, "Vault", _vault)
    _present(task, "Consul", _consul)
    _present(task, "CSIPluginConfig", lambda plugin: _fill_empty(plugin, _CSI_PLUGIN))
    _each(task, "Artifacts", _artifact)
    _each(task, "Templates", _template)
    _each(task, "VolumeMounts", lambda mount: _fill(mount, _VOLUME_MOUNT))
    _each(task, "Secrets", lambda secret: _drop_empty(secret, "Config", "Env"))
    _each(task, "Services", _service, f"{job['Name']}-{group['Name']}-{task['Name']}")


def _resources(resources: Data | None) -> Data:
    result: Data = {} if resources is None else resources
    if result.get("CPU") is None:
        result["CPU"] = 0 if result.get("Cores") else 100
    _fill(result, {"Cores": 0, "MemoryMB": 300})
    for device in result.get("Devices") or ():
        _device(device)
    if result.get("NUMA") is not None:
        result["NUMA"]["Affinity"] = result["NUMA"].get("Affinity") or "none"
        _drop_empty(result["NUMA"], "Devices")
    _each(result, "Networks", _network)
    return result


def _device(device: Data) -> None:
    if device.get("Count") == "all":
        device["Count"], device["AllOfNode"] = 1, True
    _fill(device, {"Count": 1})
    if isinstance(device.get("Idle"), dict):
        from yurt.rules.idle import fill_idle

        fill_idle(device["Idle"])
    _weights(device)
    _each(device, "FirstAvailable", _device)


def _vault(vault: Data) -> None:
    _fill(vault, _VAULT)
    vault["Cluster"] = vault.get("Cluster") or "default"


def _artifact(artifact: Data) -> None:
    _fill(artifact, {"GetterSource": "", "GetterMode": "any", "GetterInsecure": False})
    _drop_empty(artifact, "GetterOptions", "GetterHeaders")
    if artifact.get("RelativeDest") is None:
        name = posixpath.basename(artifact["GetterSource"])
        artifact["RelativeDest"] = posixpath.join("local/", name) if artifact["GetterMode"] == "file" else "local/"


def _template(template: Data) -> None:
    _fill(template, _TEMPLATE)
    signals = template["ChangeMode"] == "signal"
    template["ChangeSignal"] = (template.get("ChangeSignal") or ("SIGHUP" if signals else "")).upper()
    _present(template, "ChangeScript", lambda script: _fill(script, _CHANGE_SCRIPT))


# Services.


def _service(service: Data, default_name: str) -> None:
    service["Name"] = service.get("Name") or default_name
    _fill_empty(service, _SERVICE)
    _drop_empty(service, "Meta", "CanaryMeta", "TaggedAddresses")
    if service.get("CheckRestart") is not None:
        _check_restart(service["CheckRestart"])
    if service.get("Weights") is not None:
        for field in ("Passing", "Warning"):
            service["Weights"][field] = max(1, service["Weights"].get(field) or 0)
    _present(service, "Connect", _connect)
    for check in service.get("Checks") or ():
        _check(check, service)


def _check_restart(restart: Data) -> None:
    _fill(restart, {"Limit": 0, "Grace": _SECOND, "IgnoreWarnings": False})


def _check(check: Data, service: Data) -> None:
    for field in ("SuccessBeforePassing", "FailuresBeforeCritical", "FailuresBeforeWarning"):
        check[field] = max(0, check.get(field) or 0)
    check["OnUpdate"] = check.get("OnUpdate") or service["OnUpdate"]
    if service.get("CheckRestart") is not None or check.get("CheckRestart") is not None:
        check["CheckRestart"] = _merged(service.get("CheckRestart"), check.get("CheckRestart"))
        _check_restart(check["CheckRestart"])


def _connect(connect: Data) -> None:
    _present(connect, "SidecarTask", _sidecar_task)
    sidecar = connect.get("SidecarService")
    if sidecar is not None:
        _drop_empty(sidecar, "Tags", "Meta")
    gateway = connect.get("Gateway")
    if gateway is not None and gateway.get("Proxy") is not None:
        _fill(gateway["Proxy"], {"ConnectTimeout": 5 * _SECOND})
        _drop_empty(gateway["Proxy"], "EnvoyGatewayBindAddresses", "Config")


def _sidecar_task(task: Data) -> None:
    _fill(task, {"KillTimeout": 5 * _SECOND, "ShutdownDelay": 0})
    _drop_empty(task, "Config", "Env")
    task["Resources"] = _resources(task.get("Resources"))
    task["LogConfig"] = _merged(_LOGS, task.get("LogConfig"))
