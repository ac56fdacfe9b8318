"""A real agent with a damaged log and a damaged client database: it refuses with advice, and doubles no task."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from yurt.testing.agent import WAIT_LIMIT_S, Agent, pid_is_alive, raw_exec_job, register, running_agent, wait_for

MARKER = 'echo $$ >> "$NOMAD_ALLOC_DIR/pids"; exec sleep 1000'


def pids(data: Path) -> list[list[int]]:
    """The processes that each allocation has started."""
    return [[int(line) for line in path.read_text().split()] for path in sorted(data.glob("alloc/*/alloc/pids"))]


def zero_end(path: Path) -> None:
    """Zero the last part of a file, as a lost page."""
    data = path.read_bytes()
    path.write_bytes(data[:-20_000] + bytes(20_000))


def refused(agent: Agent) -> str:
    """What the agent says at its end, which it comes to by itself."""
    before = agent.log.stat().st_size
    agent.spawn()
    assert agent.process is not None
    assert agent.process.wait(timeout=WAIT_LIMIT_S) == 1
    return agent.log.read_text()[before:]


def test_a_server_whose_log_lost_its_end_refuses_until_the_loss_is_accepted(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running_agent(tmp_path, data_dir=data) as agent:
        for number in range(12):
            register(agent, raw_exec_job(f"job-{number}", "/bin/sleep", "1000", count=0))
        agent.kill()
        zero_end(data / "server" / "log.db-wal")

        told = refused(agent)
        assert "has lost acknowledged entries: commands" in told
        assert "yurt operator raft recover" in told
        assert "Traceback" not in told

        shown = agent.cli("operator", "raft", "recover", str(data))
        assert (shown.returncode, "given up:" in shown.stdout) == (1, True)
        assert agent.cli("operator", "raft", "recover", "-accept-loss", str(data)).returncode == 0
        agent.start()
        assert agent.get("/v1/job/job-0")["ID"] == "job-0"


def test_a_client_without_its_records_starts_nothing_beside_what_runs(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running_agent(tmp_path, data_dir=data) as agent:
        register(agent, raw_exec_job("many", "/bin/sh", "-c", MARKER, count=4))
        agent.running("many", 4)
        wait_for("all pids", lambda: len(before := pids(data)) == 4 and all(before))
        before, node = pids(data), agent.get("/v1/nodes")[0]["ID"]
        agent.kill()
        for name in ("client.db", "client-copy.db"):
            (data / "client" / f"{name}-wal").unlink()
            with sqlite3.connect(data / "client" / name) as connection:
                connection.execute("PRAGMA writable_schema=ON")
                connection.execute("DELETE FROM sqlite_master")
            connection.close()
        agent.start()

        agent.running("many", 4)
        assert agent.get("/v1/nodes")[0]["ID"] == node
        assert pids(data) == before
        assert all(pid_is_alive(pid) for (pid,) in before)
        wait_for("the line", lambda: "the node looks for the tasks that run here" in agent.log.read_text() or None)
        wait_for("the node's event", lambda: damage_told(agent, node) or None)


def damage_told(agent: Agent, node: str) -> bool:
    """Whether the node's events tell of the damage."""
    return any("Client state damaged" in event["Message"] for event in agent.get(f"/v1/node/{node}")["Events"])
