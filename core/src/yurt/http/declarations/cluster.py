"""The routes of the cluster: its servers, keys and settings, and features that are not there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from yurt.access import needs
from yurt.access.needs import OperatorCapability
from yurt.http import routes
from yurt.http.routes import AGENT, handlers_of

if TYPE_CHECKING:
    from yurt.http.cluster_routes import (
        autopilot,
        checks,
        discovery,
        introduction,
        keyring,
        operator,
        raft,
        snapshot,
        status,
        unavailable,
    )
else:
    autopilot = handlers_of("yurt.http.cluster_routes.autopilot")
    checks = handlers_of("yurt.http.cluster_routes.checks")
    discovery = handlers_of("yurt.http.cluster_routes.discovery")
    introduction = handlers_of("yurt.http.cluster_routes.introduction")
    keyring = handlers_of("yurt.http.cluster_routes.keyring")
    operator = handlers_of("yurt.http.cluster_routes.operator")
    raft = handlers_of("yurt.http.cluster_routes.raft")
    snapshot = handlers_of("yurt.http.cluster_routes.snapshot")
    status = handlers_of("yurt.http.cluster_routes.status")
    unavailable = handlers_of("yurt.http.cluster_routes.unavailable")

READ_KEYRING = needs.operator(OperatorCapability.KEYRING_READ)
ROTATE_KEYRING = needs.operator(OperatorCapability.KEYRING_ROTATE)
DELETE_KEY = needs.operator(OperatorCapability.KEYRING_DELETE)
SAVE_SNAPSHOT = needs.operator(OperatorCapability.SNAPSHOT_SAVE)

ENTERPRISE = (
    "/v1/sentinel/policies", "/v1/sentinel/policy/{name}", "/v1/recommendations", "/v1/recommendation",
    "/v1/recommendation/{id}",
    "/v1/recommendations/apply", "/v1/operator/license", "/v1/deployment/unblock/{id}",
)  # fmt: skip

ROUTES = (
    routes.get(
        "/v1/operator/autopilot/configuration",
        autopilot.read_configuration,
        needs=needs.OPERATOR_READ,
        wrong_method=404,
    ),
    routes.put(
        "/v1/operator/autopilot/configuration",
        autopilot.set_configuration,
        needs=needs.OPERATOR_WRITE,
        wrong_method=404,
    ),
    routes.get("/v1/operator/autopilot/health", autopilot.health, needs=needs.OPERATOR_READ, wrong_method=404),
    routes.get(
        "/v1/operator/upgrade-check/vault-workload-identity", checks.vault_identities, needs=needs.OPERATOR_READ
    ),
    routes.write("/v1/operator/utilization", checks.utilization, needs=needs.OPERATOR_READ),
    routes.get("/.well-known/jwks.json", discovery.keys, needs=needs.ANONYMOUS, from_nodes=True),
    routes.get("/.well-known/openid-configuration", discovery.configuration, needs=needs.ANONYMOUS, from_nodes=True),
    routes.write("/v1/acl/identity/client-introduction-token", introduction.make, needs=needs.NODE_WRITE),
    routes.get("/v1/operator/keyring/keys", keyring.keys, needs=READ_KEYRING),
    routes.write("/v1/operator/keyring/rotate", keyring.rotate, needs=ROTATE_KEYRING),
    routes.delete("/v1/operator/keyring/key/{id}", keyring.remove, needs=DELETE_KEY),
    routes.get("/v1/operator/scheduler/configuration", operator.read_scheduler, needs=needs.OPERATOR_READ),
    routes.write("/v1/operator/scheduler/configuration", operator.set_scheduler, needs=needs.OPERATOR_WRITE),
    routes.put("/v1/system/gc", operator.collect, needs=needs.MANAGEMENT),
    routes.put("/v1/system/reconcile/summaries", operator.reconcile, needs=needs.MANAGEMENT),
    routes.get("/v1/operator/raft/configuration", raft.configuration, needs=needs.MANAGEMENT),
    routes.delete("/v1/operator/raft/peer", raft.remove_peer, needs=needs.MANAGEMENT, wrong_method=404),
    routes.write("/v1/operator/raft/transfer-leadership", raft.transfer_leadership, needs=needs.MANAGEMENT),
    routes.get("/v1/operator/snapshot", snapshot.save, needs=SAVE_SNAPSHOT, is_stream=True),
    routes.write("/v1/operator/snapshot", snapshot.load, needs=needs.MANAGEMENT),
    routes.get("/v1/status/leader", status.leader, needs=needs.ANONYMOUS, answered_by=AGENT, from_nodes=True),
    routes.get("/v1/status/peers", status.peers, needs=needs.ANONYMOUS, answered_by=AGENT, from_nodes=True),
    routes.get("/v1/regions", status.regions, needs=needs.ANONYMOUS, answered_by=AGENT, from_nodes=True),
    routes.get("/v1/regions/shared/{table}", status.shared_digests, needs=needs.MANAGEMENT),
    routes.get("/v1/regions/shared/{table}/rows", status.shared_rows, needs=needs.MANAGEMENT),
    *(
        routes.any_method(
            path, unavailable.enterprise, needs=needs.ANONYMOUS, from_nodes=not path.startswith("/v1/operator/")
        )
        for path in ENTERPRISE
    ),
    routes.any_method("/v1/acl/{path:.*}", unavailable.acl_disabled, needs=needs.ANONYMOUS),
)
