"""The routes of the web UI."""

from __future__ import annotations

from typing import TYPE_CHECKING

from yurt.access import needs
from yurt.access.needs import Capability
from yurt.http import routes
from yurt.http.routes import AGENT, QUERY, ROW, SERVER, handlers_of

if TYPE_CHECKING:
    from yurt.http.ui_routes import columnar, sessions, shell, watch
else:
    columnar = handlers_of("yurt.http.ui_routes.columnar")
    sessions = handlers_of("yurt.http.ui_routes.sessions")
    shell = handlers_of("yurt.http.ui_routes.shell")
    watch = handlers_of("yurt.http.ui_routes.watch")

LIST_JOBS = needs.namespace(Capability.LIST_JOBS)
SEE_JOBS = needs.namespace(Capability.LIST_JOBS, Capability.READ_JOB)
READ_JOB = needs.namespace(Capability.READ_JOB)
SEE_PARTS = needs.each_row(needs.any_of(LIST_JOBS, needs.NODE_READ))

ROUTES = (
    routes.get("/v1/yurt/jobs", columnar.list_jobs, needs=LIST_JOBS, scope=QUERY, from_nodes=True),
    routes.get("/v1/yurt/allocations", columnar.list_allocations, needs=READ_JOB, scope=QUERY, from_nodes=True),
    routes.get("/v1/yurt/nodes", columnar.list_nodes, needs=needs.NODE_READ, from_nodes=True),
    routes.get("/v1/yurt/overview", columnar.overview, needs=SEE_PARTS, scope=ROW, from_nodes=True),
    routes.get("/v1/yurt/session", sessions.describe, needs=needs.ANONYMOUS, from_nodes=True),
    routes.write("/v1/yurt/session", sessions.sign_in, needs=needs.ANONYMOUS, from_nodes=True),
    routes.delete("/v1/yurt/session", sessions.sign_out, needs=needs.ANONYMOUS, from_nodes=True),
    routes.get("/v1/yurt/ui/config", shell.configuration, needs=needs.ANONYMOUS, answered_by=AGENT, from_nodes=True),
    routes.get("/", shell.to_start, needs=needs.ANONYMOUS, answered_by=AGENT, from_nodes=True),
    routes.get("/ui", shell.to_start, needs=needs.ANONYMOUS, answered_by=AGENT, from_nodes=True),
    routes.get("/ui/a/{hash}/{path:.+}", shell.file, needs=needs.ANONYMOUS, answered_by=AGENT, from_nodes=True),
    routes.get("/ui/{path:.*}", shell.shell, needs=needs.ANONYMOUS, answered_by=AGENT, from_nodes=True),
    routes.get(
        "/v1/yurt/watch",
        watch.watch,
        needs=needs.each_row(needs.any_of(SEE_JOBS, needs.NODE_READ)),
        scope=ROW,
        answered_by=SERVER,
        from_nodes=True,
        is_stream=True,
    ),
)
