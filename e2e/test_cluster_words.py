"""What agents and commands say while something of a cluster is missing or goes away."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from yurt.testing.agent import raw_exec_job, wait_for
from yurt.testing.real_cluster import ClusterAgent, RealCluster, real_cluster


def test_agents_of_a_cluster_that_has_not_formed_say_what_they_wait_for(tmp_path: Path) -> None:
    cluster = RealCluster(tmp_path)
    try:
        first, *_ = cluster.add_servers(3)
        client = cluster.add_client()
        first.spawn()
        client.spawn()
        wait_for("the server's first screen", lambda: "not ready yet" in first.log_text(), 60)
        assert "the server waits for its cluster to form" in first.log_text()
        wait_for("the client's first screen", lambda: "not ready yet" in client.log_text(), 60)
        assert "this server waits for its cluster to form; try again in a moment" in client.log_text()
        assert "started and ready" not in first.log_text() + client.log_text()
        refused = client.cli("server", "join", first.at("serf"))
        assert refused.returncode == 1 and "runs no server; name one that does" in refused.stderr
        listed = first.cli("job", "status")
        assert listed.returncode == 1 and "yurt server members" in listed.stderr
    finally:
        cluster.close()


@pytest.mark.parametrize("asked", ["server", "client"])
def test_a_log_that_is_followed_does_not_end_in_silence_when_its_server_dies(tmp_path: Path, asked: str) -> None:
    with real_cluster(tmp_path, servers=1, clients=1) as cluster:
        (server,) = cluster.servers
        server.call("PUT", "/v1/jobs", {"Job": raw_exec_job("talks", "/bin/sh", "-c", "echo hello; exec sleep 300")})
        (alloc,) = server.running("talks", 1)
        through: ClusterAgent = server
        if asked == "client":
            through = cluster.add_client()
            through.start()
        command = [*through.command, "alloc", "logs", "-f", alloc["ID"]]
        following = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=through.environment()
        )
        assert following.stdout is not None
        assert following.stdout.readline() == "hello\n"
        server.kill()
        _, said = following.communicate(timeout=60)
        assert following.returncode == 1
        assert "ended its answer before the end" in said or "No usable answer" in said, said
        server.start()


def test_the_log_of_a_nodes_agent_is_read_through_its_server(tmp_path: Path) -> None:
    with real_cluster(tmp_path, servers=1, clients=1) as cluster:
        (server,), (client,) = cluster.servers, cluster.clients
        (node_id,) = [node["ID"] for node in server.get("/v1/nodes")]
        command = [*server.command, "monitor", "-log-level", "DEBUG", "-node-id", node_id]
        heard = tmp_path / "heard.log"
        with heard.open("wb") as out:
            reading = subprocess.Popen(command, stdout=out, env=server.environment())

        def hears() -> bool:
            client.get("/v1/agent/self")
            return "path=/v1/agent/self" in heard.read_text()

        try:
            wait_for("a line of the client's agent", hears, 60)
        finally:
            reading.terminate()
            reading.wait(timeout=20)
