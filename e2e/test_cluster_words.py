"""What agents and commands say while something of a cluster is missing or goes away."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from yurt.testing.agent import raw_exec_job, register, wait_for
from yurt.testing.real_cluster import ClusterAgent, RealCluster, real_cluster


def test_agents_of_a_cluster_that_has_not_formed_say_what_they_wait_for(tmp_path: Path) -> None:
    cluster = RealCluster(tmp_path)
    try:
        first, *_ = cluster.add_servers(3)
        client = cluster.add_client()
        first.spawn()
        client.spawn()
        wait_for("the server's first screen", lambda: "not ready yet" in first.log_text(), 60)
        waits = "the server waits for its cluster to form"
        wait_for("what it waits for", lambda: waits in first.log_text())
        wait_for("the client's first screen", lambda: "not ready yet" in client.log_text(), 60)
        answer = "this server waits for its cluster to form; try again in a moment"
        wait_for("what the client waits for", lambda: answer in client.log_text())
        assert "started and ready" not in first.log_text() + client.log_text()
        refused = client.cli("server", "join", first.at("serf"))
        assert refused.returncode == 1 and "runs no server; name one that does" in refused.stderr
        listed = first.cli("job", "status")
        assert listed.returncode == 1 and "yurt server members" in listed.stderr
    finally:
        cluster.close()


def cluster_id(agent: ClusterAgent) -> str:
    """The ID of the cluster of a server, or of that which a client follows."""
    stats = agent.get("/v1/agent/self")["stats"]
    found: str = stats["nomad"].get("cluster_id") or stats["client"]["cluster_id"]
    return found


def test_a_server_that_alone_has_kept_its_data_says_how_to_begin_anew_and_that_works(tmp_path: Path) -> None:
    with real_cluster(tmp_path, clients=1) as cluster:
        left, *lost = cluster.servers
        register(left, raw_exec_job("kept", "/bin/sleep", "3000"))
        (kept,) = left.running("kept", 1)
        left.change("var", "put", "app/sealed", "word=kept")
        (client,), earlier = cluster.clients, cluster_id(left)
        assert cluster_id(client) == earlier
        client.kill()
        for each in lost:
            each.kill()
            each.lose_disk()
            each.spawn()
        expected = f"only {left.full_name} has data of the cluster, and 2 of 3 servers must have it"
        for each in cluster.servers:
            wait_for("advice", lambda each=each: expected in each.log_text(), 60)  # type: ignore[misc]
        assert "yurt operator snapshot save -stale FILE" in left.log_text()
        file = str(tmp_path / "state.snap")
        saved = left.cli("operator", "snapshot", "save", "-stale", file)
        assert saved.returncode == 0, saved.stderr
        left.stop()
        data, file = left.folder / "data", str(tmp_path / "from-files.snap")
        recovered = left.cli("operator", "raft", "recover", "-output", file, str(data))
        assert recovered.returncode == 0 and "none that is known" in recovered.stdout, recovered.stderr
        assert not recovered.stderr
        shutil.move(data / "server" / "keystore", tmp_path / "keystore")
        left.lose_disk()
        (data / "server").mkdir(parents=True, mode=0o700)
        shutil.move(tmp_path / "keystore", data / "server" / "keystore")
        left.spawn()
        cluster.wait_leader()
        for number in range(200):  # the new log is longer than the one before when the client reaches it
            left.call("PUT", "/v1/var/app/many", {"Path": "app/many", "Items": {"number": str(number)}})
        client.spawn()
        ignored = f"cluster_id={cluster_id(left)} previous_cluster_id={earlier}"
        wait_for("the client to tell the clusters apart", lambda: ignored in client.log_text(), 60)
        left.change("operator", "snapshot", "restore", file)
        assert [job["ID"] for job in lost[0].get("/v1/jobs")] == ["kept"]
        assert "kept" in left.cli("var", "get", "-item=word", "app/sealed").stdout
        register(left, raw_exec_job("later", "/bin/sleep", "3000"))
        left.running("later", 1)
        (same,) = left.running("kept", 1)
        started = [alloc["TaskStates"]["main"]["StartedAt"] for alloc in (kept, same)]
        assert (same["ID"], started[1]) == (kept["ID"], started[0]), "clients keep their tasks meanwhile"
        assert cluster_id(client) == cluster_id(left) != earlier, "the snapshot does not bring its own"


COUNTS = (
    'i=0; while [ $i -lt 2000 ]; do printf "line %0900d\\n" $i; i=$((i+1)); [ $((i % 40)) -eq 0 ] && sleep 0.1; done'
)
"""Writes a log of two files."""


def following(agent: ClusterAgent, *words: str, out: Path) -> subprocess.Popen[str]:
    """A command that follows something; its output goes into a file."""
    with out.open("wb") as stream:
        return subprocess.Popen(
            [*agent.command, *words], stdout=stream, stderr=subprocess.PIPE, text=True, env=agent.environment()
        )


def test_what_is_followed_goes_on_through_another_server(tmp_path: Path) -> None:
    with real_cluster(tmp_path, clients=1) as cluster:
        asked = cluster.servers[0]
        job = raw_exec_job("talks", "/bin/sh", "-c", COUNTS, kind="batch")
        job["TaskGroups"][0]["Tasks"][0]["LogConfig"] = {"MaxFiles": 10, "MaxFileSizeMB": 1}
        asked.call("PUT", "/v1/jobs", {"Job": job})
        (alloc,) = wait_for("its allocation", lambda: asked.get("/v1/job/talks/allocations"))
        wait_for("its first lines", lambda: "line 0" in asked.cli("alloc", "logs", alloc["ID"]).stdout)
        shown = [tmp_path / "shown.log", tmp_path / "shown.file"]
        name = "alloc/logs/main.stdout.0"
        readers = [
            following(asked, "alloc", "logs", "-f", alloc["ID"], out=shown[0]),
            following(asked, "alloc", "fs", "-f", alloc["ID"], name, out=shown[1]),
        ]
        for each in shown:
            wait_for("output", lambda each=each: "line 0" in each.read_text())  # type: ignore[misc]
        asked.kill()
        try:
            _, said = readers[0].communicate(timeout=90)
            expected = cluster.servers[1].cli("alloc", "fs", alloc["ID"], name).stdout
            wait_for("the whole file", lambda: len(shown[1].read_bytes()) >= len(expected))
        finally:
            for reader in readers:
                reader.kill()
        _, told = readers[1].communicate(timeout=10)
        assert readers[0].returncode == 0
        assert shown[0].read_text() == "".join(f"line {number:0900}\n" for number in range(2000))
        assert shown[1].read_text() == expected
        for words in (said, told):
            assert "Following goes on where an agent answers" in words, words
            assert "Following again, through http://" in words and asked.at("http") not in words.split("again")[1]


@pytest.mark.parametrize("asked", ["server", "client"])
def test_a_log_that_is_followed_goes_on_once_the_only_server_is_back(tmp_path: Path, asked: str) -> None:
    with real_cluster(tmp_path, servers=1, clients=1) as cluster:
        (server,) = cluster.servers
        flag = tmp_path / "end"
        script = f"echo hello; while [ ! -e {flag} ]; do sleep 0.1; done; echo goodbye"
        server.call("PUT", "/v1/jobs", {"Job": raw_exec_job("talks", "/bin/sh", "-c", script, kind="batch")})
        (alloc,) = server.running("talks", 1)
        through: ClusterAgent = server
        if asked == "client":
            through = cluster.add_client()
            through.start()
        shown = tmp_path / "shown"
        reader = following(through, "alloc", "logs", "-f", alloc["ID"], out=shown)
        try:
            wait_for("the first line", lambda: shown.read_text() == "hello\n")
            server.kill()
            flag.touch()
            server.start()
            _, said = reader.communicate(timeout=90)
        finally:
            reader.kill()
        assert (reader.returncode, shown.read_text()) == (0, "hello\ngoodbye\n"), said
        assert "ended its answer before the end" in said or "No usable answer" in said or "closed the" in said, said
        assert any(f"Following again, through http://{each.at('http')}" in said for each in cluster.agents), said


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


def test_what_helps_to_find_a_fault_is_gathered_and_holds_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "a-secret-that-nobody-may-see"
    monkeypatch.setenv("DATABASE_PASSWORD", secret)
    with real_cluster(tmp_path, servers=1, clients=1, settings={"enable_debug": True}) as cluster:
        (server,), (client,) = cluster.servers, cluster.clients
        server.call("PUT", "/v1/var/some/where", {"Path": "some/where", "Items": {"password": secret}})
        job = raw_exec_job("sleeps", "/bin/sleep", "300")
        job["TaskGroups"][0]["Tasks"][0]["Env"] = {"PASSWORD": secret}
        server.call("PUT", "/v1/jobs", {"Job": job})
        server.running("sleeps", 1)
        (node_id,) = [node["ID"] for node in server.get("/v1/nodes")]
        done = server.cli("operator", "debug", "-duration=2s", "-interval=1s", "-output", str(tmp_path / "out"))
        assert done.returncode == 0, done.stderr
        assert f"Servers: (1) [{server.full_name}]\nClients: (1) [{node_id}]" in done.stdout
        (path,) = (tmp_path / "out").glob("yurt-debug-*.tar.gz")
        assert path.stat().st_mode & 0o777 == 0o600
        with tarfile.open(path) as tar:
            files = {each.name.partition("/")[2]: tar.extractfile(each).read() for each in tar}  # type: ignore[union-attr]
        assert json.loads(files["errors.json"]) == {}, files["errors.json"]
        for folder in (f"server/{server.full_name}", f"client/{node_id}"):
            assert json.loads(files[f"{folder}/agent-host.json"])["HostData"]["Environment"]["DATABASE_PASSWORD"]
            assert f"{folder}/monitor.log" in files
            assert b'thread "MainThread"' in files[f"{folder}/goroutine-debug2_0000.txt"]
        assert [job["ID"] for job in json.loads(files["nomad/0000/jobs.json"])] == ["sleeps"]
        assert [name for name, data in files.items() if secret.encode() in data] == []
        assert client.get("/v1/agent/host")["AgentID"] == client.name
