"""What the blocks and attributes of a job file mean: a sentence each, by the name of the block's table."""

from __future__ import annotations

from docs.generator.markdown import notes

TEXT = {
    "Job": """
region            Must be the agent's own region.
namespace         The namespace; `-namespace` and `NOMAD_NAMESPACE` serve where the file has none.
id                Another id than the block's label.
name              Another name than the id, for people.
type              `service`, `batch`, `system` or `sysbatch`.
priority          1 to `job_max_priority` of the server (100); evaluations of a higher one go first.
all_at_once       A plan of which one placement is refused is refused as a whole.
datacenters       Names or patterns (`dc*`) of the datacenters that may be used.
node_pool         The pool of nodes to use; `all` means every pool.
constraint        What a node must have.
affinity          What a node should have, or should not.
group             Tasks that always run together on one node.
update            How new versions are rolled out; groups inherit it.
multiregion       Refused when it names regions.
spread            Distributes allocations over the values of an attribute.
periodic          Starts a child of the job on a schedule; `batch` and `sysbatch` only.
parameterized     The job is a template that `job dispatch` starts; `batch` and `sysbatch` only.
reschedule        When and where failed allocations are replaced; groups inherit it.
migrate           How many allocations leave a draining node at once; groups inherit it.
requeue           What becomes of preempted allocations; groups inherit it. `batch` only.
checkpoint        How tasks save their work before they are preempted; groups inherit it. `batch` only.
meta              Free values, `NOMAD_META_<name>` in tasks.
ui                Stored and shown by the API.
task              A task at this level is a group of its own, with the task's name.
vault             Handed down to every task that has none.
secret            Handed down to every task.
""",
    "Constraint": """
attribute         The left side, mostly an interpolation such as `${attr.kernel.name}`.
value             The right side.
operator          See [operators](#operators).
regexp            Short for `operator = "regexp"` with this value.
version           Short for `operator = "version"` with this value.
semver            Short for `operator = "semver"` with this value.
set_contains      Short for `operator = "set_contains"` with this value.
set_contains_any  Short for `operator = "set_contains_any"` with this value.
set_contains_all  Short for `operator = "set_contains_all"` with this value.
distinct_hosts    No two allocations of the job (or group) on one node.
distinct_property At most `value` allocations (default 1) for each value of this attribute.
is_set            Is dropped with a warning; write `operator = "is_set"`.
is_not_set        Is dropped with a warning; write `operator = "is_not_set"`.
""",
    "Affinity": """
attribute         The left side, as in a constraint.
value             The right side.
operator          See [operators](#operators).
weight            -100 to 100 and not 0; negative means: rather not there.
regexp            Short for `operator = "regexp"` with this value.
version           Short for `operator = "version"` with this value.
semver            Short for `operator = "semver"` with this value.
set_contains      Short for `operator = "set_contains"` with this value.
set_contains_any  Short for `operator = "set_contains_any"` with this value.
set_contains_all  Short for `operator = "set_contains_all"` with this value.
""",
    "TaskGroup": """
count             How many allocations of the group; `min` of `scaling` where that is set and this is not.
constraint        What a node must have for this group.
affinity          What a node should have for this group.
task              One process, container or whatever its driver runs.
spread            Distributes the group's allocations.
volume            A volume that tasks may mount; host volumes decide about placement.
restart           When tasks are restarted on the same node.
disconnect        What happens when the node is out of reach.
reschedule        When and where a failed allocation is replaced.
ephemeral_disk    The allocation's shared folder.
update            How new versions of the group are rolled out.
migrate           How many allocations leave a draining node at once.
network           The network and ports of the group; one block.
meta              Free values, `NOMAD_META_<name>` in tasks; wins over the job's.
service           Registered while the task (or any task of the group) runs, with `provider = "nomad"`; its
                  `tcp` and `http` checks are run.
shutdown_delay    Wait between the wish to stop the allocation and the first signal.
max_run_duration  An allocation that runs for longer is stopped; `batch` and `sysbatch` only.
stop_after_client_disconnect  Has no effect: use `disconnect`; a warning says so.
max_client_disconnect  Has no effect: use `disconnect`; a warning says so.
scaling           Bounds for `job scale`.
gang              Yurt's own: the group's allocations are placed together or not at all.
requeue           Yurt's own: a preempted allocation waits in the queue again, and goes on where it was. `batch` only.
checkpoint        Yurt's own: how tasks save their work before they are preempted. `batch` only.
consul            Stored; has no effect.
vault             Handed down to every task of the group that has none.
prevent_reschedule_on_lost  Has no effect: use `disconnect`; a warning says so.
""",
    "Task": """
driver            The driver that runs the task, see [drivers](drivers.md).
user              The user that the process runs as; the driver decides whether it can.
lifecycle         Makes the task run before, along with or after the main tasks.
config            The driver's own options, see [drivers](drivers.md).
constraint        What a node must have for this task.
affinity          What a node should have for this task.
env               Environment variables; `${...}` is replaced.
service           Registered while the task (or any task of the group) runs, with `provider = "nomad"`; its
                  `tcp` and `http` checks are run.
resources         What the task needs.
restart           As the group's, field by field.
meta              Free values, `NOMAD_META_<name>`; wins over the group's.
kill_timeout      Time between the signal and the kill; at most `max_kill_timeout` of the client.
logs              How the task's output is kept.
artifact          Files to fetch before the task starts.
vault             A token of Vault.
consul            A token of Consul.
template          Files that are rendered.
dispatch_payload  Where the payload of `job dispatch` is written.
volume_mount      Where a volume of the group appears.
csi_plugin        Makes the task a CSI plugin, whose volumes the tasks of its node can mount.
leader            When this task ends, the others of the allocation are stopped.
shutdown_delay    Wait between the wish to stop this task and its signal.
kill_signal       The signal of the stop; default is the driver's, `SIGINT` for processes.
kind              Stored; has no effect.
scaling           Stored; has no effect.
secret            Values from a secret provider.
identity          A signed token for the task, renewed in time; one for Consul or Vault is refused when the task
                  starts.
action            A command that `job action` runs in the task; `${...}` in it are replaced as in `config`.
schedule          Times at which the task runs.
""",
    "TaskLifecycle": """
hook              `prestart`, `poststart` or `poststop`.
sidecar           The task runs along with the main tasks instead of before or after them.
""",
    "Resources": """
cpu               MHz; 0 where `cores` is set.
cores             Whole cores for this task alone, instead of `cpu`.
memory            MiB; at least 10.
memory_max        MiB that may be used where the scheduler's configuration allows oversubscription; -1: no limit.
disk              Refused at this place when not 0: use the group's `ephemeral_disk`.
network           Ports of this task alone, as in old job files; use the group's `network`.
device            Devices, by type, vendor/type or vendor/type/name.
numa              With `require` and devices the task's memory lies near them; has no effect on placement.
secrets           MiB of memory for the secrets folder, at most `memory`; not in dev mode.
iops              Has no effect.
""",
    "NetworkResource": """
mode              `host` (or nothing), `none`, `bridge`, or `cni/NAME` for a CNI configuration of the node.
device            Stored; has no effect.
cidr              Stored; has no effect.
ip                Stored; has no effect.
dns               The resolver of the group's tasks, where their driver mounts files.
reserved_ports    The API's form of ports with `static`; write `port`.
port              A port with a label: chosen by the scheduler, or a `static` one.
hostname          The host name that drivers with a name space of their own give to the task.
mbits             Stored; bandwidth is not counted.
cni               Arguments for the CNI plugins; with `bridge` and `cni/NAME`.
""",
    "DNSConfig": """
servers           Addresses of name servers.
searches          Search domains.
options           Options of the resolver.
""",
    "Port": """
static            This very port; 0 lets the scheduler choose one between `min_dynamic_port` and `max_dynamic_port`.
to                The port inside the task's network; -1: the same as outside.
host_network      The client's `host_network` whose address is used.
ignore_collision  A static port may be in use already.
""",
    "CNIConfig": """
args              Arguments for the plugin.
""",
    "RequestedDevice": """
count             How many, or `"all"`: all healthy ones of a node that match, none of which may be taken.
constraint        On the device's own attributes, `${device.attr.<name>}`, also those in which the devices of a group
                  differ; sizes, clocks and powers are compared with their units.
affinity          Which devices to prefer.
ids               Only these devices: short for a constraint on `${device.ids}`.
first_available   Yurt's own: alternatives, of which the first that a node can give is taken; the block around them
                  then asks for nothing itself.
topology          Yurt's own: how near to each other the devices must be.
share             Yurt's own: `mps` or `slice` for a part of each device, `mig` for a MIG instance.
memory            Of a share: MiB, or a text like `"20GiB"`; of a MIG instance at least so much.
compute           Of a share: percent of the device's compute; 0 sets no limit.
on_failure        Yurt's own, for `service` and `batch` jobs: what happens when a device fails under the task. `notify`:
                  the task gets an event and goes on. `move`: the allocation ends, after its checkpoint if the group has
                  one, and is placed again on other devices; this counts as no failure. Default `move` in groups with
                  `requeue`, else `notify`. See ../explanation/device-health.md.
idle              Yurt's own: what becomes of the group's allocations while they do not use their devices; once in a
                  group, for all of its devices.
""",
    "IdlePolicy": """
below             The percentage of time below which a busy device counts as idle, 2 by default; see
                  [how idleness is judged](../explanation/idle-devices.md).
gpus              `all` devices of an allocation must be idle (the default), or `any`, for `notify` alone.
window            After so long without use the allocation ends; 1 hour by default.
first             So long after the start of the tasks nothing counts, 90 minutes by default: data is loaded, programs
                  are compiled.
warn              Idle times at which a warning is given; a half and five sixths of the window by default.
action            `notify` (the default), `requeue` (`batch` only: it waits again, with its `checkpoint`), `stop`, or
                  `shrink` an elastic gang to its `min`.
grace             The time between the announcement of the end and the end, 5 minutes by default.
when              `contended` (the default): only while a waiting job would fit on the devices; or `always`.
interactive       Other rules where people work with it.
""",
    "InteractivePolicy": """
window            The window in these hours; without it nothing ends in `hours`.
keep              How often `alloc keep` may put the end off while others wait; 3 by default.
hours             When these rules hold; without it always.
""",
    "InteractiveHours": """
start             A daily time as a cron expression: `"0 8 * * MON-FRI *"`.
end               Minute and hour of the same day: `"0 18"`.
timezone          A time zone such as `"Europe/Berlin"`; UTC without one.
""",
    "DeviceTopology": """
nvlink            `prefer` (the default), `require` or `ignore` devices that NVLink joins, each with each.
numa              `prefer` (the default), `require` or `ignore` devices on one NUMA node.
""",
    "NUMAResource": """
affinity          `none`, `prefer` or `require`.
devices           Devices that must be near.
""",
    "LogConfig": """
max_files         How many files of each output are kept.
max_file_size     MiB; all of it must be less than `size` of `ephemeral_disk`.
enabled           The older word for not `disabled`; has no effect.
disabled          The output is not kept at all.
""",
    "VolumeMount": """
volume            The label of a `volume` of the group.
destination       The path inside the task.
read_only         Mount it for reading only.
propagation_mode  `private`, `host-to-task` or `bidirectional`.
selinux_label     For drivers of containers: `z` shares the volume among containers, `Z` gives it to one.
""",
    "WorkloadIdentity": """
name              Nothing or `default` for the task's default identity.
aud               Who the token is for.
change_mode       What to do when the token changes.
change_signal     The signal for `change_mode = "signal"`.
env               Puts the token into the environment.
file              Writes the token into the secrets folder.
filepath          Where to write it.
service_name      The service that the identity belongs to.
ttl               How long a token is valid.
extra_claims      Names of additional claims.
""",
    "RestartPolicy": """
interval          The stretch of time in which `attempts` are counted; at least 5s.
attempts          How many restarts within an interval.
delay             The wait before a restart, up to a quarter of it longer.
mode              What follows when the attempts are used up: `fail`, or `delay` until the interval is over.
render_templates  Templates are rendered again before each restart.
""",
    "TaskArtifact": """
source            Where it is: `https://`, `http://`, `git::https://`, `hg::https://`, `s3::https://HOST/BUCKET/KEY`,
                  `gs://BUCKET/KEY`, or a file that the allocation has already; `//folder` behind an archive or a
                  repository takes that part of it. [All sources](../howto/fetch-artifacts.md).
options           `checksum`, `archive`, `filename`; of git `ref`, `depth`, `sshkey`; of Mercurial `rev`, `sshkey`; of
                  S3 `region`, `version`, `aws_access_key_id`, `aws_access_key_secret`, `aws_access_token`.
headers           Headers of the request.
mode              `any`, `file` or `dir`.
insecure          Do not check certificates.
destination       Where to, in the task's folder.
chown             Give it to the task's user.
""",
    "Vault": """
policies          Policies of the token.
role              The role to log in with.
namespace         The namespace of Vault.
cluster           The name of the Vault cluster.
env               Puts `VAULT_TOKEN` into the environment.
disable_file      Keeps the token out of the secrets folder.
change_mode       What to do when the token changes.
change_signal     The signal for `change_mode = "signal"`.
allow_token_expiration  Do not renew the token.
""",
    "Template": """
source            A file to render.
destination       Where to write it.
data              The text to render.
change_mode       `restart`, `signal`, `script` or `noop` when the result changes.
change_script     The command for `script`.
change_signal     The signal for `signal`.
once              Render at the start only.
splay             A random wait before the change is acted on.
perms             Mode of the file.
uid               Owner of the file.
gid               Group of the file.
left_delimiter    Begins an action.
right_delimiter   Ends an action.
env               The result is lines of environment variables.
vault_grace       Has no effect.
wait              How long values must be quiet.
error_on_missing_key  A missing key is an error.
""",
    "ChangeScript": """
command           The command.
args              Its arguments.
timeout           How long it may take.
fail_on_error     Kill the task when it fails.
run_on_first_render  Run it after the first rendering as well.
""",
    "WaitConfig": """
min               Shortest wait.
max               Longest wait.
""",
    "DispatchPayloadConfig": """
file              A path inside the task's `local` folder.
""",
    "TaskCSIPluginConfig": """
id                Id of the plugin.
type              `node`, `controller` or `monolith`.
mount_dir         Where the plugin's socket lies, `csi.sock`; `CSI_ENDPOINT` names it.
stage_publish_base_dir  Where the plugin mounts volumes. `raw_exec` tasks see both folders where the host has them.
health_timeout    How long the plugin may take to become healthy before the task is restarted.
""",
    "ScalingPolicy": """
min               The least count that `job scale` takes.
max               The greatest count that `job scale` takes.
policy            For an autoscaler; stored.
enabled           For an autoscaler; stored.
type              `horizontal`.
""",
    "TaskScalingPolicy": """
min               Stored; has no effect.
max               Stored; has no effect.
policy            Stored; has no effect.
enabled           Stored; has no effect.
type              `vertical_cpu` or `vertical_mem`, which follow from the labels `cpu` and `mem`.
""",
    "Secret": """
provider          Who has the secret.
path              Where it is.
config            Options of the provider.
env               Environment of the provider.
""",
    "Action": """
command           The command.
args              Its arguments.
""",
    "TaskSchedule": """
cron              Start and end of the hours in which the task runs.
""",
    "TaskScheduleCron": """
start             Minute, hour, days, months, weekdays and optionally years, without `,` and `/`: `30 9 * * MON-FRI *`.
end               Minute and hour of the same day, later than the start: `0 16`.
timezone          The time zone of both; "Local" is that of the node.
""",
    "Spread": """
attribute         The attribute over whose values allocations are distributed.
weight            How much this spread counts against the others, 1 to 100.
target            The share that a value shall get; without targets all get the same.
""",
    "SpreadTarget": """
percent           The share in percent; all together at most 100, the rest goes to the other values.
""",
    "VolumeRequest": """
type              `host` or `csi`.
source            The name of a `host_volume` or a dynamic host volume, or the id of a registered `csi` volume.
read_only         Needs no writable volume.
sticky            With a dynamic host volume: what replaces an allocation goes to the same volume, or waits for it.
access_mode       For `csi` and dynamic host volumes: how it is used; `single-node-single-writer` is alone in writing.
attachment_mode   For `csi` and dynamic host volumes; `file-system` is what there is.
mount_options     For `csi`; wins over those of the volume.
per_alloc         Each allocation has a volume of its own, `<source>[<index>]`, and goes where that is.
""",
    "CSIMountOptions": """
fs_type           The file system.
mount_flags       Options of the mount.
""",
    "DisconnectStrategy": """
lost_after        An allocation on an unreachable node is `unknown`, not lost, for this long.
stop_on_client_after  The client stops the allocation when it has not reached a server for this long.
replace           Start a replacement while the allocation is unknown.
reconcile         Which one stays when the node is back: `best_score`, `longest_running`, `keep_original` or
                  `keep_replacement`.
""",
    "ReschedulePolicy": """
attempts          How many replacements within an interval, where `unlimited` is false.
interval          The stretch of time in which `attempts` are counted.
delay             The wait before the first replacement; at least 5s.
delay_function    How it grows: `constant`, `exponential` or `fibonacci`.
max_delay         The longest wait.
unlimited         Replace for ever.
""",
    "Gang": """
min               How many must run together: placed only if as many run afterwards; the group's
                  `count` where it is not set. `service` and `batch` only.
elastic           The gang goes on without lost members, as long as `min` are left, and takes new ones in; each change
                  restarts all. Otherwise it waits until it has as many members as before.
rendezvous        How the members find each other; their main tasks start together.
""",
    "Rendezvous": """
framework         Whose variables the main task gets: `torch`, `mpi`, `jax`, `ray`, or `none` (the default) for
                  `YURT_GANG_*` alone.
port              The label of the group's port on which rank 0 listens. Its network has the mode `host`.
interface         The network interface of collective communication: `NCCL_SOCKET_IFNAME` and `GLOO_SOCKET_IFNAME`.
barrier           How long a member waits for the others before it fails, 10 minutes by default.
""",
    "Requeue": """
attempts          How often a preempted allocation is placed again; negative: without end (the default). Then the
                  allocation has failed for good.
delay             The least wait from the end of the preempted allocation to the next placement; none by default.
delay_function    `exponential` (the default: twice as long each time), `constant` or `fibonacci`.
max_delay         The longest such wait; one hour by default.
""",
    "Checkpoint": """
signal            Sent to the running tasks when the allocation is preempted or its node drained; `SIGTERM` by default.
grace             How long they may then take to save and end, one minute by default and one hour at most. A task that
                  ends earlier, or writes the file `.done` to its checkpoint directory, uses no more of it.
interval          How often the tasks save by themselves. A task event tells when none did for twice as long.
path              The directory that they save to: below `alloc/data` (`checkpoint` by default), which a sticky disk
                  carries to the next allocation, or an absolute path in a mounted volume. Tasks read it from
                  `YURT_CHECKPOINT_DIR`.
""",
    "EphemeralDisk": """
sticky            Prefers the node of the allocation that is replaced, and takes over its `alloc/data` and
                  `local` there.
migrate           The data of the allocation follows it to another node; with `sticky` it also stays on the same one.
size              MiB that the scheduler counts; at least 10.
""",
    "UpdateStrategy": """
stagger           Validated; deployments go on as allocations become healthy.
max_parallel      How many allocations are replaced at once; 0 replaces without a deployment.
health_check      `checks`, `task_states` or `manual`; checks are not run, so `checks` looks at task states.
min_healthy_time  How long an allocation must be well before it counts as healthy.
healthy_deadline  An allocation that is not healthy by then is unhealthy.
progress_deadline The deployment fails when no allocation becomes healthy for this long; 0 fails it at the first
                  unhealthy one.
canary            How many new allocations start while the old ones run, before any is replaced; of a
                  `system` job the percentage of its nodes that get the new version first.
auto_revert       Go back to the newest stable version when the deployment fails.
auto_promote      Promote as soon as all canaries are healthy.
""",
    "MigrateStrategy": """
max_parallel      How many allocations of the group leave a drained node, or failed devices, at once.
health_check      `checks` or `task_states`.
min_healthy_time  How long a replacement must be well before the next one leaves.
healthy_deadline  After this a replacement counts as unhealthy.
""",
    "PeriodicConfig": """
enabled           Whether children are started.
cron              A cron expression: five fields, a sixth for the year; with seven the first is the second; or
                  `@daily` and its
                  like.
crons             Several of them, instead of `cron`.
prohibit_overlap  Start none at its time while one runs; `job periodic force` does.
time_zone         The time zone of the expressions.
""",
    "ParameterizedJobConfig": """
payload           `optional` (the same as nothing), `required` or `forbidden`; at most 16 KiB.
meta_required     Keys that a dispatch must give.
meta_optional     Keys that a dispatch may give.
""",
    "JobUIConfig": """
description       A text, at most 1000 characters.
link              A link.
""",
    "JobUILink": """
label             What it is called.
url               Where it leads.
""",
    "Service": """
name              The service's name; `<job>-<group>` or `<job>-<group>-<task>` where it is not given.
tags              Tags.
canary_tags       Tags of canaries.
enable_tag_override  For Consul.
port              The label of a port, or a number.
address_mode      `auto`, `host`, `driver`, `alloc` or `auto-ipv6`.
address           Another address.
check             A health check.
check_restart     Restarts by the service's checks.
connect           The service mesh.
meta              Free values.
canary_meta       Free values of canaries.
tagged_addresses  Addresses by tag.
task              The task that checks run in.
on_update         `require_healthy`, `ignore_warnings` or `ignore`.
identity          The identity for Consul.
weights           Weights in DNS answers.
provider          `consul` or `nomad`.
cluster           The name of the Consul cluster.
kind              Kind of the service.
""",
    "ServiceCheck": """
name              The check's name.
type              `http`, `tcp`, `grpc` or `script`.
command           For `script`.
args              For `script`.
path              For `http`.
protocol          `http` or `https`.
port              Another port than the service's.
expose            Through the mesh.
address_mode      As the service's.
advertise         Another address.
interval          Time between two runs.
timeout           How long a run may take.
initial_status    The status before the first run.
notes             A text.
tls_server_name   The name in the certificate.
tls_skip_verify   Do not check the certificate.
header            Headers of the request.
method            Method of the request.
check_restart     Restarts by this check.
grpc_service      For `grpc`.
grpc_use_tls      For `grpc`.
task              The task that a `script` runs in.
success_before_passing  Successes before it passes.
failures_before_critical  Failures before it is critical.
failures_before_warning  Failures before it warns.
body              Body of the request.
on_update         As the service's.
""",
    "CheckRestart": """
limit             Failures before a restart.
grace             Wait after a start.
ignore_warnings   Warnings are no failures.
""",
    "ServiceWeights": """
passing           While checks pass.
warning           While checks warn.
""",
    "Consul": """
namespace         The namespace of Consul.
cluster           The name of the Consul cluster.
partition         The partition of Consul.
""",
}
NOTES = {block: notes(text) for block, text in TEXT.items()}
