/** What a job file may contain, by block; made from the table that reads job files by `make docs`. */
export const SCHEMA = {
 "Job": {
  "region": "string",
  "namespace": "string",
  "id": "string",
  "name": "string",
  "type": "string",
  "priority": "int",
  "all_at_once": "bool",
  "datacenters": "strings",
  "node_pool": "string",
  "constraint": "> Constraint",
  "affinity": "> Affinity",
  "group": "> TaskGroup",
  "update": "> UpdateStrategy",
  "multiregion": "> Multiregion",
  "spread": "> Spread",
  "periodic": "> PeriodicConfig",
  "parameterized": "> ParameterizedJobConfig",
  "reschedule": "> ReschedulePolicy",
  "migrate": "> MigrateStrategy",
  "requeue": "> Requeue",
  "checkpoint": "> Checkpoint",
  "meta": "map",
  "ui": "> JobUIConfig",
  "task": "> Task",
  "vault": "> Vault",
  "secret": "> Secret"
 },
 "Constraint": {
  "attribute": "string",
  "value": "string",
  "operator": "string",
  "regexp": "string",
  "version": "string",
  "semver": "string",
  "set_contains": "string",
  "set_contains_any": "string",
  "set_contains_all": "string",
  "distinct_hosts": "bool",
  "distinct_property": "string",
  "is_set": "bool",
  "is_not_set": "bool"
 },
 "Affinity": {
  "attribute": "string",
  "value": "string",
  "operator": "string",
  "weight": "int8",
  "regexp": "string",
  "version": "string",
  "semver": "string",
  "set_contains": "string",
  "set_contains_any": "string",
  "set_contains_all": "string"
 },
 "TaskGroup": {
  "count": "int",
  "constraint": "> Constraint",
  "affinity": "> Affinity",
  "task": "> Task",
  "spread": "> Spread",
  "volume": "> VolumeRequest",
  "restart": "> RestartPolicy",
  "disconnect": "> DisconnectStrategy",
  "reschedule": "> ReschedulePolicy",
  "ephemeral_disk": "> EphemeralDisk",
  "update": "> UpdateStrategy",
  "migrate": "> MigrateStrategy",
  "network": "> NetworkResource",
  "meta": "map",
  "service": "> Service",
  "shutdown_delay": "duration",
  "max_run_duration": "duration",
  "stop_after_client_disconnect": "duration",
  "max_client_disconnect": "duration",
  "scaling": "> ScalingPolicy",
  "gang": "> Gang",
  "requeue": "> Requeue",
  "checkpoint": "> Checkpoint",
  "consul": "> Consul",
  "vault": "> Vault",
  "prevent_reschedule_on_lost": "bool"
 },
 "Task": {
  "driver": "string",
  "user": "string",
  "lifecycle": "> TaskLifecycle",
  "config": "free",
  "constraint": "> Constraint",
  "affinity": "> Affinity",
  "env": "map",
  "service": "> Service",
  "resources": "> Resources",
  "restart": "> RestartPolicy",
  "meta": "map",
  "kill_timeout": "duration",
  "logs": "> LogConfig",
  "artifact": "> TaskArtifact",
  "vault": "> Vault",
  "consul": "> Consul",
  "template": "> Template",
  "dispatch_payload": "> DispatchPayloadConfig",
  "volume_mount": "> VolumeMount",
  "csi_plugin": "> TaskCSIPluginConfig",
  "leader": "bool",
  "shutdown_delay": "duration",
  "kill_signal": "string",
  "kind": "string",
  "scaling": "> TaskScalingPolicy",
  "secret": "> Secret",
  "identity": "> WorkloadIdentity",
  "action": "> Action",
  "schedule": "> TaskSchedule"
 },
 "TaskLifecycle": {
  "hook": "string",
  "sidecar": "bool"
 },
 "Resources": {
  "cpu": "int",
  "cores": "int",
  "memory": "int",
  "memory_max": "int",
  "disk": "int",
  "network": "> NetworkResource",
  "device": "> RequestedDevice",
  "numa": "> NUMAResource",
  "secrets": "int",
  "iops": "int"
 },
 "NetworkResource": {
  "mode": "string",
  "device": "string",
  "cidr": "string",
  "ip": "string",
  "dns": "> DNSConfig",
  "reserved_ports": "> Port",
  "port": "> Port",
  "hostname": "string",
  "mbits": "int",
  "cni": "> CNIConfig"
 },
 "DNSConfig": {
  "servers": "strings",
  "searches": "strings",
  "options": "strings"
 },
 "Port": {
  "static": "int",
  "to": "int",
  "host_network": "string",
  "ignore_collision": "bool"
 },
 "CNIConfig": {
  "args": "map"
 },
 "RequestedDevice": {
  "count": "count",
  "constraint": "> Constraint",
  "affinity": "> Affinity",
  "ids": "strings",
  "first_available": "> RequestedDevice",
  "topology": "> DeviceTopology",
  "share": "string",
  "memory": "size",
  "compute": "uint8",
  "on_failure": "string",
  "idle": "> IdlePolicy"
 },
 "IdlePolicy": {
  "below": "uint8",
  "gpus": "string",
  "window": "duration",
  "first": "duration",
  "warn": "durations",
  "action": "string",
  "grace": "duration",
  "when": "string",
  "interactive": "> InteractivePolicy"
 },
 "InteractivePolicy": {
  "window": "duration",
  "keep": "uint8",
  "hours": "> InteractiveHours"
 },
 "InteractiveHours": {
  "start": "string",
  "end": "string",
  "timezone": "string"
 },
 "DeviceTopology": {
  "nvlink": "string",
  "numa": "string"
 },
 "NUMAResource": {
  "affinity": "string",
  "devices": "strings"
 },
 "LogConfig": {
  "max_files": "int",
  "max_file_size": "int",
  "enabled": "bool",
  "disabled": "bool"
 },
 "VolumeMount": {
  "volume": "string",
  "destination": "string",
  "read_only": "bool",
  "propagation_mode": "string",
  "selinux_label": "string"
 },
 "WorkloadIdentity": {
  "name": "string",
  "aud": "strings",
  "change_mode": "string",
  "change_signal": "string",
  "env": "bool",
  "file": "bool",
  "filepath": "string",
  "service_name": "string",
  "ttl": "duration",
  "extra_claims": "strings"
 },
 "RestartPolicy": {
  "interval": "duration",
  "attempts": "int",
  "delay": "duration",
  "mode": "string",
  "render_templates": "bool"
 },
 "TaskArtifact": {
  "source": "string",
  "options": "map",
  "headers": "map",
  "mode": "string",
  "insecure": "bool",
  "destination": "string",
  "chown": "bool"
 },
 "Vault": {
  "policies": "strings",
  "role": "string",
  "namespace": "string",
  "cluster": "string",
  "env": "bool",
  "disable_file": "bool",
  "change_mode": "string",
  "change_signal": "string",
  "allow_token_expiration": "bool"
 },
 "Template": {
  "source": "string",
  "destination": "string",
  "data": "string",
  "change_mode": "string",
  "change_script": "> ChangeScript",
  "change_signal": "string",
  "once": "bool",
  "splay": "duration",
  "perms": "string",
  "uid": "int",
  "gid": "int",
  "left_delimiter": "string",
  "right_delimiter": "string",
  "env": "bool",
  "vault_grace": "duration",
  "wait": "> WaitConfig",
  "error_on_missing_key": "bool"
 },
 "ChangeScript": {
  "command": "string",
  "args": "strings",
  "timeout": "duration",
  "fail_on_error": "bool",
  "run_on_first_render": "bool"
 },
 "WaitConfig": {
  "min": "duration",
  "max": "duration"
 },
 "DispatchPayloadConfig": {
  "file": "string"
 },
 "TaskCSIPluginConfig": {
  "id": "string",
  "type": "string",
  "mount_dir": "string",
  "stage_publish_base_dir": "string",
  "health_timeout": "duration"
 },
 "ScalingPolicy": {
  "min": "int",
  "max": "int",
  "policy": "free",
  "enabled": "bool",
  "type": "string"
 },
 "TaskScalingPolicy": {
  "min": "int",
  "max": "int",
  "policy": "free",
  "enabled": "bool",
  "type": "string"
 },
 "Secret": {
  "provider": "string",
  "path": "string",
  "config": "free",
  "env": "map"
 },
 "Action": {
  "command": "string",
  "args": "strings"
 },
 "TaskSchedule": {
  "cron": "> TaskScheduleCron"
 },
 "TaskScheduleCron": {
  "start": "string",
  "end": "string",
  "timezone": "string"
 },
 "Spread": {
  "attribute": "string",
  "weight": "int8",
  "target": "> SpreadTarget"
 },
 "SpreadTarget": {
  "percent": "uint8"
 },
 "VolumeRequest": {
  "type": "string",
  "source": "string",
  "read_only": "bool",
  "sticky": "bool",
  "access_mode": "string",
  "attachment_mode": "string",
  "mount_options": "> CSIMountOptions",
  "per_alloc": "bool"
 },
 "CSIMountOptions": {
  "fs_type": "string",
  "mount_flags": "strings"
 },
 "DisconnectStrategy": {
  "lost_after": "duration",
  "stop_on_client_after": "duration",
  "replace": "bool",
  "reconcile": "string"
 },
 "ReschedulePolicy": {
  "attempts": "int",
  "interval": "duration",
  "delay": "duration",
  "delay_function": "string",
  "max_delay": "duration",
  "unlimited": "bool"
 },
 "Gang": {
  "min": "int",
  "elastic": "bool",
  "rendezvous": "> Rendezvous"
 },
 "Rendezvous": {
  "framework": "string",
  "port": "string",
  "interface": "string",
  "barrier": "duration"
 },
 "Requeue": {
  "attempts": "int",
  "delay": "duration",
  "delay_function": "string",
  "max_delay": "duration"
 },
 "Checkpoint": {
  "signal": "string",
  "grace": "duration",
  "interval": "duration",
  "path": "string"
 },
 "EphemeralDisk": {
  "sticky": "bool",
  "migrate": "bool",
  "size": "int"
 },
 "UpdateStrategy": {
  "stagger": "duration",
  "max_parallel": "int",
  "health_check": "string",
  "min_healthy_time": "duration",
  "healthy_deadline": "duration",
  "progress_deadline": "duration",
  "canary": "int",
  "auto_revert": "bool",
  "auto_promote": "bool"
 },
 "MigrateStrategy": {
  "max_parallel": "int",
  "health_check": "string",
  "min_healthy_time": "duration",
  "healthy_deadline": "duration"
 },
 "Multiregion": {
  "strategy": "> MultiregionStrategy",
  "region": "> MultiregionRegion"
 },
 "MultiregionStrategy": {
  "max_parallel": "int",
  "on_failure": "string"
 },
 "MultiregionRegion": {
  "count": "int",
  "datacenters": "strings",
  "node_pool": "string",
  "meta": "map"
 },
 "PeriodicConfig": {
  "enabled": "bool",
  "cron": "string",
  "crons": "strings",
  "prohibit_overlap": "bool",
  "time_zone": "string"
 },
 "ParameterizedJobConfig": {
  "payload": "string",
  "meta_required": "strings",
  "meta_optional": "strings"
 },
 "JobUIConfig": {
  "description": "string",
  "link": "> JobUILink"
 },
 "JobUILink": {
  "label": "string",
  "url": "string"
 },
 "Variable": {
  "type": "string",
  "default": "any",
  "description": "string"
 }
};
