"""What each metric is: words by name, and the labels of families."""

from __future__ import annotations

from typing import Final

from docs.generator.markdown import notes

NODE_LABELS: Final = "`node_id`, `datacenter`, `node_class`, `node_pool`, `node_scheduling_eligibility`, `node_status`"
TASK_LABELS: Final = "`alloc_id`, `job`, `namespace`, `task`, `task_group`"
TASK_COUNT_LABELS: Final = "`job`, `namespace`, `task`, `task_group`"
EVAL_LABELS: Final = "`namespace`, `eval_type`, `triggered_by`"
DEVICE_LABELS: Final = f"{NODE_LABELS}, `device` (vendor/type/name), `device_id`"

COUNTERS: Final = notes("""
worker.evaluations        Evaluations that a worker ended.
worker.failed             Evaluations that failed and are tried again.
plan.submitted            Plans that were checked.
plan.placements           Placements that they asked for.
plan.partial              Plans of which something was refused.
plan.rejected_placements  Placements that were refused.
plan.node_rejected        Plans that a node refused in part; label `node_id`.
plan.changes              Changes that were stored.
queue.requeued            Allocations that go on with the work of a preempted one; label `reason`.
queue.lost_seconds        Run time that these lost, from the last checkpoint to the end; label `reason`.
queue.lost_device_seconds  The same times the devices that they held; label `reason`.
idle.announced            Announced ends of allocations that do not use their devices; labels `action`, `reason`.
idle.withdrawn            Announcements that were withdrawn; labels `action`, `reason`, and `cause`: `use` (its devices
                          are used again, or not measured), `keep`, `policy` (changed), `need` (nobody waits any more),
                          `other` (another member of its gang is used, interactive hours, its node is out of contact).
idle.ended                Allocations that ended for being idle; labels `action`, `reason` (`contended`, `always`).
plan.stale                Plans of which a part was refused for a change since its check.
http.response             Answers of the HTTP API; label `code`, the status.
http.refuse_browser       Requests refused because of their `Host`, or because a page of another site made them.
http.bad_request          Requests that are not valid HTTP, or have a body that cannot be read.
http.time_out             Requests that were not sent to their end in time.
http.evict_conn           Connections, unused or with half a request, that gave their places to others.
http.refuse_conn          Connections to the HTTP API that were too many of one address.
agent.http.exceeded       The same under Nomad's name.
rpc.request               Requests to the API that a server answers.
rpc.query                 Those of them that read.
rpc.request_error         Those of them that failed; an answer below 500 is no failure.
rpc.accept_conn           Connections of other agents that were taken.
rpc.refuse_conn           Connections that were too many.
rpc.fail_conn             Connections of what is no agent, or has no right to connect.
rpc.bad_message           Connections that were closed because the agent at the other end sent what no agent sends.
raft.apply                Commands that this server appended to the log.
raft.state.leader         Times that this server became the leader.
client.introduction.violation  New nodes without a valid introduction token.
audit.lines               Lines of the audit log that were written, counted for each sink.
audit.failed              Lines of the audit log that could not be written.
agent.traces.sent         Spans that the collector of traces took.
agent.traces.dropped      Spans that it did not take in time, or that were too many.
replication.pulled        Answers of the authoritative region, changed or not.
replication.failed        Failures to get one, or to copy it.
""")
CLIENT_COUNTERS: Final = notes(f"""
allocs.running            Starts of tasks; labels {TASK_COUNT_LABELS}.
allocs.restart            Restarts of tasks; the same labels.
allocs.complete           Tasks that ended well; the same labels.
allocs.failed             Tasks that failed for good; the same labels.
dynamic_users.assigned    Tasks that got a user id from the pool of `client users`.
allocs.oom_killed         Runs that the kernel killed for memory; the same labels.
alloc_hook.prerun.success  Hooks of allocations that succeeded; label `hook_name`.
alloc_hook.prerun.failed   Hooks of allocations that failed; label `hook_name`.
task_hook.prestart.success  Hooks of tasks that succeeded; label `hook_name`.
task_hook.prestart.failed   Hooks of tasks that failed; label `hook_name`.
""")
TIMES: Final = notes(f"""
plan.submit            A plan, from the worker's submission to its end.
plan.evaluate          Checking one plan.
plan.apply             Storing and applying the accepted part of a plan.
worker.invoke          One evaluation, from its snapshot to its end.
worker.dequeue_eval    How long a worker waited for evaluations.
worker.wait_for_index  How long it then waited for the state that they need.
worker.submit_plan     How long it waited for the results of its plans.
worker.send_ack        Telling the broker that evaluations have ended.
broker.wait_time       How long an evaluation was ready before a worker took it; labels {EVAL_LABELS}.
broker.process_time    How long the worker had it; the same labels.
broker.response_time   The sum of both; the same labels.
heartbeat.invalidate   Marking a node whose heartbeat was missed.
http.request           One request of the HTTP API, until its answer begins.
raft.commitTime        Making one batch of commands durable.
raft.fsm.apply         Applying one command to the state.
runtime.gc_pause_ns    One collection of Python's garbage collector, in nanoseconds.
""")
CLIENT_TIMES: Final = notes("""
alloc_hook.prerun.elapsed   One call of an allocation's hook; label `hook_name`.
task_hook.prestart.elapsed  One call of a task's hook; label `hook_name`.
""")
GAUGES: Final = notes("""
state.index                   Index of the newest write.
server.is_leader              1 on the server that leads.
server.last_contact_ms        For how long this server has not heard of the leader; 0 on the leader.
raft.leader.lastContact       The same under Nomad's name.
raft.appliedIndex             Index of the newest command that was applied.
raft.lastIndex                Index of the newest command that was proposed.
broker.total_ready            Evaluations that a worker may take.
broker.total_unacked          Evaluations that a worker has.
broker.total_pending          Evaluations that wait for another one of the same job.
broker.total_waiting          Evaluations that wait for their time.
broker.total_cancelable       Evaluations that a newer one has made needless.
blocked_evals.total_blocked   Evaluations that wait for capacity.
blocked_evals.total_escaped   Those of them that any class of node may help.
blocked_evals.total_quota_limit  Those of them that wait for a quota.
blocked_evals.job.cpu         MHz that the blocked evaluations of a job ask for; labels `job`, `namespace`.
                              The 100 jobs that ask for most have one.
blocked_evals.job.memory      MiB that they ask for; likewise.
plan.queue_depth              Plans that wait to be checked.
plan.rejection_tracker.node_score  Refusals of a node within the tracker's window; label `node_id`.
queue.waiting                 Jobs that wait in the queues of node pools.
queue.in_flight               Evaluations that these queues have let through and that no worker has finished.
heartbeat.active              Nodes whose heartbeat is awaited.
gpu_usage.seconds             Card-seconds that ended allocations held, over the days that are kept; label `namespace`.
gpu_usage.busy_seconds        Those of them in which the card worked; likewise.
gpu_usage.idle_seconds        Those of them in which it was idle; likewise.
gpu_usage.preemptions         Preempted allocations among them; likewise.
gpu_usage.queue_wait_seconds  The seconds from their evaluations to their plans; likewise.
gpu_usage.lost_seconds        Card-seconds whose work was lost; labels `namespace`, `reason`.
""")
FAMILIES: Final = notes(f"""
nomad.state.snapshotIndex           Index of the newest snapshot on this server's disk.
nomad.nomad.broker.<type>_ready     Evaluations of a type that a worker may take.
nomad.nomad.broker.<type>_unacked   Evaluations of a type that a worker has.
nomad.nomad.members.alive           Servers that are alive.
nomad.nomad.members.failed          Servers that failed.
nomad.nomad.etcd.db_bytes           Size of this server's etcd member.
nomad.memberlist.node.instances     Servers; label `node_state`: alive, suspect, dead, left.
nomad.nomad.job_status.<status>     Jobs by status: dead, pending, running.
nomad.nomad.job_summary.<state>     Allocations of a group by state; labels `job`, `exported_job` (the same text,
                                    for dashboards of a Prometheus that renames `job`), `namespace`, `task_group`.
nomad.nomad.quota.used              What is used of a quota in this region; labels `quota`, `dimension`.
nomad.nomad.quota.limit             What a quota allows in this region, where it has a limit; labels likewise.
nomad.nomad.quota.guaranteed        What a quota is guaranteed in this region; labels `quota`, `dimension`.
nomad.nomad.quota.lent              What of it the quota does not use; labels likewise.
nomad.nomad.quota.borrowed          What the quota uses beyond it; labels likewise.
nomad.nomad.devices                 Devices of all nodes by state: healthy, suspect, degraded, failed, probation,
                                    disabled; labels `device` (vendor/type/name; `other` beyond 64 kinds), `state`.
nomad.nomad.quota.utilization.<dimension>  What is used of a quota under Nomad's names: cpu, cores, memory_mb,
                                    storage.variables_mb, storage.host_volumes_mb; labels `quota_name`, `region`.
nomad.runtime.alloc_bytes           Resident memory of the agent, bytes.
nomad.runtime.sys_bytes             Address space of the agent, bytes.
nomad.runtime.heap_objects          Blocks that Python's allocator has given out.
nomad.runtime.num_goroutines        Tasks of the event loop, which stand for Go's goroutines.
nomad.runtime.total_gc_runs         Collections of Python's garbage collector.
nomad.runtime.total_gc_pause_ns     Their time in all, nanoseconds; of a server.
nomad.client.allocations.<state>    Allocations of the node: blocked, pending, running, terminal;
                                    labels {NODE_LABELS}.
nomad.client.tasks.<state>          Tasks of the node: pending, running, dead; the same labels.
nomad.client.allocated.<resource>   What is allocated: cpu (MHz), memory (MiB), disk (MiB); the same labels,
                                    with `publish_node_metrics`, as all that follow down to `uptime`.
nomad.client.unallocated.<resource>  What is left; likewise.
nomad.client.host.cpu.<figure>      idle, system, user, total_percent (percent) and total_ticks (MHz) of each core
                                    since the last reading; label `cpu` besides.
nomad.client.host.memory.<figure>   available, free, total, used, bytes.
nomad.client.host.disk.<figure>     available, size, used (bytes), used_percent, inodes_percent; label `disk` besides.
nomad.client.uptime                 Seconds since the host started.
nomad.client.allocs.cpu.<figure>    allocated (MHz), system, user, total_percent (percent of a core), total_ticks (MHz);
                                    labels {TASK_LABELS}, and `parent_id`, `dispatch_id` or `periodic_id` of
                                    launched jobs; with `publish_allocation_metrics`.
nomad.client.allocs.gpu.<figure>    Sums of its cards since its start: seconds, measured_seconds, busy_seconds,
                                    idle_seconds, throttled_seconds (card-seconds), energy_joules,
                                    memory_booked_bytes, memory_peak_bytes, memory_mean_bytes, pcie_bytes,
                                    nvlink_bytes; labels `alloc_id`, `job`, `namespace`, `task_group` and those of
                                    launches; of 256 allocations of a node at most; likewise.
nomad.client.allocs.memory.<figure>  allocated, max_allocated, rss, swap, usage, bytes; likewise.
nomad.client.device.healthy         1 for a device that tasks may get, else 0; labels {DEVICE_LABELS}.
nomad.client.device.<figure>        Each figure of `node status -stats` in lower case, such as `gpu_utilization`.
nomad.client.device.<figure>.limit  The whole that a figure is a part of: memory in all, highest power.
""")
"""Gauges by their full names."""
FIGURES: Final = {
    "nomad.nomad.broker.<type>_ready": "service batch system sysbatch _core",
    "nomad.nomad.broker.<type>_unacked": "service batch system sysbatch _core",
    "nomad.nomad.job_status.<status>": "dead pending running",
    "nomad.nomad.job_summary.<state>": "queued complete failed running starting lost unknown",
    "nomad.nomad.quota.utilization.<dimension>": "cpu cores memory_mb storage.variables_mb storage.host_volumes_mb",
    "nomad.client.allocations.<state>": "blocked pending running terminal",
    "nomad.client.tasks.<state>": "pending running dead",
    "nomad.client.allocated.<resource>": "cpu memory disk",
    "nomad.client.unallocated.<resource>": "cpu memory disk",
    "nomad.client.host.cpu.<figure>": "idle system user total_percent total_ticks",
    "nomad.client.host.memory.<figure>": "available free total used",
    "nomad.client.host.disk.<figure>": "available size used used_percent inodes_percent",
    "nomad.client.allocs.cpu.<figure>": "allocated system user total_percent total_ticks",
    "nomad.client.allocs.gpu.<figure>": "seconds measured_seconds busy_seconds idle_seconds throttled_seconds "
    "energy_joules memory_booked_bytes memory_peak_bytes memory_mean_bytes pcie_bytes nvlink_bytes",
    "nomad.client.allocs.memory.<figure>": "allocated max_allocated rss swap usage",
}
"""What stands for the part in angle brackets."""

RAFT_LIBRARY: Final = "a figure of Nomad's Raft library; Yurt's log is SQLite or etcd, whose own metrics tell of it"
BOLTDB: Final = "Yurt's log is not kept in BoltDB"
VAULT: Final = "Yurt holds no Vault tokens for tasks"
CONSUL: Final = "Yurt registers nothing in Consul"
NOT_MEASURED: Final = "no driver of Yurt measures it, and a gauge that is always 0 misleads"
INSIDE: Final = "the step is a part of another command or call here; {} has its time"
SEPARATE: Final = "is not a request of its own here"
EXCEPTIONS: Final = {
    "nomad.client.allocations.migrating": "data moves while an allocation is pending; no state of its own",
    "nomad.client.allocations.start": "a start takes milliseconds; `allocs.running` counts starts",
    "nomad.client.host.cpu.total_ticks_count": "derive it from `host.cpu.total_ticks`",
    "nomad.client.allocs.cpu.total_ticks_count": "derive it from `allocs.cpu.total_ticks`",
    "nomad.client.allocs.cpu.throttled_periods": NOT_MEASURED,
    "nomad.client.allocs.cpu.throttled_time": NOT_MEASURED,
    "nomad.client.allocs.memory.cache": NOT_MEASURED,
    "nomad.client.allocs.memory.kernel_max_usage": NOT_MEASURED,
    "nomad.client.allocs.memory.kernel_usage": NOT_MEASURED,
    "nomad.client.allocs.memory.max_usage": NOT_MEASURED,
    "nomad.client.consul.*": CONSUL,
    "nomad.license.expiration_time_epoch": "Yurt has no licence that expires",
    "nomad.memberlist.gossip": "servers tell one another over their TCP connections instead of by gossip",
    "nomad.nomad.acl.get_tokens": "servers of a region share the log, and other regions pull rows",
    "nomad.nomad.alloc.update_desired_transition": INSIDE.format("`client.update_drain`"),
    "nomad.nomad.blocked_evals.cpu": "a blocked evaluation belongs to no node class; see `blocked_evals.job.cpu`",
    "nomad.nomad.blocked_evals.memory": "as `blocked_evals.cpu`",
    "nomad.nomad.broker.eval_waiting": "one gauge for each evaluation has no bound; `broker.wait_time` has the times",
    "nomad.nomad.client.batch_deregister": INSIDE.format("`fsm.batch_deregister_node`"),
    "nomad.nomad.client.derive_si_token": CONSUL,
    "nomad.nomad.client.derive_vault_token": VAULT,
    "nomad.nomad.client_csi_controller.*": "controllers of CSI plugins are not run by this version",
    "nomad.nomad.client_csi_node.detach_volume": "a client detaches volumes by itself when their tasks end",
    "nomad.nomad.deployment.cancel": INSIDE.format("`fsm.apply_deployment_status_update`"),
    "nomad.nomad.deployment.reap": INSIDE.format("`fsm.apply_deployment_delete`"),
    "nomad.nomad.deployment.run": "deployments over several regions belong to Nomad's Enterprise edition",
    "nomad.nomad.eval.ack": INSIDE.format("`worker.send_ack`"),
    "nomad.nomad.eval.create": INSIDE.format("`fsm.update_eval`"),
    "nomad.nomad.eval.dequeue": INSIDE.format("`worker.dequeue_eval`"),
    "nomad.nomad.eval.nack": "a nack " + SEPARATE + "; `worker.failed` counts them",
    "nomad.nomad.eval.reblock": INSIDE.format("`fsm.update_eval`"),
    "nomad.nomad.eval.update": INSIDE.format("`fsm.update_eval`"),
    "nomad.nomad.fsm.apply_csi_plugin_delete": "CSI plugins follow from the nodes that run them, and are no rows",
    "nomad.nomad.fsm.apply_csi_volume_batch_claim": INSIDE.format("`fsm.apply_csi_volume_register`"),
    "nomad.nomad.fsm.apply_csi_volume_claim": INSIDE.format("`fsm.apply_csi_volume_register`"),
    "nomad.nomad.fsm.batch_node_drain_update": INSIDE.format("`fsm.node_drain_update`"),
    "nomad.nomad.fsm.cluster_meta": "the cluster's id is part of the first command",
    "nomad.nomad.fsm.deregister_node": INSIDE.format("`fsm.batch_deregister_node`"),
    "nomad.nomad.fsm.deregister_si_accessor": CONSUL,
    "nomad.nomad.fsm.upsert_si_accessor": CONSUL,
    "nomad.nomad.fsm.deregister_vault_accessor": VAULT,
    "nomad.nomad.fsm.upsert_vault_accessor": VAULT,
    "nomad.nomad.fsm.persist": "snapshots are no entries of the log here",
    "nomad.nomad.job.batch_deregister": INSIDE.format("`fsm.batch_deregister_job`"),
    "nomad.nomad.leader.*": "a leader has no members to reconcile with its log, and reads the log before it leads",
    "nomad.nomad.namespace.get_namespaces": "as `acl.get_tokens`",
    "nomad.nomad.plan.wait_for_index": "a plan is checked on the newest state and waits for none",
    "nomad.nomad.plugin.delete": "CSI plugins follow from the nodes that run them, and are no rows",
    "nomad.nomad.vault.*": VAULT,
    "nomad.nomad.worker.create_eval": INSIDE.format("`worker.submit_plan`"),
    "nomad.nomad.worker.update_eval": INSIDE.format("`worker.submit_plan`"),
    "nomad.raft.barrier": RAFT_LIBRARY,
    "nomad.raft.boltdb.*": BOLTDB,
    "nomad.raft.commitNumLogs": "`raft.apply` counts the commands, and `raft.commitTime` the batches",
    "nomad.raft.fsm.enqueue": RAFT_LIBRARY,
    "nomad.raft.leader.dispatchLog": "as `raft.commitTime`",
    "nomad.raft.leader.dispatchNumLogs": "as `raft.commitNumLogs`",
    "nomad.raft.replication.appendEntries": RAFT_LIBRARY,
    "nomad.raft.state.candidate": RAFT_LIBRARY,
    "nomad.raft.state.follower": "`server.is_leader` tells who leads",
    "nomad.raft.transition.*": RAFT_LIBRARY,
    "nomad.runtime.free_count": "Python does not count what it frees",
    "nomad.scheduler.allocs.rescheduled.*": "one series for each allocation has no bound; `alloc status` shows them",
    "nomad.serf.queue.*": "servers tell one another over their TCP connections instead of by gossip",
}
"""Names of Nomad that Yurt does not have, and why; `*` stands for all that is below."""
