"""The routes of jobs and of what is made of them: allocations, deployments, evaluations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from yurt.access import needs
from yurt.access.needs import Capability
from yurt.http import routes
from yurt.http.routes import AGENT, BODY, NODE, QUERY, ROW, SERVER, handlers_of

if TYPE_CHECKING:
    from yurt.http.resources import (
        accounting,
        allocations,
        deployments,
        evaluations,
        explain,
        job_actions,
        job_by_id,
        job_exec,
        job_tags,
        jobs,
        queue,
        scaling,
        services,
    )
else:
    accounting = handlers_of("yurt.http.resources.accounting")
    allocations = handlers_of("yurt.http.resources.allocations")
    deployments = handlers_of("yurt.http.resources.deployments")
    evaluations = handlers_of("yurt.http.resources.evaluations")
    explain = handlers_of("yurt.http.resources.explain")
    job_actions = handlers_of("yurt.http.resources.job_actions")
    job_by_id = handlers_of("yurt.http.resources.job_by_id")
    job_exec = handlers_of("yurt.http.resources.job_exec")
    job_tags = handlers_of("yurt.http.resources.job_tags")
    jobs = handlers_of("yurt.http.resources.jobs")
    queue = handlers_of("yurt.http.resources.queue")
    scaling = handlers_of("yurt.http.resources.scaling")
    services = handlers_of("yurt.http.resources.services")

READ_JOB = needs.namespace(Capability.READ_JOB)
REGISTER_JOB = needs.namespace(Capability.SUBMIT_JOB, Capability.REGISTER_JOB)
DEREGISTER_JOB = needs.namespace(Capability.SUBMIT_JOB, Capability.DEREGISTER_JOB, Capability.PURGE_JOB)
DISPATCH_JOB = needs.namespace(Capability.DISPATCH_JOB)
FORCE_PERIODIC_JOB = needs.namespace(Capability.SUBMIT_JOB, Capability.DISPATCH_JOB, Capability.FORCE_PERIODIC_JOB)
ALLOC_EXEC = needs.namespace(Capability.ALLOC_EXEC)
READ_LOGS = needs.namespace(Capability.READ_LOGS, Capability.READ_FS)
EVALUATE_JOB = needs.namespace(Capability.SUBMIT_JOB, Capability.EVALUATE_JOB)
PLAN_JOB = needs.namespace(Capability.SUBMIT_JOB, Capability.PLAN_JOB)
REVERT_JOB = needs.namespace(Capability.SUBMIT_JOB, Capability.REVERT_JOB)
READ_SCALE = needs.namespace(Capability.READ_JOB, Capability.READ_JOB_SCALING)
SCALE_JOB = needs.namespace(Capability.SCALE_JOB, Capability.SUBMIT_JOB)
STABLE_JOB = needs.namespace(Capability.SUBMIT_JOB, Capability.STABLE_JOB)
TAG_JOB_VERSION = needs.namespace(Capability.SUBMIT_JOB, Capability.TAG_JOB_VERSION)
ALLOC_LIFECYCLE = needs.namespace(Capability.ALLOC_LIFECYCLE)
GC_ALLOCATION = needs.namespace(Capability.SUBMIT_JOB, Capability.GC_ALLOCATION)
FAIL_DEPLOYMENT = needs.namespace(Capability.SUBMIT_JOB, Capability.FAIL_DEPLOYMENT)
PAUSE_DEPLOYMENT = needs.namespace(Capability.SUBMIT_JOB, Capability.PAUSE_DEPLOYMENT)
PROMOTE_DEPLOYMENT = needs.namespace(Capability.SUBMIT_JOB, Capability.PROMOTE_DEPLOYMENT)
SET_ALLOC_HEALTH_DEPLOYMENT = needs.namespace(Capability.SUBMIT_JOB, Capability.SET_ALLOC_HEALTH_DEPLOYMENT)
OWN = needs.each_row(needs.MANAGEMENT)
LIST_JOBS = needs.namespace(Capability.LIST_JOBS)
PARSE_JOB = needs.namespace(Capability.PARSE_JOB, Capability.SUBMIT_JOB)
LIST_POLICIES = needs.any_of(
    needs.namespace(Capability.LIST_SCALING_POLICIES),
    needs.all_of(needs.namespace(Capability.LIST_JOBS), needs.namespace(Capability.READ_JOB)),
)
READ_POLICY = needs.any_of(
    needs.namespace(Capability.READ_SCALING_POLICY),
    needs.all_of(needs.namespace(Capability.LIST_JOBS), needs.namespace(Capability.READ_JOB)),
)

ROUTES = (
    routes.get("/v1/job/{job_id}", job_by_id.read, needs=READ_JOB, scope=QUERY, from_nodes=True),
    routes.write("/v1/job/{job_id}", job_by_id.update, needs=REGISTER_JOB, scope=BODY, from_nodes=True),
    routes.delete("/v1/job/{job_id}", job_actions.deregister, needs=DEREGISTER_JOB, scope=QUERY, from_nodes=True),
    routes.write(
        "/v1/job/{job_id}/dispatch/payload",
        job_actions.dispatch_payload,
        needs=DISPATCH_JOB,
        scope=QUERY,
        from_nodes=True,
    ),
    routes.write(
        "/v1/job/{job_id}/periodic/force",
        job_actions.force_periodic,
        needs=FORCE_PERIODIC_JOB,
        scope=QUERY,
        from_nodes=True,
    ),
    routes.get(
        "/v1/job/{job_id}/action",
        job_exec.run_action,
        needs=ALLOC_EXEC,
        scope=QUERY,
        from_nodes=True,
        is_stream=True,
        is_socket=True,
    ),
    routes.get(
        "/v1/yurt/job/{job_id}/logs",
        job_by_id.logs,
        needs=READ_LOGS,
        scope=QUERY,
        answered_by=SERVER,
        from_nodes=True,
        is_stream=True,
    ),
    routes.get("/v1/job/{job_id}/actions", job_by_id.actions, needs=READ_JOB, scope=QUERY, from_nodes=True),
    routes.get("/v1/job/{job_id}/allocations", job_by_id.allocations, needs=READ_JOB, scope=QUERY, from_nodes=True),
    routes.get("/v1/job/{job_id}/deployment", job_by_id.deployment, needs=READ_JOB, scope=QUERY, from_nodes=True),
    routes.get("/v1/job/{job_id}/deployments", job_by_id.deployments, needs=READ_JOB, scope=QUERY, from_nodes=True),
    routes.write("/v1/job/{job_id}/dispatch", job_actions.dispatch, needs=DISPATCH_JOB, scope=QUERY, from_nodes=True),
    routes.write("/v1/job/{job_id}/evaluate", job_actions.evaluate, needs=EVALUATE_JOB, scope=QUERY, from_nodes=True),
    routes.get("/v1/job/{job_id}/evaluations", job_by_id.evaluations, needs=READ_JOB, scope=QUERY, from_nodes=True),
    routes.write("/v1/job/{job_id}/plan", job_actions.plan, needs=PLAN_JOB, scope=BODY, from_nodes=True),
    routes.write("/v1/job/{job_id}/revert", job_actions.revert, needs=REVERT_JOB, scope=QUERY, from_nodes=True),
    routes.get("/v1/job/{job_id}/scale", job_by_id.scale_status, needs=READ_SCALE, scope=QUERY, from_nodes=True),
    routes.write("/v1/job/{job_id}/scale", job_actions.scale, needs=SCALE_JOB, scope=QUERY, from_nodes=True),
    routes.get("/v1/job/{job_id}/services", services.of_job, needs=READ_JOB, scope=QUERY, from_nodes=True),
    routes.write("/v1/job/{job_id}/stable", job_actions.set_stability, needs=STABLE_JOB, scope=QUERY, from_nodes=True),
    routes.get("/v1/job/{job_id}/submission", job_by_id.submission, needs=READ_JOB, scope=QUERY, from_nodes=True),
    routes.get("/v1/job/{job_id}/summary", job_by_id.summary, needs=READ_JOB, scope=QUERY, from_nodes=True),
    routes.get("/v1/job/{job_id}/versions", job_by_id.versions, needs=READ_JOB, scope=QUERY, from_nodes=True),
    routes.write(
        "/v1/job/{job_id}/versions/{tag}/tag", job_tags.apply, needs=TAG_JOB_VERSION, scope=QUERY, from_nodes=True
    ),
    routes.delete(
        "/v1/job/{job_id}/versions/{tag}/tag", job_tags.unset, needs=TAG_JOB_VERSION, scope=QUERY, from_nodes=True
    ),
    routes.get(
        "/v1/yurt/allocation/{id}/accounting", accounting.of_allocation, needs=READ_JOB, scope=ROW, from_nodes=True
    ),
    routes.get("/v1/yurt/job/{job_id}/accounting", accounting.of_job, needs=READ_JOB, scope=QUERY, from_nodes=True),
    routes.get("/v1/yurt/accounting", accounting.report, needs=READ_JOB, scope=QUERY, from_nodes=True),
    routes.get("/v1/allocations", allocations.list_allocations, needs=READ_JOB, scope=QUERY, from_nodes=True),
    routes.get("/v1/allocation/{id}", allocations.read, needs=READ_JOB, scope=ROW, from_nodes=True),
    routes.write("/v1/allocation/{id}/stop", allocations.stop, needs=ALLOC_LIFECYCLE, scope=ROW, from_nodes=True),
    routes.write("/v1/allocation/{id}/keep", allocations.keep, needs=ALLOC_LIFECYCLE, scope=ROW, from_nodes=True),
    routes.get(
        "/v1/client/allocation/{id}/stats",
        allocations.stats,
        needs=READ_JOB,
        scope=ROW,
        answered_by=NODE,
        from_nodes=True,
        cors=True,
    ),
    routes.get(
        "/v1/yurt/allocation/{id}/usage",
        allocations.usage_history,
        needs=READ_JOB,
        scope=ROW,
        answered_by=NODE,
        from_nodes=True,
    ),
    routes.write(
        "/v1/client/allocation/{id}/restart",
        allocations.restart,
        needs=ALLOC_LIFECYCLE,
        scope=ROW,
        answered_by=NODE,
        from_nodes=True,
        cors=True,
    ),
    routes.write(
        "/v1/client/allocation/{id}/signal",
        allocations.signal,
        needs=ALLOC_LIFECYCLE,
        scope=ROW,
        answered_by=NODE,
        from_nodes=True,
        cors=True,
    ),
    routes.get(
        "/v1/client/allocation/{id}/gc",
        allocations.collect,
        needs=GC_ALLOCATION,
        scope=ROW,
        answered_by=NODE,
        from_nodes=True,
        cors=True,
        has_effect_on_get=True,
    ),
    routes.write(
        "/v1/client/allocation/{id}/gc",
        allocations.collect,
        needs=GC_ALLOCATION,
        scope=ROW,
        answered_by=NODE,
        from_nodes=True,
        cors=True,
    ),
    routes.get(
        "/v1/client/allocation/{id}/checks",
        allocations.checks,
        needs=READ_JOB,
        scope=ROW,
        answered_by=NODE,
        from_nodes=True,
        cors=True,
    ),
    routes.get("/v1/deployments", deployments.list_deployments, needs=READ_JOB, scope=QUERY, from_nodes=True),
    routes.get("/v1/deployment/allocations/{id}", deployments.allocations, needs=READ_JOB, scope=ROW, from_nodes=True),
    routes.write("/v1/deployment/fail/{id}", deployments.fail, needs=FAIL_DEPLOYMENT, scope=ROW, from_nodes=True),
    routes.write("/v1/deployment/pause/{id}", deployments.pause, needs=PAUSE_DEPLOYMENT, scope=ROW, from_nodes=True),
    routes.write(
        "/v1/deployment/promote/{id}", deployments.promote, needs=PROMOTE_DEPLOYMENT, scope=ROW, from_nodes=True
    ),
    routes.write(
        "/v1/deployment/allocation-health/{id}",
        deployments.set_health,
        needs=SET_ALLOC_HEALTH_DEPLOYMENT,
        scope=ROW,
        from_nodes=True,
    ),
    routes.get("/v1/deployment/{id}", deployments.read, needs=READ_JOB, scope=ROW, from_nodes=True),
    routes.get("/v1/evaluations", evaluations.list_evaluations, needs=READ_JOB, scope=QUERY, from_nodes=True),
    routes.delete("/v1/evaluations", evaluations.delete, needs=needs.MANAGEMENT, from_nodes=True),
    routes.get("/v1/evaluations/count", evaluations.count, needs=READ_JOB, scope=QUERY, from_nodes=True),
    routes.get("/v1/evaluation/{id}", evaluations.read, needs=READ_JOB, scope=ROW, from_nodes=True),
    routes.get("/v1/evaluation/{id}/allocations", evaluations.allocations, needs=READ_JOB, scope=ROW, from_nodes=True),
    routes.get("/v1/yurt/allocation/{id}/why", explain.why, needs=READ_JOB, scope=ROW, from_nodes=True),
    routes.get("/v1/yurt/evaluation/{id}/replay", explain.replay, needs=READ_JOB, scope=ROW, from_nodes=True),
    routes.write("/v1/yurt/job/why-not", explain.why_not, needs=READ_JOB, scope=BODY, from_nodes=True),
    routes.write("/v1/yurt/acl/explain", explain.explain_access, needs=OWN, from_nodes=True),
    routes.get("/v1/jobs", jobs.list_jobs, needs=LIST_JOBS, scope=QUERY, from_nodes=True),
    routes.write("/v1/jobs", jobs.register, needs=REGISTER_JOB, scope=BODY, from_nodes=True),
    routes.write("/v1/jobs/parse", jobs.parse, needs=PARSE_JOB, scope=QUERY, answered_by=AGENT, from_nodes=True),
    routes.get("/v1/jobs/statuses", jobs.statuses, needs=READ_JOB, scope=QUERY, from_nodes=True),
    routes.write("/v1/jobs/statuses", jobs.statuses, needs=READ_JOB, scope=BODY, from_nodes=True),
    routes.write("/v1/validate/job", jobs.validate, needs=READ_JOB, scope=BODY, from_nodes=True),
    routes.get("/v1/queue/jobs", queue.jobs, needs=LIST_JOBS, scope=QUERY, from_nodes=True),
    routes.get("/v1/queue/tenants", queue.tenants, needs=needs.OPERATOR_READ, from_nodes=True),
    routes.get("/v1/scaling/policies", scaling.list_policies, needs=LIST_POLICIES, scope=QUERY, from_nodes=True),
    routes.get("/v1/scaling/policy/{id}", scaling.read, needs=READ_POLICY, scope=ROW, from_nodes=True),
)
