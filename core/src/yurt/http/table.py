"""All routes of the API."""

from __future__ import annotations

from aiohttp import web

from yurt.http import agent, allocations, evaluations, job, jobs, nodes, status_routes
from yurt.http.routing import add_routes

_MODULES = (agent, allocations, evaluations, jobs, nodes, status_routes)


def add_all_routes(app: web.Application) -> None:
    """Serve every route."""
    for module in _MODULES:
        add_routes(app, module.ROUTES)
    job.add_job_routes(app)
