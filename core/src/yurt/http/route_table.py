"""All routes of the API."""

from __future__ import annotations

from aiohttp import web

from yurt.http.declarations import acl, agents, cluster, jobs, resources, ui
from yurt.http.dispatcher import add_routes
from yurt.http.routes import Route

ROUTES: tuple[Route, ...] = (
    *acl.ROUTES, *jobs.ROUTES, *resources.ROUTES, *agents.ROUTES, *cluster.ROUTES, *ui.ROUTES,
)  # fmt: skip
"""Everything that is declared; of several patterns that match a path the first decides."""


def add_all_routes(app: web.Application) -> None:
    """Serve every route."""
    add_routes(app, ROUTES)
