"""One server and clients on other machines, here as processes of their own that meet over the network."""

from __future__ import annotations

import http.client
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from yurt.testing.agent import Agent, ApiFailure, free_ports, pid_is_alive, raw_exec_job, register, stop_jobs, wait_for

YEARLY = {"Enabled": True, "SpecType": "cron", "Spec": "0 0 1 1 *"}
SERVER_ONLY = {"server": {"enabled": True}, "client": {"enabled": False}}


class FarAgent(Agent):
    """A client without a server; it is ready when its own health says so."""

    def is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        try:
            return bool(self.get("/v1/agent/health")["client"]["ok"])
        except (OSError, http.client.HTTPException, ApiFailure):
            return False


class ServerAgent(Agent):
    """A server without a client."""

    def is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        try:
            return bool(self.get("/v1/status/leader"))
        except (OSError, http.client.HTTPException, ApiFailure):
            return False


@contextmanager
def cluster(folder: Path, *names: str, **server: Any) -> Iterator[tuple[ServerAgent, list[FarAgent]]]:
    """A server and a client for each name; afterwards all are gone."""
    (folder / "server").mkdir()
    main = ServerAgent(folder / "server", data_dir=folder / "server" / "data", name="main", extra=SERVER_ONLY | server)
    main.start()
    clients: list[FarAgent] = []
    try:
        for name in names:
            clients.append(far_agent(folder, name, rpc_port(main)))
            clients[-1].start()
        yield main, clients
    finally:
        stop_jobs(main)
        for agent in (*clients, main):
            agent.interrupt()


def far_agent(folder: Path, name: str, *ports: int, **more: Any) -> FarAgent:
    """A client that knows servers by these ports."""
    (folder / name).mkdir()
    servers = [f"127.0.0.1:{port}" for port in ports]
    client = {"enabled": True, "servers": servers, "options": {"driver.raw_exec.enable": "1"}}
    extra = {"server": {"enabled": False}, "client": client | more}
    return FarAgent(folder / name, data_dir=folder / name / "data", name=name, extra=extra)


def rpc_port(agent: Agent) -> int:
    """Where an agent listens for others."""
    import json

    return int(json.loads(agent.config.read_text())["ports"]["rpc"])


def test_jobs_run_on_clients_elsewhere_and_every_agent_answers_alike(tmp_path: Path) -> None:
    with cluster(tmp_path, "one", "two") as (main, (one, two)):
        script = "echo on ${node.unique.name}; exec sleep 300"
        job = raw_exec_job("web", "/bin/sh", "-c", script, count=4)
        job["Constraints"] = [{"Operand": "distinct_property", "LTarget": "${node.unique.name}", "RTarget": "2"}]
        register(one, job)
        allocs = main.running("web", 4)
        assert sorted(alloc["NodeName"] for alloc in allocs) == ["one", "one", "two", "two"]
        wait_for("the same answer", lambda: two.allocs("web") == main.allocs("web"))
        on_two = next(alloc["ID"] for alloc in allocs if alloc["NodeName"] == "two")
        for agent in (main, one, two):
            logs = partial(agent.cli, "alloc", "logs", on_two)
            wait_for(f"the log through {agent.address}", lambda logs=logs: logs().stdout == "on two\n")
            assert "alloc/" in agent.cli("alloc", "fs", on_two).stdout
        for agent in (main, one, two):
            done = agent.cli("alloc", "exec", "-task", "main", on_two, "/bin/sh", "-c", "echo from afar; exit 4")
            assert (done.returncode, done.stdout.strip()) == (4, "from afar"), (agent.address, done.stderr)
        refused = two.cli("job", "status", "nothing-of-that-name")
        assert refused.returncode == 1
        assert "No job(s) with prefix or id" in refused.stderr + refused.stdout
        assert one.get("/v1/agent/members")["Members"] == main.get("/v1/agent/members")["Members"]
        with pytest.raises(ApiFailure, match="404"):
            two.get("/v1/allocation/00000000-0000-0000-0000-000000000000")


def test_tasks_outlive_their_server_and_the_node_is_the_same_afterwards(tmp_path: Path) -> None:
    with cluster(tmp_path, "one") as (main, (one,)):
        script = 'echo $$ > "$NOMAD_TASK_DIR/pid"; exec sleep 300'
        register(main, raw_exec_job("web", "/bin/sh", "-c", script, count=3))
        before = {alloc["ID"]: alloc for alloc in main.running("web", 3)}
        pids = [pid_in(one, alloc_id) for alloc_id in before]
        nodes = [node["ID"] for node in main.get("/v1/nodes")]

        main.kill()
        with pytest.raises(ApiFailure, match="no server can be reached"):
            one.get("/v1/jobs")
        main.start()
        wait_for("the node to be ready again", lambda: [n["Status"] for n in main.get("/v1/nodes")] == ["ready"])

        assert [node["ID"] for node in main.get("/v1/nodes")] == nodes
        after = {alloc["ID"]: alloc for alloc in main.running("web", 3)}
        assert set(after) == set(before), "allocations were replaced"
        assert all(pid_is_alive(pid) for pid in pids)
        register(one, raw_exec_job("more", "/bin/sleep", "300"))
        one.running("more", 1)


def test_a_client_that_is_killed_takes_its_tasks_up_again(tmp_path: Path) -> None:
    with cluster(tmp_path, "one") as (main, (one,)):
        script = 'echo $$ > "$NOMAD_TASK_DIR/pid"; exec sleep 300'
        register(main, raw_exec_job("web", "/bin/sh", "-c", script, count=2))
        pids = {alloc["ID"]: pid_in(one, alloc["ID"]) for alloc in main.running("web", 2)}
        one.kill()
        one.start()
        after = main.running("web", 2)
        assert {alloc["ID"]: pid_in(one, alloc["ID"]) for alloc in after} == pids
        assert all(pid_is_alive(pid) for pid in pids.values())


def test_a_stranger_is_told_why_it_may_not_join(tmp_path: Path) -> None:
    with cluster(tmp_path, "one") as (main, _):
        other = far_agent(tmp_path, "other", rpc_port(main))
        other.config.write_text(other.config.read_text().replace('{"name"', '{"region": "mars", "name"', 1))
        other.spawn()
        reason = "this server is of region 'global', the agent of 'mars'"
        wait_for("the reason in the client's log", lambda: reason in other.log.read_text())
        other.kill()
        with socket.create_connection(("127.0.0.1", rpc_port(main)), timeout=5) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" * 100)
        assert [node["Name"] for node in main.get("/v1/nodes")] == ["one"]


def test_a_client_that_was_there_before_its_server_joins_when_that_comes(tmp_path: Path) -> None:
    with cluster(tmp_path) as (main, _):
        main.interrupt()
        early = far_agent(tmp_path, "early", rpc_port(main))
        early.spawn()
        try:
            wait_for("its first try", lambda: "cannot be used" in early.log.read_text())
            wait_for("its second thoughts", lambda: "registering the node failed" in early.log.read_text())
            main.start()
            wait_for("the node", lambda: [n["Status"] for n in main.get("/v1/nodes")] == ["ready"])
        finally:
            early.interrupt()


def test_a_client_is_sent_to_its_server_by_a_command(tmp_path: Path) -> None:
    with cluster(tmp_path) as (main, _):
        astray = far_agent(tmp_path, "astray", *free_ports(1))
        astray.spawn()
        try:
            wait_for("its first try", lambda: "registering the node failed" in astray.log.read_text())
            address = f"127.0.0.1:{rpc_port(main)}"
            assert astray.cli("node", "config", "-update-servers", "-servers", address).stdout == f"{address}\n"
            wait_for("the node", lambda: [n["Status"] for n in main.get("/v1/nodes")] == ["ready"])
        finally:
            astray.interrupt()


def test_a_client_without_servers_says_what_is_missing(tmp_path: Path) -> None:
    agent = far_agent(tmp_path, "alone")
    done = agent.cli("agent", "-config", str(agent.config))
    assert done.returncode == 1
    assert "needs to know where servers are" in done.stderr + done.stdout


def pid_in(agent: Agent, alloc_id: str) -> int:
    """The pid that a task wrote down."""
    assert agent.data_dir is not None
    path = agent.data_dir / "alloc" / alloc_id / "main" / "local" / "pid"
    return int(wait_for("a pid file", lambda: path.exists() and path.read_text().strip()))


def test_data_moves_with_its_allocation_to_another_node(tmp_path: Path) -> None:
    with cluster(tmp_path, "one", "two") as (main, _):
        script = '[ -e "$NOMAD_TASK_DIR/word" ] && cat "$NOMAD_TASK_DIR/word" || echo first > "$NOMAD_TASK_DIR/word"; '
        job = raw_exec_job("mover", "/bin/sh", "-c", script + "exec sleep 300")
        job["TaskGroups"][0]["EphemeralDisk"] = {"SizeMB": 150, "Migrate": True, "Sticky": True}
        register(main, job)
        first = main.running("mover", 1)[0]
        word = ("alloc", "fs", "-stat", first["ID"], "main/local/word")
        wait_for("its word", lambda: main.cli(*word).returncode == 0)
        done = main.cli("node", "drain", "-enable", "-yes", "-deadline", "60s", first["NodeID"])
        assert done.returncode == 0, done.stderr

        def successor() -> dict[str, Any] | None:
            live = [alloc for alloc in main.allocs("mover") if alloc["ClientStatus"] == "running"]
            return live[0] if live and live[0]["NodeID"] != first["NodeID"] else None

        second = wait_for("the successor on the other node", successor)
        wait_for("what the first one wrote", lambda: main.cli("alloc", "logs", second["ID"]).stdout == "first\n")
        events = [event["DisplayMessage"] for event in second["TaskStates"]["main"]["Events"]]
        assert any(f"Copying the data of allocation {first['ID'][:8]}" in text for text in events), events


def test_templates_and_identities_work_from_afar_and_over_a_restart_of_the_server(tmp_path: Path) -> None:
    script = 'echo "$(cat $NOMAD_TASK_DIR/conf) ${NOMAD_TOKEN%%.*}"; exec sleep 300'
    job = raw_exec_job("far", "/bin/sh", "-c", script)
    job["TaskGroups"][0]["Tasks"][0] |= {
        "Identities": [{"Name": "default", "Env": True}],
        "Templates": [
            {
                "DestPath": "local/conf",
                "EmbeddedTmpl": "{{ with nomadVar `nomad/jobs/far` }}{{ .user }}{{ end }}",
                "Splay": 0,
                "Wait": {"Min": 0, "Max": 0},
            }
        ],
    }
    with cluster(tmp_path, "one") as (main, (one,)):
        register(one, job)
        assert one.cli("var", "put", "nomad/jobs/far", "user=anna").returncode == 0
        alloc = main.running("far", 1)[0]["ID"]

        def told(user: str) -> bool:
            return f"{user} ey" in main.cli("alloc", "logs", alloc).stdout

        wait_for("the first text", lambda: told("anna"))
        main.kill()
        main.start()
        wait_for("a leader", lambda: main.cli("var", "put", "-force", "nomad/jobs/far", "user=bert").returncode == 0)
        wait_for("the second text", lambda: told("bert"))


def test_what_rules_the_cluster_is_not_passed_on_by_a_client(tmp_path: Path) -> None:
    with cluster(tmp_path, "far") as (server, (far,)):
        for words in (("operator", "snapshot", "save", "state.snap"), ("node", "intro", "create")):
            refused = far.cli(*words)
            assert refused.returncode == 1
            assert "ask a server at its own HTTP address" in refused.stderr
        assert server.cli("operator", "snapshot", "save", "state.snap").returncode == 0
        restored = server.cli("operator", "snapshot", "restore", "state.snap")
        assert restored.returncode == 0, restored.stderr


def test_an_agent_on_a_copied_data_directory_is_refused_and_shown_on_the_node(tmp_path: Path) -> None:
    with cluster(tmp_path, "one") as (server, (first,)):
        copy = far_agent(tmp_path, "copy", rpc_port(server))
        shutil.copytree(tmp_path / "one" / "data", tmp_path / "copy" / "data")
        try:
            copy.spawn()
            wait_for("the refusal", lambda: "another agent runs as this node" in copy.log.read_text())
            register(server, raw_exec_job("web", "sleep", "1000", count=3))
            (node,) = server.get("/v1/nodes")
            wait_for("three tasks", lambda: len(running_on(server, node["ID"])) == 3)
            told = server.cli("node", "status", node["ID"]).stdout
            assert "Second Agent" in told and "is active" in told
            assert list((tmp_path / "copy" / "data" / "alloc").iterdir()) == []
        finally:
            copy.kill()
        first.interrupt()
        first.start()


def running_on(server: Agent, node_id: str) -> list[Any]:
    """The allocations of a node that run."""
    found = server.get(f"/v1/node/{node_id}/allocations")
    return [alloc for alloc in found if alloc["ClientStatus"] == "running"]


def test_a_node_that_runs_no_commands_for_others_does_so_on_no_path(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    server = ServerAgent(
        tmp_path / "server", data_dir=tmp_path / "server" / "data", name="main", extra={"client": {"enabled": False}}
    )
    server.start()
    options = {"driver.raw_exec.enable": "1", "driver.denylist": "exec", "no.such": "1"}
    far = far_agent(tmp_path, "far", rpc_port(server), disable_remote_exec=True, options=options)
    try:
        far.start()
        job = raw_exec_job("web", "/bin/sleep", "300")
        job["TaskGroups"][0]["Tasks"][0]["Actions"] = [{"Name": "act", "Command": "/bin/echo", "Args": ["done"]}]
        register(server, job)
        (node,) = server.get("/v1/nodes")
        wait_for("the task", lambda: running_on(server, node["ID"]))
        (alloc,) = running_on(server, node["ID"])
        for agent in (server, far):
            for words in (
                ("alloc", "exec", "-task", "main", alloc["ID"], "/bin/echo", "done"),
                ("job", "action", "-job", "web", "-group", "g", "-task", "main", "act"),
            ):
                refused = agent.cli(*words)
                assert refused.returncode != 0 and "done" not in refused.stdout, words
                assert "disable_remote_exec" in refused.stderr, (words, refused.stderr)
        assert set(server.get(f"/v1/node/{node['ID']}")["Drivers"]) & {"exec", "raw_exec"} == {"raw_exec"}
        assert 'client.options "no.such": unknown option' in far.log.read_text()
    finally:
        stop_jobs(server)
        far.interrupt()
        server.interrupt()
