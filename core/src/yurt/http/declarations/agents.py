"""The routes of one agent, and of the allocations on its node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from yurt.access import needs
from yurt.access.needs import Capability, Need
from yurt.http import routes
from yurt.http.routes import AGENT, NODE, QUERY, ROW, Handler, handlers_of

if TYPE_CHECKING:
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
else:
    agent = handlers_of("yurt.http.agent_routes.agent")
    agent_debug = handlers_of("yurt.http.agent_routes.agent_debug")
    alloc_disk = handlers_of("yurt.http.agent_routes.alloc_disk")
    alloc_exec = handlers_of("yurt.http.agent_routes.alloc_exec")
    client_fs = handlers_of("yurt.http.agent_routes.client_fs")
    client_node = handlers_of("yurt.http.agent_routes.client_node")
    gossip_keyring = handlers_of("yurt.http.agent_routes.gossip_keyring")
    metrics = handlers_of("yurt.http.agent_routes.metrics")
    monitor = handlers_of("yurt.http.agent_routes.monitor")
    plugins = handlers_of("yurt.http.agent_routes.plugins")
    ui = handlers_of("yurt.http.agent_routes.ui")

PAUSE_TASK = needs.namespace(Capability.SUBMIT_JOB, Capability.PAUSE_ALLOCATION)
READ_FS = needs.namespace(Capability.READ_FS)
ALLOC_EXEC = needs.namespace(Capability.ALLOC_EXEC)
READ_LOGS = needs.namespace(Capability.READ_LOGS, Capability.READ_FS)
LIST_JOBS = needs.namespace(Capability.LIST_JOBS)
SEE_START_PAGE = needs.each_row(needs.any_of(LIST_JOBS, needs.NODE_READ))
READ_JOB = needs.namespace(Capability.READ_JOB)
FILES: tuple[tuple[str, Handler, Need, bool], ...] = (
    ("ls", client_fs.list_files, READ_FS, False),
    ("stat", client_fs.stat, READ_FS, False),
    ("cat", client_fs.cat, READ_FS, True),
    ("readat", client_fs.read_at, READ_FS, True),
    ("stream", client_fs.stream, READ_FS, True),
    ("logs", client_fs.logs, READ_LOGS, True),
)
"""The routes of an allocation's files: the part of the path, the handler, its need, whether it streams."""

ROUTES = (
    routes.write("/v1/agent/join", agent.join, needs=needs.AGENT_WRITE, answered_by=AGENT),
    routes.write("/v1/agent/force-leave", agent.force_leave, needs=needs.AGENT_WRITE, answered_by=AGENT),
    routes.get("/v1/agent/self", agent.self, needs=needs.AGENT_READ, answered_by=AGENT),
    routes.get("/v1/agent/members", agent.members, needs=needs.NODE_READ, answered_by=AGENT, from_nodes=True),
    routes.get("/v1/agent/health", agent.health, needs=needs.ANONYMOUS, answered_by=AGENT),
    routes.get("/v1/agent/servers", agent.servers, needs=needs.AGENT_READ, answered_by=AGENT),
    routes.write("/v1/agent/servers", agent.servers, needs=needs.AGENT_WRITE, answered_by=AGENT),
    routes.get("/v1/agent/schedulers", agent.schedulers, needs=needs.AGENT_READ, answered_by=AGENT),
    routes.get("/v1/agent/schedulers/config", agent.read_schedulers, needs=needs.AGENT_READ, answered_by=AGENT),
    routes.write("/v1/agent/schedulers/config", agent.change_schedulers, needs=needs.AGENT_WRITE, answered_by=AGENT),
    routes.write("/v1/agent/reload", agent.reload, needs=needs.AGENT_WRITE, answered_by=AGENT),
    routes.get("/v1/agent/host", agent_debug.host, needs=needs.AGENT_READ, answered_by=AGENT, from_nodes=True),
    routes.get(
        "/v1/agent/pprof/{name:.*}", agent_debug.profile, needs=needs.AGENT_WRITE, answered_by=AGENT, from_nodes=True
    ),
    routes.get(
        "/v1/agent/monitor/export",
        agent_debug.export,
        needs=needs.AGENT_READ,
        answered_by=AGENT,
        from_nodes=True,
        is_stream=True,
    ),
    routes.get(
        "/v1/client/allocation/{id}/snapshot",
        alloc_disk.snapshot,
        needs=READ_FS,
        scope=ROW,
        answered_by=NODE,
        from_nodes=True,
        cors=True,
        is_stream=True,
    ),
    routes.get(
        "/v1/client/allocation/{id}/pause",
        alloc_disk.read_pause,
        needs=READ_JOB,
        scope=ROW,
        answered_by=NODE,
        from_nodes=True,
        cors=True,
    ),
    routes.write(
        "/v1/client/allocation/{id}/pause",
        alloc_disk.pause,
        needs=PAUSE_TASK,
        scope=ROW,
        answered_by=NODE,
        from_nodes=True,
        cors=True,
    ),
    routes.get(
        "/v1/client/allocation/{id}/exec",
        alloc_exec.exec_in_task,
        needs=ALLOC_EXEC,
        scope=ROW,
        answered_by=NODE,
        from_nodes=True,
        cors=True,
        is_stream=True,
        is_socket=True,
    ),
    *(
        routes.get(
            f"/v1/client/fs/{name}{ending}",
            handler,
            needs=need,
            scope=ROW,
            answered_by=NODE,
            from_nodes=True,
            cors=True,
            is_stream=is_stream,
        )
        for ending in ("/{id:[^/]*}", "")
        for name, handler, need, is_stream in FILES
    ),
    routes.any_method(
        "/v1/client/fs/{path:.*}",
        client_fs.unknown,
        needs=needs.ANONYMOUS,
        answered_by=NODE,
        from_nodes=True,
        cors=True,
    ),
    routes.get(
        "/v1/client/stats", client_node.stats, needs=needs.NODE_READ, answered_by=NODE, from_nodes=True, cors=True
    ),
    routes.get(
        "/v1/yurt/node/{id}/usage", client_node.usage_history, needs=needs.NODE_READ, answered_by=NODE, from_nodes=True
    ),
    routes.get(
        "/v1/client/metadata",
        client_node.read_meta,
        needs=needs.NODE_READ,
        answered_by=NODE,
        from_nodes=True,
        cors=True,
    ),
    routes.write(
        "/v1/client/metadata",
        client_node.apply_meta,
        needs=needs.NODE_WRITE,
        answered_by=NODE,
        from_nodes=True,
        cors=True,
    ),
    routes.get(
        "/v1/client/identity",
        client_node.read_identity,
        needs=needs.NODE_READ,
        answered_by=NODE,
        from_nodes=True,
        cors=True,
    ),
    routes.write(
        "/v1/client/identity/renew",
        client_node.renew_identity,
        needs=needs.NODE_WRITE,
        answered_by=NODE,
        from_nodes=True,
        cors=True,
    ),
    routes.get(
        "/v1/client/gc",
        client_node.collect,
        needs=needs.NODE_WRITE,
        answered_by=NODE,
        from_nodes=True,
        has_effect_on_get=True,
    ),
    routes.write("/v1/client/gc", client_node.collect, needs=needs.NODE_WRITE, answered_by=NODE, from_nodes=True),
    routes.get("/v1/agent/keyring/list", gossip_keyring.list_keys, needs=needs.AGENT_READ, answered_by=AGENT),
    *(
        routes.write(
            f"/v1/agent/keyring/{verb}", gossip_keyring.change_keys, needs=needs.AGENT_WRITE, answered_by=AGENT
        )
        for verb in ("install", "use", "remove")
    ),
    routes.get("/v1/metrics", metrics.metrics, needs=needs.ANONYMOUS, answered_by=AGENT),
    routes.get(
        "/v1/agent/monitor", monitor.monitor, needs=needs.AGENT_READ, answered_by=AGENT, from_nodes=True, is_stream=True
    ),
    routes.get("/v1/yurt/plugins", plugins.list_plugins, needs=needs.AGENT_READ, answered_by=AGENT),
    routes.write("/v1/yurt/plugin/{name}/reload", plugins.reload, needs=needs.AGENT_WRITE, answered_by=AGENT),
    routes.get("/ui/plain/", ui.start, needs=SEE_START_PAGE, scope=ROW, answered_by=AGENT, from_nodes=True),
    routes.get(
        "/ui/plain/jobs/{job_id:.+}", ui.one_job, needs=READ_JOB, scope=QUERY, answered_by=AGENT, from_nodes=True
    ),
)
