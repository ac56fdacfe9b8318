"""The end of an agent with a data directory, server and client in one process.

After `kill -9` tasks go on and nothing is lost; an agent that leaves may drain its node.
"""

from __future__ import annotations

from pathlib import Path

from yurt.testing.agent import Agent, pid_is_alive, raw_exec_job, register, running_agent, wait_for

TASKS = 50
TICKER = 'echo $$ > "$NOMAD_TASK_DIR/pid"; i=0; while true; do i=$((i+1)); echo $i; sleep 0.2; done'


def test_fifty_tasks_survive_the_death_of_their_agent(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running_agent(tmp_path, data_dir=data) as agent:
        register(agent, raw_exec_job("many", "/bin/sh", "-c", TICKER, count=TASKS))
        register(
            agent,
            raw_exec_job(
                "ending",
                "/bin/sh",
                "-c",
                f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; exit 3",
                kind="batch",
                RestartPolicy={"Attempts": 0, "Mode": "fail", "Interval": 60_000_000_000, "Delay": 1_000_000_000},
            ),
        )
        before = {alloc["ID"]: pid_of(data, alloc["ID"]) for alloc in agent.running("many", TASKS)}
        agent.running("ending", 1)

        agent.kill()
        (tmp_path / "go").touch()
        assert all(pid_is_alive(pid) for pid in before.values())
        agent.start()

        after = {alloc["ID"]: alloc for alloc in agent.running("many", TASKS)}
        assert set(after) == set(before), "allocations were replaced"
        assert {alloc_id: pid_of(data, alloc_id) for alloc_id in before} == before
        assert [a["TaskStates"]["main"]["Restarts"] for a in after.values()] == [0] * TASKS
        assert_exit_code_was_kept(agent)
        assert_no_line_was_lost(agent, next(iter(before)))


def assert_exit_code_was_kept(agent: Agent) -> None:
    """The task that ended while no agent was there failed with its own exit code."""
    ended = wait_for("the ended task", lambda: [a for a in agent.allocs("ending") if a["ClientStatus"] == "failed"])
    events = " ".join(event["DisplayMessage"] for event in ended[0]["TaskStates"]["main"]["Events"])
    assert "Exit Code: 3" in events


def assert_no_line_was_lost(agent: Agent, alloc_id: str) -> None:
    """The log counts without a gap, and goes on."""

    def lines() -> list[int]:
        return [int(line) for line in agent.cli("alloc", "logs", alloc_id).stdout.split()]

    first = lines()
    wait_for("more lines", lambda: len(lines()) > len(first))
    numbers = lines()
    assert numbers == list(range(1, len(numbers) + 1))


def pid_of(data: Path, alloc_id: str) -> int:
    """The pid that the task wrote down at its start."""
    path = data / "alloc" / alloc_id / "main" / "local" / "pid"
    return int(wait_for("a pid file", lambda: path.exists() and path.read_text().strip()))


def test_an_agent_that_leaves_drains_its_node_and_makes_it_eligible_when_it_is_back(tmp_path: Path) -> None:
    extra = {
        "leave_on_interrupt": True,
        "client": {
            "enabled": True,
            "options": {"driver.raw_exec.enable": "1"},
            "drain_on_shutdown": {"deadline": "1s", "ignore_system_jobs": True},
        },
    }
    with running_agent(tmp_path, data_dir=tmp_path / "data", extra=extra) as agent:
        register(agent, raw_exec_job("moved", "/bin/sleep", "1000"))
        register(agent, raw_exec_job("staying", "/bin/sleep", "1000", kind="system"))
        [moved], [staying] = agent.running("moved", 1), agent.running("staying", 1)

        assert agent.interrupt() == 0
        agent.start()

        [replacement] = agent.running("moved", 1)  # only an eligible node takes it
        assert replacement["ID"] != moved["ID"]
        assert [alloc["ID"] for alloc in agent.running("staying", 1)] == [staying["ID"]]
