"""The names of Nomad's metrics for the calls behind the routes of its API; the time of each is recorded under them."""

from __future__ import annotations

from typing import Final

_TABLE: Final = """
GET /v1/acl/policies                                   acl.list_policies
GET /v1/acl/policy/{name}                              acl.get_policy
GET /v1/acl/policy/self                                acl.get_policies
PUT /v1/acl/policy/{name}                              acl.upsert_policies
DELETE /v1/acl/policy/{name}                           acl.delete_policies
PUT /v1/acl/bootstrap                                  acl.bootstrap
GET /v1/acl/tokens                                     acl.list_tokens
GET /v1/acl/token/{id}                                 acl.get_token
GET /v1/acl/token/self                                 acl.resolve_token
PUT /v1/acl/token                                      acl.upsert_tokens
PUT /v1/acl/token/{id}                                 acl.upsert_tokens
DELETE /v1/acl/token/{id}                              acl.delete_tokens
GET /v1/allocations                                    alloc.list
GET /v1/allocation/{id}                                alloc.get_alloc
PUT /v1/allocation/{id}/stop                           alloc.stop
GET /v1/client/allocation/{id}/exec                    alloc.exec
GET /v1/client/allocation/{id}/stats                   client_allocations.stats
PUT /v1/client/allocation/{id}/restart                 client_allocations.restart
PUT /v1/client/allocation/{id}/signal                  client_allocations.signal
GET /v1/client/allocation/{id}/gc                      client_allocations.garbage_collect
PUT /v1/client/gc                                      client_allocations.garbage_collect_all
GET /v1/client/gc                                      client_allocations.garbage_collect_all
GET /v1/client/stats                                   client.stats
GET /v1/client/fs/ls/{id}                              file_system.list
GET /v1/client/fs/stat/{id}                            file_system.stat
GET /v1/client/fs/stream/{id}                          file_system.stream
GET /v1/client/fs/logs/{id}                            file_system.logs
GET /v1/deployments                                    deployment.list
GET /v1/deployment/{id}                                deployment.get_deployment
GET /v1/deployment/allocations/{id}                    deployment.allocations
PUT /v1/deployment/fail/{id}                           deployment.fail
PUT /v1/deployment/pause/{id}                          deployment.pause
PUT /v1/deployment/promote/{id}                        deployment.promote
PUT /v1/deployment/allocation-health/{id}              deployment.set_alloc_health
PUT /v1/deployment/unblock/{id}                        deployment.unblock
GET /v1/evaluations                                    eval.list
GET /v1/evaluation/{id}                                eval.get_eval
GET /v1/evaluation/{id}/allocations                    eval.allocations
DELETE /v1/evaluations                                 eval.reap
GET /v1/jobs                                           job.list
PUT /v1/jobs                                           job.register
GET /v1/job/{job_id}                                   job.get_job
PUT /v1/job/{job_id}                                   job.register
DELETE /v1/job/{job_id}                                job.deregister
GET /v1/job/{job_id}/allocations                       job.allocations
GET /v1/job/{job_id}/deployment                        job.latest_deployment
GET /v1/job/{job_id}/deployments                       job.deployments
GET /v1/job/{job_id}/evaluations                       job.evaluations
GET /v1/job/{job_id}/versions                          job.get_job_versions
GET /v1/job/{job_id}/scale                             job.scale_status
GET /v1/job/{job_id}/summary                           job_summary.get_job_summary
PUT /v1/job/{job_id}/scale                             job.scale
PUT /v1/job/{job_id}/dispatch                          job.dispatch
PUT /v1/job/{job_id}/evaluate                          job.evaluate
PUT /v1/job/{job_id}/plan                              job.plan
PUT /v1/job/{job_id}/revert                            job.revert
PUT /v1/job/{job_id}/stable                            job.stable
PUT /v1/job/{job_id}/periodic/force                    periodic.force
PUT /v1/validate/job                                   job.validate
GET /v1/namespaces                                     namespace.list_namespace
GET /v1/namespace/{name}                               namespace.get_namespace
PUT /v1/namespace                                      namespace.upsert_namespaces
PUT /v1/namespace/{name}                               namespace.upsert_namespaces
DELETE /v1/namespace/{name}                            namespace.delete_namespaces
GET /v1/nodes                                          client.list
GET /v1/node/{id}                                      client.get_node
GET /v1/node/{id}/allocations                          client.get_allocs
PUT /v1/node/{id}/drain                                client.update_drain
PUT /v1/node/{id}/eligibility                          client.update_eligibility
PUT /v1/node/{id}/evaluate                             client.evaluate
PUT /v1/node/{id}/purge                                client.deregister
GET /v1/node/pools                                     node_pool.list
GET /v1/node/pool/{name}                               node_pool.get_node_pool
GET /v1/node/pool/{name}/jobs                          node_pool.list_jobs
GET /v1/node/pool/{name}/nodes                         node_pool.list_nodes
PUT /v1/node/pools                                     node_pool.upsert_node_pools
PUT /v1/node/pool/{name}                               node_pool.upsert_node_pools
DELETE /v1/node/pool/{name}                            node_pool.delete_node_pools
GET /v1/plugins                                        plugin.list
GET /v1/plugin/csi/{id}                                plugin.get
GET /v1/scaling/policies                               scaling.list_policies
GET /v1/scaling/policy/{id}                            scaling.get_policy
PUT /v1/search                                         search.prefix_search
GET /v1/volumes                                        volume.list
GET /v1/volume/csi/{id}                                volume.get
PUT /v1/volume/csi/{id}                                volume.register
PUT /v1/volumes                                        volume.register
DELETE /v1/volume/csi/{id}                             volume.deregister
DELETE /v1/volume/csi/{id}/detach                      volume.unpublish
"""


def _read() -> dict[tuple[str, str], str]:
    names = {}
    for line in filter(None, _TABLE.splitlines()):
        method, path, name = line.split()
        names[method, path] = name
        if method == "PUT":
            names["POST", path] = name
    return names


RPC_NAMES: Final = _read()
"""(method, path of the route) -> the metric's name without its prefix."""
