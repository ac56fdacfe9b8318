"""A server that demands introductions, and a client that has one only at its second try."""

from __future__ import annotations

import json
from pathlib import Path

from yurt.testing.agent import wait_for

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
        finally:
            guest.interrupt()
    finally:
        server.interrupt()
