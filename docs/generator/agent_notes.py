"""What the used keys of the agent's configuration mean, and the defaults that no table holds."""

from __future__ import annotations

from docs.generator.markdown import notes

NOTES = notes("""
region                    The region of the agent.
datacenter                The datacenter of the agent.
name                      The name of the agent and its node.
data_dir                  Where state, allocations and logs live. Required, save with `-dev`, which uses a folder
                  that is
                          removed at the end.
log_level                 `TRACE`, `DEBUG`, `INFO`, `WARN`, `ERROR` or `OFF`.
log_json                  Log in JSON.
log_include_location      Each line names the line of source that logged it, such as `log/roles.py:75`.
log_file                  The log goes to this file too, an absolute path; one that ends in `/` is a folder,
                          where the file is `yurt.log`.
log_rotate_duration       The file is rotated when it is older.
log_rotate_bytes          The file is rotated before it grows larger; 0: it may be of any size.
log_rotate_max_files      Older files that are kept; 0: all, -1: none.
enable_syslog             The log goes to the syslog daemon at `/dev/log` too.
syslog_facility           The facility of these lines: LOCAL0 to LOCAL7, DAEMON, USER and so on.
bind_addr                 The address to listen on.
enable_debug              Tell everybody who may use the API of the agent's machine, threads and tasks
                          (`/v1/agent/host`, `/v1/agent/pprof`, for `yurt operator debug`); on with `-dev`. With access
                          control policies decide alone: agent:read and agent:write.
leave_on_interrupt        Ctrl-C stops all tasks of the node, or drains it (`client.drain_on_shutdown`).
leave_on_terminate        SIGTERM stops all tasks of the node, or drains it (`client.drain_on_shutdown`).
http_api_response_headers Headers of every answer. `Access-Control-Allow-Origin`, `*` or one origin, opens reads (not
                          writes) to pages of other sites, see [browsers](../explanation/browsers-and-the-api.md).
http_allowed_hosts        Further names under which people reach the HTTP API, such as that of a reverse proxy:
                          `nomad.example.com`, `*.example.com` for all names below one, and with a port where pages come
                          from another one than 80 and 443. IP addresses, `localhost`, the host's name and the names in
                          `addresses`, `bind_addr` and `advertise` need no entry; other names are refused with 403.
ports.http                The port of the HTTP API; 0 takes a free one.
ports.rpc                 Where a server takes connections of clients on other machines; not with `-dev`.
ports.serf                Where servers find each other; TCP only.
addresses.http            Where the HTTP API listens instead of `bind_addr`; several addresses with spaces between them.
addresses.rpc             Where a server listens for other agents instead of `bind_addr`.
advertise.http            The address of the HTTP API as others see it.
advertise.rpc             The address of a server as its clients see it.
client.enabled            Run a client. Without a server in the same agent it needs `servers`.
client.servers            Addresses of servers, for an agent that runs none; the port is 4647 where none is given.
client.server_join.retry_join  Further addresses of servers.
client.server_join.start_join  Further addresses of servers.
client.state_dir          Where the client keeps what it knows of its node and tasks; not with `-dev`, which keeps
                  that in memory.
client.alloc_dir          Where allocations live.
client.node_class         The class of the node.
client.node_pool          The pool of the node.
client.intro_token        The token of `yurt node intro create`, with which a new node registers for the first time.
client.options            Options of drivers, such as `driver.raw_exec.enable`. `driver.allowlist` and
                          `driver.denylist` name the drivers that the node has, `fingerprint.allowlist` and
                          `fingerprint.denylist` what it finds out about its host (`cpu`, `memory`, `network`,
                          ...; `env_aws`, `env_azure`, `env_digitalocean` and `env_gce` ask the metadata address of
                          a cloud, where the firmware or `AWS_ENV_URL`, `AZURE_ENV_URL`, `DO_ENV_URL` or
                          `GCE_ENV_URL` says that the machine is there); the old spellings `whitelist` and
                          `blacklist` count too.
                          An option that nothing reads is told at the start. `env.denylist` takes the place of the
                          variables of the agent, by name or pattern, that tasks do not see.
                          `plugin.env.allowlist` names further variables that binaries of `plugin_dir` see.
                          `ephemeral_disk.over_size` says what becomes of an allocation that takes more than its
                          `ephemeral_disk.size`: `stop` (the usual), `warn` or `off`. Directories are measured every
                          5 seconds, unchanged ones at last every 40; all of them where the disk's free space has
                          fallen by more than 64 MiB since the last look, and longer apart where a walk takes more
                          than 0.1 s. `usage_history` is `off` where
                          nobody wants what tasks used in the last 15 minutes, a sample each 10 seconds, nor what
                          devices did (`on`). Tasks are sampled for the event `Memory Pressure` all the same, unless
                          `memory_pressure` is `off`, with which there is no such event.
                          `usage_history.device_interval` is the time between two samples of devices (`10s`); idleness
                          is judged, and devices are accounted for, by means of six.
client.chroot_env         Files and folders of the host that tasks of `exec` and `java` see, and where; in place of
                          the usual ones. Known secrets in /etc and the agent's own files show nothing.
client.meta               Metadata of the node.
client.disable_remote_exec  No command is run in a task for `alloc exec` or an action, whichever way it is asked for.
client.network_interface  The interface whose address tasks get.
client.preferred_address_family  "ipv4" or "ipv6": which of an interface's addresses is taken first.
client.cni_path           The folders of CNI plugins, with `:` between them; otherwise `/opt/cni/bin`, `/usr/lib/cni`
                  and `/usr/libexec/cni`.
client.cni_config_dir     The folder of CNI configurations, which groups name as `cni/NAME`; otherwise
                  `/opt/cni/config`.
client.bridge_network_name  The bridge of groups with `mode = "bridge"`; otherwise `nomad`.
client.bridge_network_subnet  Its addresses; otherwise `172.26.64.0/20`.
client.bridge_network_subnet_ipv6  Its IPv6 addresses; otherwise it has none.
client.bridge_network_hairpin_mode  A group reaches itself through its own mapped ports.
client.bind_wildcard_default_host_network  Without `host_network` blocks, mapped ports answer on every address of
                  the node; otherwise only on the one that the allocation is told.
client.network_speed      Mbit/s of the node's network as it is shown.
client.cpu_total_compute  MHz of the node, where what the kernel says is wrong.
client.memory_total_mb    MiB of memory, where what the kernel says is wrong.
client.disk_total_mb      MiB of disk, where what the file system says is wrong.
client.max_kill_timeout   The longest `kill_timeout` that a task gets.
client.max_dynamic_port   The greatest port that the scheduler chooses.
client.min_dynamic_port   The smallest port that the scheduler chooses.
client.reserved.cpu       MHz that no task gets.
client.reserved.cores     Cores that no task may reserve, such as `0,2-3`; their MHz count as reserved.
client.reserved.memory    MiB of memory that no task gets.
client.reserved.disk      MiB of disk that no task gets.
client.reserved.reserved_ports  Ports that no task gets, such as `22,8500-8600`.
client.server_join.retry_max  Failed rounds through all servers, before the first connection, after which the agent
                          ends; 0 means never.
client.server_join.retry_interval  The longest pause between two rounds, at least `100ms`; the first ones are shorter.
client.no_host_uuid       With `false` a new node's ID is made of the machine's UUID, the firmware's or else that of
                          `/etc/machine-id`, as a hash that does not reveal it. Placeholders of firmware do not count.
                          A node whose state is lost has the same ID again but another secret: the servers refuse it
                          until `PUT /v1/node/<id>/purge` has removed the earlier one. Machines cloned with the
                          same UUID must not set it.
client.cgroup_parent      The parent of the cgroups of tasks that are processes of this machine (`raw_exec`, `exec`,
                          `java`, `qemu`), below the mount point, such as `nomad.slice`; otherwise `yurt.slice`. Tasks
                          see it as `NOMAD_PARENT_CGROUP`. The parent, its limits and its cores remain the operator's.
                          The agent does not start where a controller that the host has does not reach the tasks.
client.nomad_service_discovery  With `false` the node takes no allocations with services of `provider = "nomad"`.
client.template.nomad_retry.attempts  Failed questions to the servers after which a template fails, and its task with
                          it when it is the first rendering; 0: it waits until a server answers.
client.fingerprint.name.retry_interval  The pause before a fingerprint that failed is asked again. The name is that of
                          a cloud (`env_aws`, ...) or of a package's fingerprint.
client.fingerprint.name.retry_attempts  How often it is asked again; 0: until it answers.
client.fingerprint.name.exit_on_failure  The agent ends when the last attempt failed; without `retry_attempts` that is
                          the first.
client.gc_interval        How often the client looks for something to remove.
client.gc_parallel_destroys  How many allocation folders are removed at once.
client.gc_disk_usage_threshold  Ended allocations are removed when the disk is fuller than this, percent.
client.gc_inode_usage_threshold  The same for inodes.
client.gc_max_allocs      Ended allocations are removed while the node has more allocations than this, those that run
                  included.
client.drain_on_shutdown.deadline  Where `leave_on_interrupt` or `leave_on_terminate` holds for the signal, the node is
                          drained before its agent ends: other nodes take over its allocations by their `migrate`
                          blocks, and what has not ended by the deadline is stopped; `1h` unless given, `0s` for none.
                          The node is eligible again once its agent is back, unless it was drained or ineligible
                          before. Where no server answers, all tasks are stopped. systemd is asked for time meanwhile.
client.drain_on_shutdown.ignore_system_jobs  Allocations of system jobs run on, also while the agent is away.
client.drain_on_shutdown.force  Stop all allocations at once, without a deadline.
client.reservable_cores   The cores that tasks with `cores` may get, such as `0-3,8`; otherwise all but the reserved.
                          Tasks of `raw_exec`, `exec`, `java`, `qemu`, `docker` and `podman` without `cores` leave
                          cores that another task reserves, where tasks have cpusets; containers as soon as they run,
                          and not those of an engine on another machine.
client.users.dynamic_user_min  The first id of the pool of dynamic users.
client.users.dynamic_user_max  The last one.
client.artifact.http_read_timeout  How long a download by HTTP may go without data.
client.artifact.http_max_size  The largest download by HTTP.
client.artifact.git_timeout  How long a clone by git may take.
client.artifact.hg_timeout  How long a clone by Mercurial may take.
client.artifact.gcs_timeout  How long a download from Google Cloud Storage may take.
client.artifact.s3_trusted_hosts  Stores besides Amazon's S3 that get the S3 keys of the agent's environment, such as
                          `minio.example.com:9000`, or `http://minio.example.com:9000` for one without TLS.
client.artifact.s3_timeout  How long a download from an S3-compatible store may take.
client.artifact.decompression_file_count_limit  How many files an archive may hold.
client.artifact.decompression_size_limit  How large an archive may become.
client.artifact.disable_artifact_inspection  Repositories are not searched for links that lead out; archives are.
client.artifact.disable_filesystem_isolation  Downloads run with the agent's rights: no Landlock, no unprivileged user.
client.artifact.filesystem_isolation_extra_paths  More paths for downloads: KIND:MODE:PATH, such as `d:rx:/opt/git`.
client.artifact.set_environment_variables  Names of variables of the agent that downloads see, separated by commas.
client.template.function_denylist  Functions that templates may not call; in place of the usual list.
client.template.function_blacklist  The former name of function_denylist.
client.template.disable_file_sandbox  Templates may read any file of the host that the agent may read.
client.template.block_query_wait  How long one question to the servers waits for a change.
client.template.wait.min  How long nothing may have changed before a template is rendered again.
client.template.wait.max  The longest time that a change waits for quiet.
client.template.wait_bounds.min  The least that a job's `wait` may ask for.
client.template.wait_bounds.max  The most that a job's `wait` may ask for.
client.template.nomad_retry.backoff  The first pause when the servers cannot be asked; it doubles.
client.template.nomad_retry.max_backoff  The longest such pause.
client.host_volume.name.path  The folder of a volume that jobs may ask for.
client.host_volume.name.read_only  Jobs may only ask for it with `read_only`.
client.host_volumes_dir   Where the plugin `mkdir` makes dynamic host volumes, and others may.
client.host_volume_register_dirs  The folders that `volume register` may offer to tasks, with what lies beneath them.
client.host_volume_plugin_dir  The folder of programs that make dynamic host volumes, found when the
                  agent starts.
client.host_network.name.cidr  The addresses of a network that ports may name.
client.host_network.name.interface  Its interface.
client.host_network.name.reserved_ports  Its ports that no task gets.
client.device_health.probation  How long a device that had a fault must be without one before its self-test; nothing is
                          placed on it meanwhile. Default 1 minute.
                          See ../explanation/device-health.md.
client.device_health.suspect_period  How long a suspect device must be without a sign of a fault to be healthy again;
                          default 10 minutes.
client.device_health.self_test_timeout  A self-test that takes longer has failed; default 2 minutes.
client.device_health.max_faults  A device that fails so often within the window stays failed until an operator enables
                          it; 0 sets no limit; default 3.
client.device_health.fault_window  That window; default 30 days (`720h`).
client.device_health.trial  How long after a fault a device that has returned is `suspect`, so that others are placed
                          first, and gives it only to groups with `requeue`, `checkpoint` or a short
                          `max_run_duration`; default 24 hours, 0 for not at all. A device that an operator enables is
                          not on trial.
client.device_health.trial_run_max  The longest `max_run_duration` of groups that a device on trial is given to, if they
                          cannot restart; default 1 hour, 0 for none of them.
client.gc_volumes_on_node_gc  When a node that is down is forgotten, its dynamic host volumes are too: for
                  machines that never come back.
client.node_max_allocs    How many allocations the node takes; 0 means any number.
client.default_ineligible The node begins as one that takes no allocations.
server.enabled            Run a server.
server.bootstrap_expect   How many servers form the cluster; 1 keeps the log in a file, without others. A server that
                          only names servers to join waits for their cluster.
server.start_join         Addresses of servers (`serf` port) that are tried once; the agent ends when none answers.
server.retry_join         Addresses of servers (`serf` port) that are tried until another server answers.
server.retry_max          Failed rounds after which the agent ends; 0 means never.
server.retry_interval     The longest pause between two rounds; the first ones are shorter.
server.server_join.start_join  The same as `server.start_join`.
server.server_join.retry_join  The same as `server.retry_join`.
server.server_join.retry_max  The same as `server.retry_max`.
server.server_join.retry_interval  The same as `server.retry_interval`.
server.rejoin_after_leave  A server that left goes back to the servers that it knew.
server.start_timeout      How long the start waits for a leader, and for the node of an agent that has one, before it
                          goes on in the background with a warning that names what is missing.
server.search.limit_query  Matches of a context, as `limit_results`: the lesser of the two counts.
rpc.dial_timeout          How long a client waits for a server to accept its connection, TLS included; it then tries
                          the next one.
ui.show_cli_hints         Commands on a terminal name the page that shows the same; `NOMAD_CLI_SHOW_HINTS=0` switches
                          that off for one user.
ui.label.text             A text beside the name in the pages, such as that of the cluster.
ui.label.background_color  Its background, a CSS colour.
ui.label.text_color       Its colour.
ui.consul.ui_url          An address (`http` or `https`) for a link `Consul` in the pages.
ui.vault.ui_url           An address (`http` or `https`) for a link `Vault` in the pages.
autopilot.cleanup_dead_servers  Failed servers are put out once others have taken their place. This block holds until
                          the API stores another configuration.
autopilot.server_stabilization_time  How long a server must have failed before it is put out.
autopilot.last_contact_threshold  How long news of a server may be overdue while it counts as healthy.
autopilot.max_trailing_logs  How many log entries it may be behind.
autopilot.min_quorum      How many servers are left at least when failed ones are put out.
etcd.endpoints            URLs of an etcd that stands by itself, to keep the log in.
etcd.quota_bytes          How large the data of the servers' own etcd members may grow; default 4 GiB.
etcd.ca_file              Whose certificates its members show.
etcd.cert_file            The certificate that it is shown.
etcd.key_file             The key of that certificate.
ports.etcd                Where the other servers' etcd members reach this server's.
addresses.serf            Where other servers are listened to, and other etcd members.
advertise.serf            What other servers are told, for their connections and their etcd members.
server.num_schedulers     How many scheduler workers run; 0 leaves scheduling to the others.
server.enabled_schedulers What they schedule: all of `service`, `batch`, `system`, `sysbatch`, `_core`.
server.node_gc_threshold  How long a node that is down is remembered.
server.job_gc_interval    How often the server looks for something to remove.
server.job_gc_threshold   How long a dead job is remembered.
server.eval_gc_threshold  How long an ended evaluation is remembered, with its allocations.
server.batch_eval_gc_threshold  The same for `batch` jobs.
server.deployment_gc_threshold  How long an ended deployment is remembered.
server.root_key_gc_interval  How often the server looks for root keys that nothing needs any more.
server.root_key_gc_threshold  How long a root key must have been inactive; no less than the identity of a node lasts.
server.root_key_rotation_threshold  How old the active root key may become before another one takes its place; the
                          other one is published at half of that time.
server.oidc_issuer        The base URL at which others reach `/.well-known/openid-configuration`: the issuer (`iss`) of
                          workload identities. The same on every server; without it there is no such document.
server.authoritative_region  The region that decides about the namespaces, node pools, policies, roles and global
                          tokens of all regions; this one when it is not set.
server.client_introduction.enforcement  What happens to a new node without a valid token: `none`, `warn` or `strict`.
server.client_introduction.default_identity_ttl  How long a token counts that was asked for without a time.
server.client_introduction.max_identity_ttl  The longest time that may be asked for.
server.heartbeat_grace    How much longer than its time to live a node may be silent.
server.min_heartbeat_ttl  The shortest time to live of a heartbeat.
server.max_heartbeats_per_second  With many nodes times to live grow, so that no more heartbeats than this come in.
server.failover_heartbeat_ttl  The time to live of every node after a start of the server.
server.default_scheduler_config.scheduler_algorithm  `binpack` or `spread`. This block holds until the API stores
                  another
                          configuration.
server.default_scheduler_config.memory_oversubscription_enabled  `memory_max` is honoured.
server.default_scheduler_config.reject_job_registration  Refuses new and changed jobs.
server.default_scheduler_config.pause_eval_broker  No evaluation is scheduled.
server.default_scheduler_config.preemption_config.system_scheduler_enabled  `system` jobs may preempt.
server.default_scheduler_config.preemption_config.sysbatch_scheduler_enabled  `sysbatch` jobs may preempt.
server.default_scheduler_config.preemption_config.batch_scheduler_enabled  `batch` jobs may preempt.
server.default_scheduler_config.preemption_config.service_scheduler_enabled  `service` jobs may preempt.
server.plan_rejection_tracker.enabled  A node that refuses plan after plan takes no more allocations, until it is made
  eligible again: its events say so. Ten nodes at once at most, then one in six minutes.
server.plan_rejection_tracker.node_threshold  The number of refused plans after which the node counts as unreliable.
server.plan_rejection_tracker.node_window  The time within which they count.
server.event_buffer_size  How many commands the event stream can begin in the past, within 4 MiB of changes.
server.raft_snapshot_threshold  A snapshot is saved when the log has grown by this many commands.
server.raft_snapshot_interval  How often that is looked at.
server.raft_multiplier    1 to 10: multiplies the silence of a leader after which another server leads.
server.raft_logstore.backend  The name of a package's log engine, for a server that keeps its state by itself;
  `boltdb` and `wal` mean Yurt's own storage. See ../howto/write-a-log-engine.md.
server.raft_trailing_logs How many commands the log keeps behind a snapshot.
server.job_default_priority  The priority of a job that names none.
server.job_max_priority   The greatest priority of a job: 100 to 32766.
server.search.fuzzy_enabled  Fuzzy searches are answered; otherwise 500.
server.search.limit_results  1 to 1000: matches of a context in the answer of a fuzzy search; further ones are cut off.
server.search.min_term_length  1 or more: the shortest text that a fuzzy search takes, in characters.
server.job_max_source_size  The largest job file that is stored with its job, such as `500KB`.
server.job_max_count      The greatest sum of the counts of a job's groups.
server.job_tracked_versions  How many versions of a job are kept.
ui.enabled                `/ui/` answers with pages for a browser.
telemetry.prometheus_metrics  `/v1/metrics?format=prometheus` answers; with `-dev` always.
telemetry.collection_interval  How often metrics are pushed to the sinks below.
telemetry.statsd_address       `host:port` of a statsd to which [metrics](../howto/watch-with-prometheus.md) go by UDP.
telemetry.statsite_address     `host:port` of a statsite, by TCP.
telemetry.datadog_address      `host:port` of a DogStatsD, by UDP.
telemetry.datadog_tags         Tags of all metrics that go there, such as `env:prod`.
telemetry.otlp.endpoint        The URL of a collector that takes [traces](../howto/trace-the-start-of-tasks.md) over
  OTLP/HTTP, with its path; the leader sends them. Needs `pip install 'yurt[otlp]'`.
telemetry.otlp.ca_file         Certificates in PEM form that the collector's is checked with, instead of the system's.
telemetry.otlp.sample_ratio    The share of traces that is sent, from 0 to 1; 1 if not given.
telemetry.disable_hostname     Metrics do not have the label `host`.
telemetry.use_node_name        The label `host` is the agent's name instead of the host's.
telemetry.publish_node_metrics  CPU, memory, disks and uptime of the host are published.
telemetry.publish_allocation_metrics  CPU and memory of tasks, and counts of their starts and ends, are published.
telemetry.include_alloc_metadata_in_metrics  `meta` of jobs becomes labels of the metrics of their tasks.
telemetry.allowed_metadata_keys_in_metrics  Only these keys of `meta` do.
telemetry.prefix_filter        Prefixes of names with `+` (publish) or `-` (leave out); the longest that fits decides.
telemetry.filter_default       Whether names that no prefix fits are published.
telemetry.disable_dispatched_job_summary_metrics  Dispatched jobs have no `job_summary`.
telemetry.disable_quota_utilization_metrics  Quotas have no metrics.
telemetry.disable_allocation_hook_metrics  Hooks of allocations and tasks have no metrics.
plugin_dir                Where [driver and device binaries](../howto/run-nomad-driver-binaries.md) lie.
client.client_min_port    The first port that plugin binaries without unix sockets may listen on.
client.client_max_port    The last one.
plugin.name.args          Arguments for a plugin binary.
tls.http                  Users speak to the agent by HTTPS only.
tls.rpc                   Agents speak to each other by mutual TLS only.
tls.verify_https_client   Users show a certificate that the authority has signed.
tls.ca_file               The certificate of the authority.
tls.cert_file             The agent's certificate, which names its role: `server.<region>.nomad` or
                          `client.<region>.nomad`.
tls.key_file              Its key.
tls.rpc_upgrade_mode      While TLS is turned on: agents that do not speak TLS yet are taken in and dialled too, without
                          a certificate. Take it out again when all agents have `tls { rpc = true }`.
tls.tls_min_version       `tls12` or `tls13`, for HTTPS.
plugin.name.config        The plugin's own options, see [drivers](drivers.md). `name` is the plugin's name or that
                  of its driver; another one is told at the start.
acl.enabled               Access control: requests need a token. Make the first one with `yurt acl bootstrap`. All
                          agents of a cluster have the same value.
acl.token_ttl             How long an agent without a server uses what a server told it of a token, and how long a
                          server that does not see the leader's state decides by its own: a revocation counts there
                          after this time at the latest. Agents without a server take the shortest of the three
                          times, 1 s at least.
acl.policy_ttl            The same for policies.
acl.role_ttl              The same for roles.
acl.replication_token     The Secret ID of a management token of the authoritative region, for servers of other regions.
acl.allow_rpc_without_tls  Let a server with access control start although other hosts can reach its ports for agents
                          (RPC, Serf) without TLS. Anyone there can act as a server or a node: only for networks in
                          which nobody else is. Otherwise, without `tls { rpc = true }`, a server that stands alone and
                          names no address (`bind_addr`, `addresses`, `advertise`) has these ports on loopback only,
                          with a warning. One that names an address, another region or other hosts' servers (to join or
                          rejoin, or for its client) refuses to start.
acl.token_min_expiration_ttl  The shortest lifetime of a token that expires.
acl.token_max_expiration_ttl  The longest lifetime of a token that expires.
server.acl_token_gc_threshold  How old an expired token must be before it is removed.
keyring.name.name         Tells blocks of one kind apart; stands in the files that the block's key has sealed.
keyring.name.active       This key seals root keys; the others only open what they have sealed. One of several blocks is
                          active, and a block that stands alone.
keyring.name.passphrase_file  `passphrase`: the file with the passphrase, which only the agent's user may read.
keyring.name.address      `transit`: the URL of Vault or OpenBao; plain HTTP only to this machine.
keyring.name.key_name     `transit`: the name of the key.
keyring.name.mount_path   `transit`: where the engine is mounted.
keyring.name.namespace    `transit`: the namespace of the engine.
keyring.name.token        `transit`: a token that may encrypt and decrypt with the key.
keyring.name.token_file   `transit`: a file with the token, read for each call.
keyring.name.tls_ca_cert  `transit`: a PEM file with the authority to trust, instead of those of the system.
keyring.name.tls_client_cert  `transit`: a PEM file with a certificate to show.
keyring.name.tls_client_key  `transit`: its key.
keyring.name.lib          `pkcs11`: the token's PKCS#11 module, a shared library.
keyring.name.token_label  `pkcs11`: the label of the token.
keyring.name.slot         `pkcs11`: the number of the token's slot, where labels do not tell tokens apart.
keyring.name.pin_file     `pkcs11`: the file with the user PIN, which only the agent's user may read.
keyring.name.key_label    `pkcs11`: the label of the key.
keyring.name.key_id       `pkcs11`: the id of the key in hexadecimal digits.
keyring.name.mechanism    `pkcs11`: how the key encrypts: `AES_GCM` (an AES key), or `RSA_PKCS_OAEP` (an RSA key pair).
keyring.name.rsa_oaep_hash  `pkcs11`: the hash of OAEP, `sha256` or `sha1`.
limits.https_handshake_timeout  How long a handshake of TLS may take at the HTTP API; 0: without limit.
limits.http_max_conns_per_client  Connections of one address to the HTTP API; a further one
                          is answered with 429. 0: without limit.
limits.rpc_handshake_timeout  How long another agent may take to say who it is, the handshake of
                          TLS included; 0: without limit.
limits.rpc_max_conns_per_client  Connections of agents from one address; a further one is closed. 0: without limit.
audit.enabled             Write an [audit log](audit-log.md) of the requests that this agent decides about.
audit.sink.name.type      `file`.
audit.sink.name.format    `json`: one object a line.
audit.sink.name.delivery_guarantee  `enforced`: a request fails, before it changes anything, when its line cannot be
                          written. `best-effort`: lines that cannot be written are counted (`audit.failed`).
audit.sink.name.path      The file. Two sinks do not share one.
audit.sink.name.mode      The file's permissions, in octal.
audit.sink.name.rotate_bytes  Rotate the file before it would grow beyond this; 0: never for its size.
audit.sink.name.rotate_duration  Rotate the file when its first line is older than this; `"0s"`: never for its age.
audit.sink.name.rotate_max_files  Older files that are kept; 0: all.
audit.filter.name.type    `HTTPEvent`.
audit.filter.name.endpoints  Lines of these paths are left out, where stage and operation match too; `*` stands for any
                          characters.
audit.filter.name.stages  `OperationReceived`, `OperationComplete` or `*`.
audit.filter.name.operations  HTTP methods, or `*`.
""")
COMPUTED: dict[tuple[str, ...], str] = {
    ("name",): "the host's name",
    ("data_dir",): "",
    ("bind_addr",): '`"0.0.0.0"`',
    ("ports", "http"): "`4646`",
    ("ports", "rpc"): "`4647`",
    ("ports", "serf"): "`4648`",
    ("ports", "etcd"): "the `serf` port plus one",
    ("addresses", "serf"): "`bind_addr`",
    ("advertise", "serf"): "`bind_addr`, or the address of the default route",
    ("server", "retry_interval"): "`30s`",
    ("server", "server_join", "retry_interval"): "`30s`",
    ("autopilot", "cleanup_dead_servers"): "`true`",
    ("autopilot", "server_stabilization_time"): "`10s`",
    ("autopilot", "last_contact_threshold"): "`200ms`",
    ("autopilot", "max_trailing_logs"): "`250`",
    ("addresses", "http"): "`bind_addr`",
    ("addresses", "rpc"): "`bind_addr`",
    ("advertise", "http"): "`bind_addr`, or the address of the default route",
    ("advertise", "rpc"): "`bind_addr`, or the address of the default route",
    ("client", "no_host_uuid"): "`true`",
    ("client", "fingerprint", "name", "retry_interval"): "`30s`",
    ("client", "server_join", "retry_interval"): "`5s`",
    ("server", "start_timeout"): "`30s`, `4s` where other agents are needed",
    ("server", "search", "limit_query"): "`limit_results`",
    ("ui", "enabled"): "`true`",
    ("ui", "show_cli_hints"): "`true`",
    ("client", "enabled"): "`false`",
    ("client", "state_dir"): "`data_dir`/client",
    ("client", "alloc_dir"): "`data_dir`/alloc",
    ("client", "host_volumes_dir"): "`data_dir`/host_volumes",
    ("client", "host_volume_plugin_dir"): "`data_dir`/host_volume_plugins",
    ("client", "host_volume_register_dirs"): "`[]`",
    ("client", "client_min_port"): "`14000`",
    ("client", "client_max_port"): "`14512`",
    ("plugin_dir",): "`data_dir`/plugins",
    ("server", "enabled"): "`false`",
    ("server", "bootstrap_expect"): "`1`",
    ("keyring", "name", "active"): "`true` for the only block",
    ("keyring", "name", "mount_path"): '`"transit"`',
    ("keyring", "name", "mechanism"): '`"AES_GCM"`',
    ("keyring", "name", "rsa_oaep_hash"): '`"sha256"`',
    ("audit", "enabled"): "`false`",
    ("audit", "sink", "name", "type"): '`"file"`',
    ("audit", "sink", "name", "format"): '`"json"`',
    ("audit", "sink", "name", "delivery_guarantee"): '`"enforced"`',
    ("audit", "sink", "name", "path"): "`data_dir`/audit/audit.log",
    ("audit", "sink", "name", "mode"): '`"0600"`',
    ("audit", "sink", "name", "rotate_bytes"): "`0`",
    ("audit", "sink", "name", "rotate_duration"): '`"24h"`',
    ("audit", "sink", "name", "rotate_max_files"): "`0`",
    ("audit", "filter", "name", "type"): '`"HTTPEvent"`',
}
"""Defaults that are worked out at the start; `-dev` changes some of them."""
