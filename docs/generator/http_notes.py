"""A sentence for every route of the HTTP API that answers from the state."""

from __future__ import annotations

TEXT = """
GET /v1/job/:job_id | A job. The id may hold slashes; `a%2Fversions` is the id `a/versions`.
PUT /v1/job/:job_id | Registers the job of the body, whose id must be the one of the path.
DELETE /v1/job/:job_id | Stops a job; with `purge` it is also forgotten. `global` has no effect.
PUT /v1/job/:job_id/dispatch/payload | Starts a child of a parameterized job; the body is the payload, at most 16 KiB.
PUT /v1/job/:job_id/periodic/force | Starts a child of a periodic job now, also while another one runs.
GET /v1/job/:job_id/action | A websocket to an action: runs it in `allocID`, or where the job runs newest.
GET /v1/yurt/job/:job_id/logs | Logs of its tasks as one stream ([details](web-ui-api.md#logs-of-a-job)).
GET /v1/job/:job_id/actions | The actions that its tasks declare.
GET /v1/job/:job_id/allocations | Its allocations; `all` includes those of earlier jobs with this id.
GET /v1/job/:job_id/deployment | Its newest deployment, or null.
GET /v1/job/:job_id/deployments | Its deployments; `all` as above.
PUT /v1/job/:job_id/dispatch | Starts a child of a parameterized job.
PUT /v1/job/:job_id/evaluate | Has it evaluated again.
GET /v1/job/:job_id/evaluations | Its evaluations.
PUT /v1/job/:job_id/plan | What registering the body's job would do; of one that launches others, how one would fare.
PUT /v1/job/:job_id/revert | Registers a former version again.
GET /v1/job/:job_id/scale | Counts of its groups, and the newest 20 attempts to scale each.
PUT /v1/job/:job_id/scale | Changes the count of a group.
GET /v1/job/:job_id/services | The service instances of its allocations.
PUT /v1/job/:job_id/stable | Marks a version as stable or not.
GET /v1/job/:job_id/submission | The text that a version was submitted as, while it is kept.
GET /v1/job/:job_id/summary | Its allocations by group and state.
GET /v1/job/:job_id/versions | Its versions, newest first, with differences when `diffs` is true.
PUT /v1/job/:job_id/versions/:tag/tag | Names a version, the newest one by default.
DELETE /v1/job/:job_id/versions/:tag/tag | Takes a name away.
PUT /v1/agent/join | Makes the servers at `address` (one or more) known to all; how many answered, what was wrong.
PUT /v1/agent/force-leave | Says of a failed server (`node`) that it has left; with `prune` it is forgotten at once. A \
live one stays in use, is `leaving` in this agent's list (with `prune`: missing) for five seconds, and has left when \
it falls silent.
GET /v1/agent/self | The agent's configuration, its member and figures, among them the ID of the cluster \
(`nomad.cluster_id` of a server, `client.cluster_id` of a client). Secrets are blanked, those of plugins too.
GET /v1/agent/members | The servers of all regions, with the status that this one sees.
GET /v1/agent/health | 200 when server and client (or the `type` asked for) are well, else 500.
GET /v1/agent/servers | The server that the client knows; 501 on an agent without a client.
PUT /v1/agent/servers | Sends the client to the servers at `address` (several may be given).
GET /v1/agent/schedulers | The scheduler workers.
GET /v1/agent/schedulers/config | How many there are, and for which types of job.
PUT /v1/agent/schedulers/config | Changes both, until this agent ends; omitted fields stay. `X-Yurt-Problem` says why.
PUT /v1/agent/reload | Reads the agent's configuration again, as SIGHUP does; 500 says what is wrong with it.
GET /v1/agent/monitor | The agent's log as a stream, at any level.
GET /v1/agent/monitor/export | What it logged, by systemd's journal (`service_name`) or its file (`on_disk`).
GET /v1/agent/host | Its machine, without secrets; without access control it needs `enable_debug`.
GET /v1/agent/pprof/:name | Text: `allocs`, `block`, `cmdline`, `goroutine`, `heap`, `profile`, `threadcreate`, `trace`.
GET /v1/allocations | All allocations.
GET /v1/allocation/:id | An allocation, with its job.
PUT /v1/allocation/:id/keep | Puts the end of an idle allocation off by `Duration` nanoseconds.
PUT /v1/allocation/:id/stop | Stops it; another one takes its place.
GET /v1/allocation/:id/services | The service instances that it registered.
GET /v1/client/allocation/:id/stats | What its tasks use now.
PUT /v1/client/allocation/:id/restart | Restarts one task, the running ones, or all.
PUT /v1/client/allocation/:id/signal | Sends a signal.
GET /v1/client/allocation/:id/gc | Removes its directory; 409 until its replacement has the data. For SDKs only.
PUT /v1/client/allocation/:id/gc | The same.
GET /v1/client/allocation/:id/exec | A websocket to a command in its task; `tty` gives a terminal.
GET /v1/client/allocation/:id/checks | What the checks of its services said last, by their ids.
GET /v1/client/fs/ls/:id | The files in a folder of an allocation.
GET /v1/client/fs/stat/:id | One of them.
GET /v1/client/fs/cat/:id | A file.
GET /v1/client/fs/readat/:id | A part of it; `offset` is required.
GET /v1/client/fs/stream/:id | A file as a stream of frames; follows it unless `follow=false`.
GET /v1/client/fs/logs/:id | The output of a task; `task` and `type` (`stdout` or `stderr`) are required. A followed \
file that is truncated is read from its start again, after a frame with the `FileEvent` `file truncated`.
GET /v1/client/stats | What a node uses now: the one of `node_id`, or the agent's own.
GET /v1/client/gc | Removes what ended allocations left on a node. For SDKs; refused to browsers.
PUT /v1/client/gc | The same.
GET /v1/deployments | All deployments.
GET /v1/deployment/allocations/:id | Its allocations.
PUT /v1/deployment/fail/:id | Ends it as failed.
PUT /v1/deployment/pause/:id | Pauses it or lets it go on.
PUT /v1/deployment/promote/:id | Promotes its canaries.
PUT /v1/deployment/allocation-health/:id | Tells the health of allocations, for `health_check = "manual"`.
GET /v1/deployment/:id | A deployment.
GET /v1/evaluations | All evaluations.
DELETE /v1/evaluations | Deletes ended ones, by `EvalIDs` or `Filter`.
GET /v1/evaluations/count | How many there are.
GET /v1/evaluation/:id | An evaluation; with `related` those it belongs together with.
GET /v1/evaluation/:id/allocations | The allocations that it placed.
GET /v1/event/stream | Changes as stored, a line each, from `index` or `X-Yurt-Oldest-Index` on; `topic` is `Topic:Key`.
GET / | Redirects to `/ui/`.
GET /ui | The same.
GET /ui/:path | The shell of the web UI, whatever the path below `/ui/`: its scripts read the path.
GET /ui/a/:hash/:path | A file of the web UI; the hash is that of all files.
GET /ui/plain/ | A page without scripts: jobs and nodes.
GET /ui/plain/jobs/:job_id | A page without scripts: a job with its allocations.
GET /v1/yurt/ui/config | What the web UI shows before anybody signs in ([details](web-ui-api.md)).
GET /v1/yurt/jobs | Jobs as columns with their truthful status ([details](web-ui-api.md#lists-as-columns)).
GET /v1/yurt/allocations | Allocations as columns: of a `job`, of a `node`, or all.
GET /v1/yurt/nodes | Nodes as columns, with what allocations book of them.
GET /v1/yurt/overview | Numbers by status, capacity by node pool, and what needs attention.
GET /v1/yurt/allocation/:id/accounting | Its use of GPUs ([fields](../howto/account-for-gpus.md#fields)).
GET /v1/yurt/job/:job_id/accounting | What its allocations used of GPUs.
GET /v1/yurt/accounting | GPU-hours by namespace and job from `since` (unix seconds) on.
GET /v1/yurt/watch | A stream of the rows that change in each `view` ([details](web-ui-api.md#watch)).
GET /v1/yurt/session | Who asks, and what that caller may do ([details](web-ui-api.md#sessions)).
PUT /v1/yurt/session | Signs a browser in with a token, a one-time token or a login, or renews its session.
DELETE /v1/yurt/session | Signs a browser out.
GET /v1/scaling/policies | The `scaling` blocks of the groups of all jobs that are not stopped.
GET /v1/scaling/policy/:id | One of them, whole; its id stays the same as long as its job and group keep their names.
GET /v1/yurt/plugins | Yurt's own: the agent's plugins, and how they fared.
PUT /v1/yurt/plugin/:name/reload | Yurt's own: reads a plugin's code again; tasks are kept; 409 names the reason.
GET /v1/yurt/allocation/:id/usage | What its tasks used in the last 15 minutes ([details](web-ui-api.md)).
PUT /v1/yurt/node/:id/device | Takes a device out, or puts it back ([how-to](../howto/handle-a-failing-gpu.md)).
GET /v1/yurt/node/:id/usage | What a node used in the last 15 minutes ([details](web-ui-api.md)).
GET /v1/yurt/allocation/:id/why | Yurt's own: why an allocation is where it is.
GET /v1/yurt/evaluation/:id/replay | Yurt's own: the evaluation made again, and compared with what is stored.
PUT /v1/yurt/job/why-not | Yurt's own: why the body's job has no place; what would help. `node:read` shows nodes.
GET /v1/jobs | All jobs.
PUT /v1/jobs | Registers a job.
PUT /v1/jobs/parse | The job of a job file as JSON; file functions are off.
GET /v1/jobs/statuses | Jobs with their allocations and newest deployment, newest change first.
PUT /v1/jobs/statuses | The same of the jobs in the body.
PUT /v1/validate/job | Checks a job without registering it.
GET /v1/metrics | See [metrics](metrics.md).
GET /v1/namespaces | All namespaces.
PUT /v1/namespace | Makes or changes one.
GET /v1/namespace/:name | A namespace.
PUT /v1/namespace/:name | Makes or changes it.
DELETE /v1/namespace/:name | Deletes it; not while it has jobs that are not dead.
PUT /v1/acl/bootstrap | Makes the first management token; `BootstrapSecret` (a UUID) chooses its secret. Works once.
GET /v1/queue/jobs | The jobs that wait in the queue of a node pool, with position, reason and expected start.
GET /v1/queue/tenants | What the tenants of a node pool's queue have used.
GET /v1/quotas | All quotas.
GET /v1/quota-usages | What is used of each quota in this region, and by which namespaces that the caller may see.
PUT /v1/quota | Makes or changes one; unknown fields, and limits that could not be enforced, are errors.
GET /v1/quota/:name | A quota.
PUT /v1/quota/:name | Makes or changes it.
DELETE /v1/quota/:name | Deletes it; not while a namespace names it.
GET /v1/quota/usage/:name | What is used of it in this region, by the hash of its limit.
GET /v1/acl/policies | The caller's policies without their rules; all of them for a management token.
GET /v1/acl/policy/self | The policies that the caller's rights follow from; null for a management token.
GET /v1/acl/policy/:name | A policy: of the caller, `anonymous`, or any one for a management token.
PUT /v1/acl/policy/:name | Stores a policy; a wrong one is refused with every mistake and its place.
DELETE /v1/acl/policy/:name | Deletes a policy; tokens and roles that name it lose its rights.
GET /v1/acl/roles | The roles of the caller's token; all of them for a management token.
PUT /v1/acl/role | Makes a role of policies.
GET /v1/acl/role/:id | A role.
PUT /v1/acl/role/:id | Changes a role.
DELETE /v1/acl/role/:id | Deletes a role; tokens lose it.
GET /v1/acl/role/name/:name | A role by its name.
GET /v1/acl/tokens | All tokens, without their secrets.
PUT /v1/acl/token | Makes a token. Its secret is in the answer, and nowhere else: only its hash is stored. With an \
`AccessorID`: as `PUT /v1/acl/token/:id`.
GET /v1/acl/token/self | The caller's token; the anonymous one for a caller without.
GET /v1/acl/token/:id | A token by its accessor id; its secret is shown to its holder.
PUT /v1/acl/token/:id | Changes name, type, policies and roles of a token. An unknown one is made, of type `client`, \
if the body has `AccessorID` and an unused `SecretID`, both UUIDs; others are 400, `cannot find token ID`. So is one \
that was revoked since the request arrived, or since its `ModifyIndex`: leave it out for a token of another cluster.
DELETE /v1/acl/token/:id | Revokes a token.
PUT /v1/acl/token/onetime | Makes a one-time token for the caller's own, valid for 10 minutes.
PUT /v1/acl/token/onetime/exchange | The token behind a one-time token (`OneTimeSecretID`), which is used up.
GET /v1/acl/auth-methods | The login methods, for everybody.
PUT /v1/acl/auth-method | Stores a login method; what it leaves out is taken from the stored one.
GET /v1/acl/auth-method/:name | A login method, without its secrets.
PUT /v1/acl/auth-method/:name | The same.
DELETE /v1/acl/auth-method/:name | Deletes a login method; its binding rules stay.
GET /v1/acl/binding-rules | All binding rules.
PUT /v1/acl/binding-rule | Makes a binding rule.
GET /v1/acl/binding-rule/:id | A binding rule.
PUT /v1/acl/binding-rule/:id | Changes a binding rule; what it leaves out is taken from the stored one.
DELETE /v1/acl/binding-rule/:id | Deletes a binding rule.
PUT /v1/acl/login | A token for a JWT (`LoginToken`) by the method `AuthMethodName`, for anybody.
PUT /v1/acl/oidc/auth-url | Where the browser of a login by OIDC goes: `AuthURL`. The login is over after five minutes.
PUT /v1/acl/oidc/complete-auth | A token for the `State`, `Code` and `Iss` of the provider's callback, once.
PUT /v1/yurt/acl/explain | Whether a token may do `Action`, a request or a right, and by which rule.
PUT /v1/acl/identity/client-introduction-token | Makes a token for a new node (`TTL`, `NodeName`, `NodePool`).
GET /v1/node/pools | All node pools.
PUT /v1/node/pools | Makes or changes one.
GET /v1/node/pool/:name | A node pool.
PUT /v1/node/pool/:name | Makes or changes it.
DELETE /v1/node/pool/:name | Deletes it; not while it has nodes or jobs that are not dead.
GET /v1/node/pool/:name/nodes | Its nodes; `prefix` is refused.
GET /v1/node/pool/:name/jobs | Its jobs; `prefix` is refused.
GET /v1/nodes | All nodes.
GET /v1/node/:id | A node.
GET /v1/node/:id/allocations | Its allocations, whole.
PUT /v1/node/:id/evaluate | Has the jobs on it evaluated again.
GET /v1/client/identity | What the identity of a node says (`Claims`).
PUT /v1/client/identity/renew | Has a node ask its servers for a new identity.
GET /v1/client/metadata | The metadata of a node: what holds, what was changed, what its configuration says.
PUT /v1/client/metadata | Changes the metadata of a node; null takes a value away.
GET /v1/client/allocation/:id/snapshot | The ephemeral disk of an allocation that has ended, as a tar archive.
GET /v1/client/allocation/:id/pause | Whether the `task` may run: pause, scheduled_pause or run.
PUT /v1/client/allocation/:id/pause | Pauses a task, lets it run, or lets its schedule decide.
GET /v1/agent/keyring/list | No keys: mutual TLS protects the servers' gossip, as the messages say.
PUT /v1/agent/keyring/install | 400: there is no gossip key; the text says what to set up instead.
PUT /v1/agent/keyring/use | As above.
PUT /v1/agent/keyring/remove | As above.
PUT /v1/node/:id/eligibility | Lets it have new allocations, or not.
PUT /v1/node/:id/drain | Begins or ends a drain.
PUT /v1/node/:id/purge | Forgets it.
GET /v1/operator/scheduler/configuration | The scheduler's configuration.
PUT /v1/operator/scheduler/configuration | Changes it; with `cas` only when its index is that one.
GET /v1/operator/raft/configuration | The servers that keep the log; ids are those of their etcd members.
DELETE /v1/operator/raft/peer | Takes a server out, by `id` or `address`; one that runs joins again.
PUT /v1/operator/raft/transfer-leadership | Has the server with that `id` or `address` lead; answered when it does.
GET /v1/operator/autopilot/configuration | How servers mind themselves.
PUT /v1/operator/autopilot/configuration | Changes it; with `cas` only when its index is that one, else false.
GET /v1/operator/autopilot/health | Whether the servers of the region are well; 429 when not.
GET /v1/operator/upgrade-check/vault-workload-identity | What still needs tokens of Vault.
PUT /v1/operator/utilization | Nodes, allocations, CPU and memory now, as JSON in base64 (`Bundle`).
GET /v1/operator/keyring/keys | The root keys without their secrets; `Keyring`: what wraps each on this server.
PUT /v1/operator/keyring/rotate | A new root key; `full` seals all again; from `publish_time` (unix ns) on.
DELETE /v1/operator/keyring/key/:id | Forgets a root key that is not active; one in use only with `force`.
GET /v1/operator/snapshot | The whole state as a gzipped tar; the `Digest` header has its SHA-256.
PUT /v1/operator/snapshot | Replaces the state by the archive in the body, at most 1 GiB; 409 while one is restored.
PUT /v1/system/gc | Removes everything that has ended.
PUT /v1/system/reconcile/summaries | Nothing is left to do: summaries are exact with every change.
GET /.well-known/jwks.json | The public keys of identities, also those that no longer sign or do not sign yet.
GET /.well-known/openid-configuration | The discovery document (OpenID Connect); 404 without `oidc_issuer`.
GET /v1/services | Names and tags of the registered services, by namespace; `prefix` begins a name.
GET /v1/service/:name | The instances of a service; `choose=3|key` picks three, for a key mostly the same.
DELETE /v1/service/:name/:id | Forgets an instance.
GET /v1/vars | Metadata of variables; `prefix` begins a path.
GET /v1/var/:path | A variable with its items.
PUT /v1/var/:path | Stores items; `cas` or 409; `lock-acquire`, `lock-renew`, `lock-release`.
DELETE /v1/var/:path | Deletes a variable; with `cas` only at that index.
GET /v1/volumes | With `type=host` or `type=csi`, by `node_id`, `node_pool` (host), `plugin_id`, `prefix`; else none.
PUT /v1/volumes | Registers CSI volumes: `{"Volumes": [...]}`; their plugins must be known.
GET /v1/volumes/external | 501: controllers list no volumes yet.
GET /v1/volumes/snapshot | 501: controllers make, list and delete no snapshots yet.
PUT /v1/volumes/snapshot | 501, as above.
DELETE /v1/volumes/snapshot | 501, as above.
GET /v1/volume/csi/:id | A CSI volume, its plugin and the allocations that use it; of secrets only the names.
PUT /v1/volume/csi/:id | Registers this CSI volume, or changes what is known of it.
DELETE /v1/volume/csi/:id | Forgets a volume that nobody uses, with `force` any; its content stays in the storage.
DELETE /v1/volume/csi/:id/detach | Whether no allocation on `node` has the volume any more; 500 while one has.
PUT /v1/volume/csi/:id/create | 501: controllers make no volumes yet.
DELETE /v1/volume/csi/:id/delete | 501: controllers delete no volumes yet.
GET /v1/plugins | CSI plugins as nodes and jobs have them.
GET /v1/plugin/csi/:id | A CSI plugin: who runs it, how healthy, what it can do.
GET /v1/volume/host/:id | A dynamic host volume with the allocations that use it.
PUT /v1/volume/host/create | Has a node make a volume: `{"Volume": {...}}`.
PUT /v1/volume/host/register | Offers a folder of a node as a volume.
DELETE /v1/volume/host/:id | As `/v1/volume/host/:id/delete`; Nomad's Go package sends this one.
DELETE /v1/volume/host/:id/delete | Deletes a volume that nobody uses; `force` also when its node or plugin fails.
GET /v1/volumes/claims | Claims on sticky volumes, by `job_id`, `task_group`, `volume_name`, `prefix`.
DELETE /v1/volumes/claim/:id | Forgets a claim.
PUT /v1/search | Objects whose id begins so.
PUT /v1/search/fuzzy | Objects whose name or id holds this: equal ones, then those that begin with it, each by name.
GET /v1/status/leader | The leader's address.
GET /v1/status/peers | The addresses of the servers that keep the log.
GET /v1/regions | The regions of all servers that are known.
GET /v1/regions/shared/:table | For the servers of other regions only: the digests of rows that all regions share.
GET /v1/regions/shared/:table/rows | For the servers of other regions only: the rows with these keys, at most 64.
"""
NOTES = dict(line.split(" | ", 1) for line in TEXT.strip().splitlines())
