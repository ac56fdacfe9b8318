"""A server that demands introductions, and a client that has one only at its second try."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from yurt.testing.agent import Agent, wait_for

from e2e.test_far_clients import ServerAgent, far_agent, rpc_port


def test_a_new_client_needs_a_token_where_one_is_demanded(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    demands = {"enabled": True, "client_introduction": {"enforcement": "strict", "default_identity_ttl": "2m"}}
    extra = {"client": {"enabled": False}, "server": demands}
    server = ServerAgent(tmp_path / "server", data_dir=tmp_path / "server" / "data", name="main", extra=extra)
    server.start()
    stranger = far_agent(tmp_path, "stranger", rpc_port(server))
    try:
        stranger.spawn()
        reason = "it brings no introduction token; make one with `yurt node intro create`"
        wait_for("the refusal", lambda: reason in stranger.log.read_text())
        assert server.get("/v1/nodes") == []
        stranger.kill()
        made = json.loads(server.cli("node", "intro", "create", "-node-name", "guest", "-json").stdout)
        guest = far_agent(tmp_path, "guest", rpc_port(server), intro_token=made["JWT"])
        try:
            guest.start()
            assert [node["Name"] for node in server.get("/v1/nodes")] == ["guest"]
            check_identity(server, guest)
        finally:
            guest.interrupt()
    finally:
        server.interrupt()


def check_identity(server: ServerAgent, guest: Agent) -> None:
    """The node's identity is shown, replaced when asked for, and lets a node that was purged in again."""
    (node_id,) = [node["ID"] for node in server.get("/v1/nodes")]
    first = claims(server, node_id)
    assert first["sub"] == f"node:global:default:{node_id}:default"
    assert first["exp"] - first["iat"] == 24 * 3600
    assert first["jti"] in guest.cli("node", "identity", "get", node_id[:8]).stdout
    assert server.cli("node", "identity", "renew", node_id).returncode == 0
    wait_for("another identity", lambda: claims(server, node_id)["jti"] != first["jti"])
    renewed = claims(server, node_id)
    guest.interrupt()
    server.call("POST", f"/v1/node/{node_id}/purge")
    assert server.get("/v1/nodes") == []
    settings = json.loads(guest.config.read_text())
    del settings["client"]["intro_token"]
    guest.config.write_text(json.dumps(settings))
    guest.start()
    assert claims(server, node_id)["iat"] >= renewed["iat"]


def claims(agent: Agent, node_id: str) -> dict[str, Any]:
    """What the identity of a node says."""
    found: dict[str, Any] = json.loads(agent.cli("node", "identity", "get", "-json", node_id).stdout)
    return found
