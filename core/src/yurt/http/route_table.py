"""All routes of the API."""

from __future__ import annotations

from aiohttp import web

from yurt.http.agent_routes import (
    agent,
    agent_debug,
    alloc_disk,
    alloc_exec,
    client_fs,
    client_node,
    gossip_keyring,
    metrics,
    monitor,
    plugins,
    ui,
)
from yurt.http.cluster_routes import autopilot, checks, discovery, introduction, keyring, operator, raft, snapshot
from yurt.http.cluster_routes import status as status_routes
from yurt.http.cluster_routes import unavailable as fixed
from yurt.http.dispatcher import add_routes
from yurt.http.resources import (
    accounting,
    allocations,
    csi_volumes,
    deployments,
    evaluations,
    events,
    explain,
    job_by_id,
    jobs,
    namespaces,
    node_pools,
    nodes,
    queue,
    quotas,
    scaling,
    search,
    services,
    variables,
    volumes,
)
from yurt.http.resources.acl import auth_methods, login, policies, tokens
from yurt.http.routes import Route
from yurt.http.ui_routes import columnar, sessions, shell, watch

_MODULES = (
    auth_methods, login, policies, tokens, job_by_id, agent, agent_debug, alloc_disk, alloc_exec, allocations,
    autopilot, checks, client_fs, client_node, columnar, csi_volumes, deployments, discovery, evaluations, events,
    explain, fixed, gossip_keyring, introduction, jobs, keyring, metrics, monitor, namespaces, node_pools, nodes,
    operator, plugins, queue, quotas, raft, scaling, search, services, snapshot, status_routes, sessions,
    ui, shell, variables, volumes, watch, accounting,
)  # fmt: skip

ROUTES: tuple[Route, ...] = tuple(route for module in _MODULES for route in module.ROUTES)
"""Everything that is declared; of several patterns that match a path the first decides."""


def add_all_routes(app: web.Application) -> None:
    """Serve every route."""
    add_routes(app, ROUTES)
